"""What a role may be, and who may hold it."""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Description, Name
from identity_common.wire.events import HolderKind, RoleType

Id = Annotated[str, msgspec.Meta(max_length=256)]
Ids = tuple[Id, ...]

ROLE_TYPE_OF: Final[dict[HolderKind, RoleType]] = {"user": "User", "application": "MachineToMachine"}
"""The type of the roles that each kind of holder may have."""


class RoleCreation(Body):
    """A new API role.

    Attributes:
        is_default: Every user that is created from now on gets it; only for the type ``User``.
        scope_ids: Scopes that it grants.
    """

    name: Name
    description: Description
    type: RoleType
    is_default: bool = False
    scope_ids: Ids = ()


class RoleUpdate(Body):
    """What shall change; the type never does. Null for ``isDefault`` is its default."""

    name: Name | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    is_default: bool | UnsetType | None = UNSET


class RoleIds(Body):
    """Roles of a user or application."""

    role_ids: Ids


class ScopeIds(Body):
    """Scopes of a role."""

    scope_ids: Ids


class UserIds(Body):
    """Users that hold a role."""

    user_ids: Ids


class ApplicationIds(Body):
    """Machine-to-machine applications that hold a role."""

    application_ids: Ids


def may_be_default(role_type: RoleType) -> bool:
    """Whether a role of this type can be given to whoever is created: rights of programs are given one by one."""
    return role_type == "User"
