"""An impersonation as one story, told from its entries in the audit trail and the ends that cover it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from identity_common.wire.audit import AuditContext, AuditEntry
from identity_common.wire.impersonations import ImpersonationEnd
from identity_common.wire.revocations import cutoff_id
from management_service.impersonations.rules import LONGEST_LIFE_MS
from management_service.party_ends import PartyEnd, client_party, resource_party, user_party
from stead.impersonations import ImpersonationSegments, parties_of

ISSUED: Final = "subject-token.issued"
TAKEN: Final = "token.exchange.taken"
_SUCCEEDED: Final = "token.exchange.succeeded"
_REFUSED: Final = "token.exchange.refused"
_ENDS: Final = frozenset({"EndImpersonation", "EndOwnImpersonation"})
"""Operations that end one impersonation."""


class ImpersonationStory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An impersonation, from the subject token on.

    Attributes:
        id: Public id of the subject token.
        user_id: The subject.
        actor_id: The person that acts for the subject; absent before the exchange, or without an actor token.
        client_id: The application that exchanged the subject token.
        organization_id: The organization that the access token was asked for.
        resource: The resource that the access token was asked for.
        scope: The scopes that were granted, separated by spaces.
        context: Reason and ticket, as the application that asked gave them.
        issued_to: The application that asked for the subject token.
        created_at: Milliseconds since the epoch, UTC.
        exchanged_at: When the subject token was spent, milliseconds since the epoch.
        expires_at: Of the access token, or of the subject token before there is one; milliseconds since the epoch.
        ended_at: When it ended before it expired, milliseconds since the epoch.
        ended_by: The user or, without one, the application that ended this impersonation, or did what ended it.
        reason: Why it ended: ``ended`` (this one was), ``within`` (one that it is within was), ``all``, or the party
            whose impersonations were ended: ``user``, ``actor``, ``client``, ``organization``. Or what happened to one:
            ``user_suspended``, ``user_password`` (was changed), ``user_deleted``, the same of ``actor``,
            ``client_exchange_off`` (was switched off), ``client_deleted``, ``resource_deleted``. Or the error of an
            exchange that was refused after the subject token was spent.
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
    issued_to: str
    created_at: int
    exchanged_at: int | None = None
    expires_at: int
    ended_at: int | None = None
    ended_by: str | None = None
    reason: str | None = None
    events: list[AuditEntry] | None = None

    def is_active(self, now: int) -> bool:
        """Whether it neither ended nor expired by a time in milliseconds."""
        return self.ended_at is None and self.expires_at > now


def ending_ids(entries: Sequence[AuditEntry]) -> dict[str, str]:
    """Return the ids of the ends that would cover an impersonation, and what each says as its reason.

    Of an impersonation within others, cutoffs for the actors before the current one are not known here.
    """
    issued, taken, succeeded = (_find(entries, key) for key in (ISSUED, TAKEN, _SUCCEEDED))
    if issued is None:
        return {}
    within = _segments(succeeded).ids[:-1]
    parties = parties_of(
        user_id=issued.user_id,
        actor_ids=[] if taken is None or taken.actor_id is None else [taken.actor_id],
        ancestors=len(within),
        client_id="" if taken is None else taken.application_id or "",
        organization_id=None if taken is None else taken.organization_id,
    )
    return {
        issued.subject_token_id or "": "ended",
        **dict.fromkeys(within, "within"),
        **{cutoff_id(party): party.partition(":")[0] for party in parties},
    }


def ending_parties(entries: Sequence[AuditEntry]) -> dict[str, tuple[str, int]]:
    """Return the parties of an impersonation; of each its role, and since when what happens to it ends this one.

    The token of an actor, the client and the resource are judged when the subject token is exchanged: what happened to
    them before is over.
    """
    issued, taken, succeeded = (_find(entries, key) for key in (ISSUED, TAKEN, _SUCCEEDED))
    if issued is None:
        return {}
    parties = {user_party(issued.user_id or ""): ("user", issued.occurred_at)}
    exchange = succeeded or taken
    if exchange is not None:
        since = exchange.occurred_at if taken is None else taken.occurred_at
        named = {
            "actor": exchange.actor_id and user_party(exchange.actor_id),
            "client": exchange.application_id and client_party(exchange.application_id),
            "resource": exchange.resource and resource_party(exchange.resource),
        }
        parties |= {party: (role, since) for role, party in named.items() if party}
    return parties


def story(
    entries: Sequence[AuditEntry], ends: Mapping[str, ImpersonationEnd], party_ends: Mapping[str, Sequence[PartyEnd]]
) -> ImpersonationStory | None:
    """Return the story of one impersonation.

    Args:
        entries: All entries about it, oldest first.
        ends: Those of its ``ending_ids`` that exist, by id.
        party_ends: What happened to its ``ending_parties``, oldest first.

    Returns:
        None if the trail does not have its beginning (any more).
    """
    issued, taken, succeeded, refused = (_find(entries, key) for key in (ISSUED, TAKEN, _SUCCEEDED, _REFUSED))
    if issued is None or issued.subject_token_id is None or issued.user_id is None:
        return None
    exchange = succeeded or taken
    expires_at = (succeeded and succeeded.expires_at) or issued.expires_at or issued.occurred_at
    ended_at, reason, ended_by = None, None, None
    if taken is not None and refused is not None:
        ended_at, reason = refused.occurred_at, refused.reason
    else:
        covering = _covering(entries, ends, begun_at=_segments(succeeded).begun_at or issued.occurred_at)
        covering += _after_what_happened(entries, party_ends)
        in_time = (each for each in covering if each[0] < expires_at)
        ended_at, reason, ended_by = min(in_time, key=lambda each: each[:2], default=(None, None, None))
    return ImpersonationStory(
        id=issued.subject_token_id,
        user_id=issued.user_id,
        actor_id=None if exchange is None else exchange.actor_id,
        client_id=None if exchange is None else exchange.application_id,
        organization_id=None if exchange is None else exchange.organization_id,
        resource=None if exchange is None else exchange.resource,
        scope=None if exchange is None else exchange.scope,
        context=issued.context or AuditContext(),
        issued_to=issued.application_id or "",
        created_at=issued.occurred_at,
        exchanged_at=None if taken is None else taken.occurred_at,
        expires_at=expires_at,
        ended_at=ended_at,
        ended_by=ended_by,
        reason=reason,
    )


def _covering(
    entries: Sequence[AuditEntry], ends: Mapping[str, ImpersonationEnd], *, begun_at: int
) -> list[tuple[int, str, str | None]]:
    """Return time, reason and author of each end that covers an impersonation."""
    own = next((entry for entry in entries if entry.operation in _ENDS), None)
    by = None if own is None else own.user_id or own.application_id
    found = [] if own is None else [(own.occurred_at, "ended", by)]
    for end_id, why in ending_ids(entries).items():
        end = ends.get(end_id)
        if end is None:
            continue
        if end.begun_until is None:
            found.append((end.expires_at - LONGEST_LIFE_MS, why, by if why == "ended" else None))
        elif begun_at <= end.begun_until:
            found.append((end.begun_until, why, None))
    return found


def _after_what_happened(
    entries: Sequence[AuditEntry], party_ends: Mapping[str, Sequence[PartyEnd]]
) -> list[tuple[int, str, str | None]]:
    """Return time, reason and author of what happened to a party while the impersonation went on."""
    return [
        (end.ended_at, f"{role}_{end.cause}", end.ended_by)
        for party, (role, since) in ending_parties(entries).items()
        for end in party_ends.get(party, ())
        if since <= end.ended_at
    ]


def _find(entries: Sequence[AuditEntry], key: str) -> AuditEntry | None:
    return next((entry for entry in entries if entry.key == key), None)


def _segments(succeeded: AuditEntry | None) -> ImpersonationSegments:
    return ImpersonationSegments.parse((succeeded and succeeded.issued_token_id) or "")
