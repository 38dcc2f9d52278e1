"""What the bus is told of a member's permissions: pure functions over what is held and what was last published."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from stead.event_types import (
    GrantedPermission,
    MemberPermissionsState,
    MemberType,
    PermissionCause,
    permission_order,
)

NOTHING: Final = "[]"
"""The permissions of whoever holds none, as they are stored."""

# A message stays under 512 KiB; beside the lists it holds ids and a version.
_LISTS_BYTES: Final = 496 * 1024

_decode = msgspec.json.Decoder(tuple[GrantedPermission, ...]).decode


class Difference(NamedTuple):
    """What has changed of a set of permissions; each list is sorted.

    Attributes:
        text: What is held now, as it is stored.
        fits: Whether the three lists have room in one message.
    """

    added: tuple[GrantedPermission, ...]
    removed: tuple[GrantedPermission, ...]
    permissions: tuple[GrantedPermission, ...]
    text: str
    fits: bool


def encode_permissions(permissions: Iterable[GrantedPermission]) -> str:
    """Return a set of permissions as it is stored: equal sets are equal texts."""
    return msgspec.json.encode(sorted(set(permissions), key=permission_order)).decode()


def difference(before: str, now: str) -> Difference | None:
    """Return what has changed between two sets as they are stored; none if nothing has."""
    if before == now:
        return None
    old, new = _decode(before), _decode(now)
    added = tuple(sorted(set(new).difference(old), key=permission_order))
    removed = tuple(sorted(set(old).difference(new), key=permission_order))
    return Difference(added, removed, new, now, _fit(added, removed, new))


def unchanged(text: str) -> Difference:
    """Return that a set as it is stored has not changed, for saying again what is held."""
    permissions = _decode(text)
    return Difference((), (), permissions, text, _fit(permissions))


def _fit(*lists: tuple[GrantedPermission, ...]) -> bool:
    return sum(len(msgspec.json.encode(permissions)) for permissions in lists) <= _LISTS_BYTES


def permissions_state(
    organization_id: str,
    member_id: str,
    member_type: MemberType,
    version: int,
    cause: PermissionCause,
    change: Difference,
) -> MemberPermissionsState:
    """Return what is said of a member; lists that do not fit into a message are left out, and that is said."""
    return MemberPermissionsState(
        organization_id=organization_id,
        member_id=member_id,
        member_type=member_type,
        version=version,
        cause=cause,
        added=change.added if change.fits else (),
        removed=change.removed if change.fits else (),
        permissions=change.permissions if change.fits else (),
        incomplete=not change.fits,
    )
