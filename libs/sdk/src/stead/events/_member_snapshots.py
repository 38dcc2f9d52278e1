"""What is known of members: version and permissions, equal sets held once."""

from __future__ import annotations

from typing import Final, NamedTuple

from stead.event_types import GrantedPermission

_MOST_SETS: Final = 10_000


class MemberSnapshot(NamedTuple):
    """What a member held when it was last heard of.

    Attributes:
        version: The member's own; 0 where it was read from the Management API and no event has come since.
        permissions: Sorted; none when the event did not carry them.
        incomplete: Only the organization permissions are known.
    """

    version: int
    permissions: tuple[GrantedPermission, ...] | None
    incomplete: bool = False


class MemberSnapshots:
    """What is known of each member. Few sets of permissions are held by many, so each is kept once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], MemberSnapshot] = {}
        self._sets: dict[tuple[GrantedPermission, ...], tuple[GrantedPermission, ...]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, organization_id: str, member_id: str) -> MemberSnapshot | None:
        """Return what is known of a member; none if nothing is."""
        return self._known.get((organization_id, member_id))

    def put(self, organization_id: str, member_id: str, known: MemberSnapshot) -> None:
        """Take note of what a member holds now."""
        if known.permissions is not None:
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            known = known._replace(permissions=self._sets.setdefault(known.permissions, known.permissions))
        self._known[organization_id, member_id] = known
