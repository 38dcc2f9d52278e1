"""The events of members' permissions, computed from the present and the last published ones. No I/O."""

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
"""No permissions, as stored."""

# A message stays under 512 KiB; besides the lists it carries ids and a version.
_LISTS_BYTES: Final = 496 * 1024

_decode = msgspec.json.Decoder(tuple[GrantedPermission, ...]).decode


class Difference(NamedTuple):
    """The difference between two sets of permissions; each list is sorted.

    Attributes:
        text: The present set, as stored.
        fits: Whether the three lists fit into one message.
    """

    added: tuple[GrantedPermission, ...]
    removed: tuple[GrantedPermission, ...]
    permissions: tuple[GrantedPermission, ...]
    text: str
    fits: bool


def encode_permissions(permissions: Iterable[GrantedPermission]) -> str:
    """Return a set of permissions as stored: equal sets have equal texts."""
    return msgspec.json.encode(sorted(set(permissions), key=permission_order)).decode()


def difference(before: str, now: str) -> Difference | None:
    """Return the difference between two stored sets; None if they are equal."""
    if before == now:
        return None
    old, new = _decode(before), _decode(now)
    added = tuple(sorted(set(new).difference(old), key=permission_order))
    removed = tuple(sorted(set(old).difference(new), key=permission_order))
    return Difference(added, removed, new, now, _fit(added, removed, new))


def unchanged(text: str) -> Difference:
    """Return an empty difference for a stored set, to publish it again."""
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
    """Return the event data of a member; lists that do not fit are left out, and ``incomplete`` is set."""
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
