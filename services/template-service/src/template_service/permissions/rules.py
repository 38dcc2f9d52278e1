"""The bodies that create and change an organization permission."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body
from identity_common.scope_names import ScopeName

PermissionDescription = Annotated[str, msgspec.Meta(max_length=256)]


class OrganizationPermissionCreation(Body):
    """A new organization permission.

    Attributes:
        name: The scope token in organization tokens: printable ASCII without spaces; unique.
        description: Description, shown on the consent page.
    """

    name: ScopeName
    description: PermissionDescription | None = None


class OrganizationPermissionUpdate(Body):
    """A change of an organization permission; null clears the description.

    Attributes:
        name: The scope token in organization tokens: printable ASCII without spaces; unique.
        description: Description, shown on the consent page.
    """

    name: ScopeName | UnsetType = UNSET
    description: PermissionDescription | UnsetType | None = UNSET
