"""The last known version and permissions of members, with equal sets interned."""

from __future__ import annotations

from typing import Final, NamedTuple

from stead.event_types import GrantedPermission

_MAX_SETS: Final = 10_000


class MemberSnapshot(NamedTuple):
    """The last known permissions of a member.

    Attributes:
        version: Per member; 0 if read from the Management API with no event since.
        permissions: Sorted; None if the event did not carry them.
        incomplete: Only the organization permissions are known.
    """

    version: int
    permissions: tuple[GrantedPermission, ...] | None
    incomplete: bool = False


class MemberSnapshots:
    """The snapshots of all members. Many members share few distinct sets of permissions, so sets are interned."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], MemberSnapshot] = {}
        self._sets: dict[tuple[GrantedPermission, ...], tuple[GrantedPermission, ...]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, organization_id: str, member_id: str) -> MemberSnapshot | None:
        """Return the snapshot of a member; None if unknown."""
        return self._known.get((organization_id, member_id))

    def put(self, organization_id: str, member_id: str, known: MemberSnapshot) -> None:
        """Store the snapshot of a member."""
        if known.permissions is not None:
            if len(self._sets) >= _MAX_SETS:
                self._sets.clear()
            known = known._replace(permissions=self._sets.setdefault(known.permissions, known.permissions))
        self._known[organization_id, member_id] = known
