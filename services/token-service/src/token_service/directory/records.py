"""Decoding of the directory's records in Redis. Pure.

A record is the revision that wrote it, a space, and the state as JSON; a tombstone has no state.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from identity_common.clock import whole_second
from identity_common.wire.events import AssignmentState, UserState
from stead.event_types import MemberState, OrganizationState

_decode_user: Final = msgspec.json.Decoder(UserState).decode
_decode_roles: Final = msgspec.json.Decoder(AssignmentState).decode
_decode_organization: Final = msgspec.json.Decoder(OrganizationState).decode
_decode_member: Final = msgspec.json.Decoder(MemberState).decode


class Person(msgspec.Struct, frozen=True):
    """A user with the ids of their API roles."""

    user: UserState
    role_ids: tuple[str, ...]


class Membership(msgspec.Struct, frozen=True):
    """A member and its organization; ``member.role_ids`` are organization roles."""

    organization: OrganizationState
    member: MemberState

    @property
    def tokens_valid_after(self) -> int:
        """The time from which the member's tokens for the organization are valid, milliseconds.

        Rounded down to the second in which it joined.
        """
        return whole_second(self.member.joined_at)


def is_tombstone(record: bytes | None) -> bool:
    """Return whether this is the record of something that was deleted."""
    return record is not None and not _state(record)


def person(user: bytes | None, roles: bytes | None) -> Person | None:
    """Return the user; None if there is no such user."""
    user_state = _state(user)
    if not user_state:
        return None
    roles_state = _state(roles)
    return Person(_decode_user(user_state), _decode_roles(roles_state).role_ids if roles_state else ())


def membership(organization: bytes | None, member: bytes | None) -> Membership | None:
    """Return the membership; None also if the organization was deleted, which its member records may outlive."""
    organization_state, member_state = _state(organization), _state(member)
    if not organization_state or not member_state:
        return None
    return Membership(_decode_organization(organization_state), _decode_member(member_state))


def memberships(records: Sequence[bytes | None]) -> list[Membership]:
    """Return the memberships in organization and member records in turn, sorted by the name of the organization."""
    pairs = zip(records[::2], records[1::2], strict=True)
    found = [each for pair in pairs if (each := membership(*pair)) is not None]
    return sorted(found, key=lambda each: (each.organization.name, each.organization.id))


def _state(record: bytes | None) -> bytes:
    return record.partition(b" ")[2] if record else b""
