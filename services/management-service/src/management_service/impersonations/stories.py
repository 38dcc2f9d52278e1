"""Reconstructs an impersonation from its entries in the audit trail and the ends that cover it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from identity_common.wire.audit import BEGINNINGS, ISSUED, SUCCEEDED, TAKEN, AuditContext, AuditEntry
from management_service.impersonations.memberships import Membership
from management_service.party_ends import (
    ENDED,
    PartyEnd,
    client_party,
    impersonation_party,
    resource_party,
    user_party,
)
from stead.verify.impersonations import ImpersonationSegments, parties_of

_REFUSED: Final = "token.exchange.refused"
_ENDS: Final = frozenset({"EndImpersonation", "EndOwnImpersonation", "EndOwnAccountImpersonation"})
"""Operations that end one impersonation."""


class ImpersonationStory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An impersonation, from the subject token on.

    Attributes:
        id: Public id of the subject token.
        user_id: The subject.
        actor_id: The user who acts for the subject; absent before the exchange, or without an actor token.
        client_id: The application that exchanged the subject token.
        organization_id: The organization that the access token was requested for.
        resource: The resource that the access token was requested for.
        scope: The scopes that were granted, separated by spaces.
        context: Reason and ticket, as given by the requesting application.
        issued_to: The application that requested the subject token; absent if that entry was lost.
        requested_by: The user for whom that application requested it; absent if the application used its own access
            token.
        created_at: Milliseconds since the epoch, UTC.
        exchanged_at: When the subject token was spent, milliseconds since the epoch.
        expires_at: Expiry of the access token, or of the subject token before the exchange; milliseconds since the
            epoch. While the outcome of the exchange is unknown, the latest possible expiry.
        ended_at: When it was ended before its expiry, milliseconds since the epoch.
        ended_by: The user or else the application whose request ended this impersonation.
        reason: Why it ended: ``ended`` (this one was), ``within`` (one that it is within was), ``all``, or the party
            whose impersonations were ended: ``user``, ``actor``, ``client``, ``organization``. Or what happened to one:
            ``user_suspended``, ``user_password`` (was changed), ``user_factors`` (were reset), ``user_deleted``, the
            same of ``actor``, ``client_exchange_off`` (was switched off), ``client_deleted``, ``resource_deleted``,
            ``organization_deleted``, ``member_removed``. Or the error of an exchange that was refused after the subject
            token was spent.
        end_reason: Why, in the words of the request that ended it by its id; absent in lists, and if it gave none.
        events: Its entries in the audit trail, oldest first; absent in lists.
    """

    id: str
    user_id: str
    actor_id: str | None = None
    client_id: str | None = None
    organization_id: str | None = None
    resource: str | None = None
    scope: str | None = None
    context: AuditContext
    issued_to: str = ""
    requested_by: str | None = None
    created_at: int
    exchanged_at: int | None = None
    expires_at: int
    ended_at: int | None = None
    ended_by: str | None = None
    reason: str | None = None
    end_reason: str | None = None
    events: list[AuditEntry] | None = None

    def is_active(self, now: int) -> bool:
        """Return whether it has neither ended nor expired at a time in milliseconds."""
        return self.ended_at is None and self.expires_at > now


class Trace(msgspec.Struct, frozen=True):
    """The audit trail's entries about an impersonation.

    Attributes:
        entries: All entries about it, oldest first.
        outer: The entries about each impersonation that it is within, the innermost first.
        lifetime_ms: How long its access token may be valid at most, for an exchange whose outcome is unknown.
    """

    entries: Sequence[AuditEntry]
    outer: Sequence[Sequence[AuditEntry]] = ()
    lifetime_ms: int = 0

    def find(self, key: str) -> AuditEntry | None:
        """Return the first entry about the impersonation itself with this key."""
        return _find(self.entries, key)

    @property
    def beginning(self) -> AuditEntry | None:
        """The first of ``BEGINNINGS`` that the trail has; None unless one names the subject token and the subject."""
        found = (self.find(key) for key in BEGINNINGS)
        return next((each for each in found if each is not None and each.subject_token_id and each.user_id), None)

    @property
    def begun_at(self) -> int:
        """When the outermost impersonation began, milliseconds since the epoch."""
        return _segments(self.exchange).begun_at or (self.beginning or self.entries[0]).occurred_at

    @property
    def exchange(self) -> AuditEntry | None:
        """The entry about the exchange: its success, or else that the subject token was taken; None before."""
        return self.find(SUCCEEDED) or self.find(TAKEN)

    @property
    def expires_at(self) -> int:
        """When the access token expires, or may expire at the latest; milliseconds since the epoch.

        Until the subject token is taken, its own expiry.
        """
        issued, taken, succeeded = (self.find(key) for key in BEGINNINGS)
        if succeeded is not None and succeeded.expires_at is not None:
            return succeeded.expires_at
        if taken is not None:
            return taken.occurred_at + self.lifetime_ms
        return (issued and issued.expires_at) or self.entries[0].occurred_at

    @property
    def ends(self) -> list[AuditEntry]:
        """The entries of requests that ended it by its id."""
        return [entry for entry in self.entries if entry.operation in _ENDS]

    @property
    def end_reason(self) -> str | None:
        """Why it was ended by its id, in the words of the first request that did."""
        given = next((entry.context for entry in self.ends), None)
        return None if given is None else given.reason

    @property
    def actor_ids(self) -> list[str]:
        """The actors, the current one first."""
        exchanges = [Trace(each).exchange for each in (self.entries, *self.outer)]
        return [each.actor_id for each in exchanges if each is not None and each.actor_id is not None]

    @property
    def membership(self) -> Membership | None:
        """The member that the access token is for; None before the exchange, and without an organization."""
        exchange, beginning = self.exchange, self.beginning
        if exchange is None or exchange.organization_id is None or beginning is None or beginning.user_id is None:
            return None
        return Membership(exchange.organization_id, beginning.user_id)


def outer_ids(entries: Sequence[AuditEntry]) -> tuple[str, ...]:
    """Return the ids of the impersonations that one is within, the innermost first."""
    return _segments(Trace(entries).exchange).ids[-2::-1]


def ended_parties(trace: Trace) -> dict[str, str]:
    """Return the parties whose requested end covers an impersonation, with the reason that each gives."""
    beginning, exchange = trace.beginning, trace.exchange
    if beginning is None:
        return {}
    within = outer_ids(trace.entries)
    parties = parties_of(
        user_id=beginning.user_id,
        actor_ids=trace.actor_ids,
        ancestors=len(within),
        client_id="" if exchange is None else exchange.application_id or "",
        organization_id=None if exchange is None else exchange.organization_id,
    )
    return {
        impersonation_party(beginning.subject_token_id or ""): "ended",
        **{impersonation_party(each): "within" for each in within},
        **{party: party.partition(":")[0] for party in parties},
    }


def ending_parties(trace: Trace) -> dict[str, tuple[str, int]]:
    """Return the parties whose changes end an impersonation, with the role of each, and since when its changes count.

    All but the subject are checked at the exchange, so their earlier changes do not count.
    """
    beginning, exchange = trace.beginning, trace.exchange
    if beginning is None:
        return {}
    parties = {user_party(beginning.user_id or ""): ("user", beginning.occurred_at)}
    if exchange is not None:
        since = (trace.find(TAKEN) or exchange).occurred_at
        membership = trace.membership
        named = [
            *((user_party(actor_id), "actor") for actor_id in trace.actor_ids),
            *((client_party(each), "client") for each in (exchange.application_id,) if each),
            *((resource_party(each), "resource") for each in (exchange.resource,) if each),
            *(() if membership is None else ((membership.organization, "organization"), (membership.member, "member"))),
        ]
        parties |= {party: (role, since) for party, role in named}
    return parties


def story(trace: Trace, party_ends: Mapping[str, Sequence[PartyEnd]]) -> ImpersonationStory | None:
    """Return the story of one impersonation.

    Args:
        trace: Its entries.
        party_ends: The ends of its ``ended_parties`` and ``ending_parties``, oldest first.

    Returns:
        None if the trail has none of ``BEGINNINGS`` (any more).
    """
    issued, taken, refused = (trace.find(key) for key in (ISSUED, TAKEN, _REFUSED))
    beginning, exchange = trace.beginning, trace.exchange
    if beginning is None or beginning.subject_token_id is None or beginning.user_id is None:
        return None
    ended_at, reason, ended_by = None, None, None
    if taken is not None and refused is not None:
        ended_at, reason = refused.occurred_at, refused.reason
    else:
        covering = _covering(trace, party_ends)
        covering += _party_changes(trace, party_ends)
        in_time = (each for each in covering if each[0] < trace.expires_at)
        ended_at, reason, ended_by = min(in_time, key=lambda each: each[:2], default=(None, None, None))
    return ImpersonationStory(
        id=beginning.subject_token_id,
        user_id=beginning.user_id,
        actor_id=None if exchange is None else exchange.actor_id,
        client_id=None if exchange is None else exchange.application_id,
        organization_id=None if exchange is None else exchange.organization_id,
        resource=None if exchange is None else exchange.resource,
        scope=None if exchange is None else exchange.scope,
        context=AuditContext() if issued is None or issued.context is None else issued.context,
        issued_to="" if issued is None else issued.application_id or "",
        requested_by=None if issued is None else issued.requested_by,
        created_at=beginning.occurred_at,
        exchanged_at=None if exchange is None else (taken or exchange).occurred_at,
        expires_at=trace.expires_at,
        ended_at=ended_at,
        ended_by=ended_by,
        reason=reason,
    )


def _covering(trace: Trace, party_ends: Mapping[str, Sequence[PartyEnd]]) -> list[tuple[int, str, str | None]]:
    """Return time, reason and author of each requested end that covers an impersonation."""
    own = [(entry.occurred_at, "ended", entry.user_id or entry.application_id) for entry in trace.ends]
    return own + [
        (end.ended_at, reason, end.ended_by)
        for party, reason in ended_parties(trace).items()
        for end in party_ends.get(party, ())
        if end.cause == ENDED and trace.begun_at <= end.ended_at
    ]


def _party_changes(trace: Trace, party_ends: Mapping[str, Sequence[PartyEnd]]) -> list[tuple[int, str, str | None]]:
    """Return time, reason and author of each change of a party that ends an impersonation."""
    return [
        (end.ended_at, f"{role}_{end.cause}", end.ended_by)
        for party, (role, since) in ending_parties(trace).items()
        for end in party_ends.get(party, ())
        if end.cause != ENDED and since <= end.ended_at
    ]


def _find(entries: Sequence[AuditEntry], key: str) -> AuditEntry | None:
    return next((entry for entry in entries if entry.key == key), None)


def _segments(exchange: AuditEntry | None) -> ImpersonationSegments:
    return ImpersonationSegments.parse((exchange and exchange.issued_token_id) or "")
