"""Which records of the feed follow from a revocation, and from the new state of an aggregate. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from identity_common.wire.events import ApplicationState, NarrowingState, ResourceState, UserState
from identity_common.wire.revocations import cutoff_id, retired_key_id
from stead.event_types import MemberPermissionsState, MemberState, OrganizationState
from stead.not_valid.entries import ALWAYS, Narrowed, NotValid, entry_of, narrowed_entries

LEEWAY_S: Final = 900
"""The largest leeway of a verifier, and for how long a token may be issued from what was known before."""

_KEY_PREFIX: Final = retired_key_id("")
_CUTOFF_PREFIX: Final = cutoff_id("")


class Change(NamedTuple):
    """What an event means for the feed.

    Attributes:
        entry: See ``stead.not_valid.entries``.
        not_before: Seconds since the epoch, or ``ALWAYS``; of lost permissions a part of a revision.
        only_if_known: Whether this replaces an earlier record only: what is valid again needs none otherwise.
    """

    entry: bytes
    not_before: int
    only_if_known: bool = False

    def until(self, forget_at: int) -> NotValid:
        """Return the record."""
        return NotValid(self.entry, self.not_before, forget_at)


def of_revocation(revoked_id: str, expires_at_ms: int, begun_until_ms: int | None) -> list[NotValid]:
    """Return the records of a revoked token or authorization, a retired signing key, or the ends of a party."""
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
    """Return what the new state of an aggregate means.

    Args:
        kind: Of the aggregate: ``user``, ``application``, ``resource``, ``narrowing``, ``organization``, ``member`` or
            ``member-permissions``.
        data: Its state.
        changed_at_s: When it changed, in whole seconds, rounded down as ``iat`` is: what is valid again is so for
            tokens that were issued from this second on, unless the state itself says since when.
        revision: Of the event.
    """
    match kind:
        case "user":
            return _of_user(msgspec.json.decode(data, type=UserState))
        case "application":
            return _of_application(msgspec.json.decode(data, type=ApplicationState), changed_at_s)
        case "resource":
            resource = msgspec.json.decode(data, type=ResourceState)
            since_s = resource.tokens_valid_after // 1000 or changed_at_s
            entry = entry_of("resource", resource.indicator)
            return [_gone(entry, resource.deleted, since_s)] if resource.indicator else []
        case "organization":
            organization = msgspec.json.decode(data, type=OrganizationState)
            return [_gone(entry_of("organization", organization.id), organization.deleted, changed_at_s)]
        case "member":
            member = msgspec.json.decode(data, type=MemberState)
            since_s = member.joined_at // 1000 or changed_at_s
            return [_gone(entry_of("member", member.organization_id, member.member_id), member.deleted, since_s)]
        case "narrowing":
            narrowing = msgspec.json.decode(data, type=NarrowingState)
            if narrowing.kind == "scope":
                return _narrowed("scope", narrowing.indicator, narrowing.name, revision=revision)
            return _narrowed("holder", narrowing.id, revision=revision)
        case "member-permissions":
            permissions = msgspec.json.decode(data, type=MemberPermissionsState)
            if permissions.removed or permissions.incomplete:
                ids = (permissions.organization_id, permissions.member_id)
                return _narrowed("member-permissions", *ids, revision=revision)
    return []


def _narrowed(kind: Narrowed, *ids: str, revision: int) -> list[Change]:
    return [Change(entry, number) for entry, number in narrowed_entries(kind, *ids, revision=revision).items()]


def _of_user(user: UserState) -> list[Change]:
    entry = entry_of("user", user.id)
    if user.deleted or user.is_suspended:
        return [Change(entry, ALWAYS)]
    # ``iat`` has whole seconds and is rounded up to tokensValidAfter
    return [Change(entry, -(-user.tokens_valid_after // 1000))] if user.tokens_valid_after else []


def _of_application(application: ApplicationState, changed_at_s: int) -> list[Change]:
    switched_off = application.deleted or not application.allow_token_exchange
    exchanging_since_s = application.exchanged_valid_after // 1000 or changed_at_s
    return [
        _gone(entry_of("client", application.id), application.deleted, changed_at_s),
        _gone(entry_of("exchange", application.id), switched_off, exchanging_since_s),
    ]


def _gone(entry: bytes, is_gone: bool, since_s: int) -> Change:
    return Change(entry, ALWAYS) if is_gone else Change(entry, since_s, only_if_known=True)


def latest(records: Iterable[NotValid]) -> dict[bytes, NotValid]:
    """Return the last record of each entry."""
    return {record.entry: record for record in records}
