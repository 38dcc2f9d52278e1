"""The rules for roles and their holders."""

from typing import Final

from msgspec import UNSET, UnsetType

from identity_common.fields import AddedIds, Body, Description, Ids, Name
from identity_common.wire.events import HolderKind, RoleType

ROLE_TYPE_OF: Final[dict[HolderKind, RoleType]] = {"user": "User", "application": "MachineToMachine"}
"""The type of role that each kind of holder may have."""


class RoleCreation(Body):
    """A new API role.

    Attributes:
        name: Unique name.
        description: Description.
        type: Whether users or machine-to-machine applications hold the role, users by default; it never changes.
        is_default: Every new user gets the role; only for the type ``User``.
        scope_ids: The scopes that it grants.
    """

    name: Name
    description: Description
    type: RoleType = "User"
    is_default: bool = False
    scope_ids: Ids = ()


class RoleUpdate(Body):
    """Changes of a role; the type never changes. Null restores the default of ``isDefault``.

    Attributes:
        name: Unique name.
        description: Description.
        is_default: Whether every new user gets the role; only for the type ``User``.
    """

    name: Name | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    is_default: bool | UnsetType | None = UNSET


class RoleIds(Body):
    """Roles of a user or application.

    Attributes:
        role_ids: Ids of API roles.
    """

    role_ids: Ids


class ScopeIds(Body):
    """Scopes of a role.

    Attributes:
        scope_ids: Ids of scopes of API resources.
    """

    scope_ids: Ids


class UserIds(Body):
    """Users that hold a role.

    Attributes:
        user_ids: Ids of users.
    """

    user_ids: Ids


class ApplicationIds(Body):
    """Machine-to-machine applications that hold a role.

    Attributes:
        application_ids: Ids of machine-to-machine applications.
    """

    application_ids: Ids


class AssignedRoles(Body):
    """Roles that a request assigns to a user or application, without duplicates.

    Attributes:
        role_ids: The requested ids of API roles.
        added_role_ids: Those that the user or application did not have before.
    """

    role_ids: Ids
    added_role_ids: Ids


class AddedScopes(Body):
    """Scopes to add to a role.

    Attributes:
        scope_ids: Ids of scopes of API resources.
    """

    scope_ids: AddedIds


class AddedUsers(Body):
    """Users to assign a role to; without duplicates in the response.

    Attributes:
        user_ids: Ids of users.
    """

    user_ids: AddedIds


class AddedApplications(Body):
    """Machine-to-machine applications to assign a role to; without duplicates in the response.

    Attributes:
        application_ids: Ids of machine-to-machine applications.
    """

    application_ids: AddedIds


def may_be_default(role_type: RoleType) -> bool:
    """Return whether new holders may get a role of this type by default; applications get their roles explicitly."""
    return role_type == "User"
