"""Which records of the feed follow from a revocation, and from the new state of an aggregate. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from identity_common.wire.events import ApplicationState, NarrowingState, ResourceState, UserState
from identity_common.wire.revocations import cutoff_id, retired_key_id
from stead.event_types import MemberPermissionsState, MemberState, OrganizationState
from stead.verify.feed.entries import (
    ALWAYS,
    MAX_LEEWAY_S,
    Narrowed,
    NotValid,
    entry_of,
    narrowed_entries,
    user_entries,
)

LEEWAY_S: Final = MAX_LEEWAY_S
"""Seconds: a verifier's maximum leeway, and for how long a token may still be issued from outdated state."""

_KEY_PREFIX: Final = retired_key_id("")
_CUTOFF_PREFIX: Final = cutoff_id("")


class Change(NamedTuple):
    """The meaning of an event for the feed.

    Attributes:
        entry: See ``stead.verify.feed.entries``.
        not_before: Seconds since the epoch, or ``ALWAYS``; of lost permissions a part of a revision.
        since_s: Seconds since the epoch: it concerns tokens that were issued before, or a moment after.
        only_if_known: Whether this only replaces an earlier record; what never ended needs no record.
    """

    entry: bytes
    not_before: int
    since_s: int
    only_if_known: bool = False

    def until(self, forget_at: int) -> NotValid:
        """Return the record, to be deleted at ``forget_at``."""
        return NotValid(self.entry, self.not_before, forget_at)


def of_revocation(revoked_id: str, expires_at_ms: int, begun_until_ms: int | None) -> list[NotValid]:
    """Return the records of a revoked token or authorization, a retired key, or a party's ended impersonations."""
    forget_at = -(-expires_at_ms // 1000) + LEEWAY_S
    if begun_until_ms is not None:
        party = revoked_id.removeprefix(_CUTOFF_PREFIX)
        ended = narrowed_entries("impersonations", party, revision=begun_until_ms + 1)
        return [NotValid(entry, number, forget_at) for entry, number in ended.items()]
    if revoked_id.startswith(_KEY_PREFIX):
        entry = entry_of("key", revoked_id.removeprefix(_KEY_PREFIX))
    else:
        entry = entry_of("token", revoked_id)
    return [NotValid(entry, ALWAYS, forget_at)]


def of_event(kind: str, data: msgspec.Raw, *, changed_at_s: int, revision: int = 0) -> list[Change]:
    """Return the changes that the new state of an aggregate implies.

    Args:
        kind: The kind of aggregate: ``user``, ``application``, ``resource``, ``narrowing``, ``organization``,
            ``member`` or
            ``member-permissions``.
        data: Its state.
        changed_at_s: When it changed, in whole seconds, rounded down as ``iat`` is: what is valid again is so for
            tokens that were issued from this second on, unless the state itself says since when.
        revision: Of the event.
    """
    match kind:
        case "user":
            return _of_user(msgspec.json.decode(data, type=UserState), changed_at_s)
        case "application":
            return _of_application(msgspec.json.decode(data, type=ApplicationState), changed_at_s)
        case "resource":
            resource = msgspec.json.decode(data, type=ResourceState)
            entry, valid_after_s = entry_of("resource", resource.indicator), resource.tokens_valid_after // 1000
            return [_ended(entry, resource.deleted, valid_after_s, changed_at_s)] if resource.indicator else []
        case "organization":
            organization = msgspec.json.decode(data, type=OrganizationState)
            return [_ended(entry_of("organization", organization.id), organization.deleted, 0, changed_at_s)]
        case "member":
            return [_of_member(msgspec.json.decode(data, type=MemberState), changed_at_s)]
        case "narrowing":
            narrowing = msgspec.json.decode(data, type=NarrowingState)
            if narrowing.kind == "scope":
                ids: tuple[str, ...] = (narrowing.indicator, narrowing.name)
                return _narrowed("scope", *ids, revision=revision, changed_at_s=changed_at_s)
            return _narrowed("holder", narrowing.id, revision=revision, changed_at_s=changed_at_s)
        case "member-permissions":
            permissions = msgspec.json.decode(data, type=MemberPermissionsState)
            if permissions.removed or permissions.incomplete:
                ids = (permissions.organization_id, permissions.member_id)
                return _narrowed("member-permissions", *ids, revision=revision, changed_at_s=changed_at_s)
    return []


def _narrowed(kind: Narrowed, *ids: str, revision: int, changed_at_s: int) -> list[Change]:
    entries = narrowed_entries(kind, *ids, revision=revision)
    return [Change(entry, number, changed_at_s) for entry, number in entries.items()]


def _of_user(user: UserState, changed_at_s: int) -> list[Change]:
    if user.deleted or user.is_suspended:
        return [Change(entry_of("user", user.id), ALWAYS, changed_at_s)]
    if not user.tokens_valid_after:
        return []
    since_s = -(-user.tokens_valid_after // 1000)
    entries = user_entries(user.id, user.tokens_valid_after)
    return [Change(entry, number, since_s) for entry, number in entries.items()]


def _of_application(application: ApplicationState, changed_at_s: int) -> list[Change]:
    switched_off = application.deleted or not application.allow_token_exchange
    exchanging_since_s = application.exchanged_valid_after // 1000
    return [
        _ended(entry_of("client", application.id), application.deleted, 0, changed_at_s),
        _ended(entry_of("exchange", application.id), switched_off, exchanging_since_s, changed_at_s),
    ]


def _of_member(member: MemberState, changed_at_s: int) -> Change:
    entry, joined_s = entry_of("member", member.organization_id, member.member_id), member.joined_at // 1000
    if member.deleted or member.rejoined:
        return _ended(entry, member.deleted, joined_s, changed_at_s)
    return Change(entry, joined_s or changed_at_s, changed_at_s, only_if_known=True)


def _ended(entry: bytes, is_ended: bool, valid_after_s: int, changed_at_s: int) -> Change:
    """Return the change of what has ended, or ended before ``valid_after_s``; 0 if it never did or that is unknown.

    The state keeps the newest event only, so the return may be all that is seen: it ends what was issued before as
    well. Long after the return there is nothing left to end, whatever else has changed now.
    """
    if is_ended:
        return Change(entry, ALWAYS, changed_at_s)
    if valid_after_s:
        return Change(entry, valid_after_s, valid_after_s)
    return Change(entry, changed_at_s, changed_at_s, only_if_known=True)


def latest(records: Iterable[NotValid]) -> dict[bytes, NotValid]:
    """Return the last record of each entry."""
    return {record.entry: record for record in records}
