"""The subject token of an exchange: one method takes it, and reads and validates its subject.

Every refusal is the same ``NotAcceptable``; the audit trail and the log have the reason.
"""

from collections.abc import Mapping, Sequence

import msgspec

from identity_common.projection.freshness import highest
from identity_common.telemetry.logs import get_logger
from identity_common.wire.subject_tokens import SubjectTokenRecord
from stead.verify.acr import satisfies
from stead.verify.impersonations import actors_of, parties_of
from token_service.audit import AuditedTokenRequest
from token_service.directory import Directory, Membership, Person, SubjectSnapshot
from token_service.presented_tokens.actor_tokens import ActingParty, NotAcceptable
from token_service.presented_tokens.liveness import why_user_not_live
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_taker import SubjectTokenTaker, UnspentSubjectToken

_log = get_logger(__name__)


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an exchange before its subject token is taken.

    Attributes:
        client_id: The application that exchanges the token.
        organization_id: The target's organization, if it has one.
        actor: The actor, if an actor token was presented.
        awaited: Revisions that the subject's record must include.
        checked: Management's revision that these facts include: a newer subject token is not taken.
        audited: Facts about the request for the audit trail.
    """

    client_id: str
    organization_id: str | None
    actor: ActingParty | None
    awaited: Mapping[str, int]
    checked: int
    audited: AuditedTokenRequest


class LiveSubject(msgspec.Struct, frozen=True):
    """The subject of a subject token, found live at one moment.

    Attributes:
        membership: The membership in the target's organization; None without an organization or membership.
        memberships: The memberships in all organizations; None if not read.
    """

    person: Person
    membership: Membership | None
    memberships: Sequence[Membership] | None


class TakenSubjectToken(msgspec.Struct, frozen=True):
    """A subject token that is spent.

    Attributes:
        record: As management-service wrote it.
        token_id: ``jti`` of the access token to be issued for it, as the attempt has it in the audit trail.
        at_least: Revisions that the subject's records must include: that of the minting, and those the request awaits.
        subject: The subject at the time of the take, or later.
    """

    record: SubjectTokenRecord
    token_id: str
    at_least: Mapping[str, int]
    subject: LiveSubject


class SubjectTokens:
    """Takes subject tokens and validates their subjects."""

    def __init__(self, taker: SubjectTokenTaker, directory: Directory, revocations: Revocations) -> None:
        self._taker = taker
        self._directory = directory
        self._revocations = revocations

    async def take(
        self, subject_token: str, exchange: Exchange, *, most_memberships: int = 0
    ) -> TakenSubjectToken | UnspentSubjectToken:
        """Take a subject token, and read and validate its subject, in one round trip to Redis.

        A token is returned unspent if the checks of the exchange, or the records of the subject, are older than it, or
        if its revocations cannot be read.

        Args:
            subject_token: As presented.
            exchange: The exchange that takes it.
            most_memberships: Up to how many memberships of the subject to read too; none are read if there are more,
                or with 0.

        Raises:
            NotAcceptable: The token is unknown, expired, spent or ended, or its subject not live or the actor.
            SecondFactorRequired: The organization requires one, and the actor has not used any; nothing is spent.
            StoreUnavailable: The token may or may not be spent.
        """
        actor, organization_id = exchange.actor, exchange.organization_id
        spent = await self._taker.take(
            subject_token,
            organization_id,
            required=self._directory.requirement(organization_id, at_least=exchange.awaited, checked=exchange.checked),
            parties=_parties(exchange),
            within=actor.within if actor else None,
            most_memberships=most_memberships,
            has_second_factor=actor is not None and satisfies(actor.level, "mfa"),
            request=exchange.audited,
        )
        if isinstance(spent, UnspentSubjectToken):
            return spent
        if spent is None:
            raise NotAcceptable
        if actor and actor.claim.sub == spent.record.user_id:
            raise _refused_actor(spent.record, exchange)
        at_least = highest({"management": spent.record.revision}, exchange.awaited)
        subject = await self._live_subject(spent.record, exchange, at_least, spent.snapshot)
        return TakenSubjectToken(spent.record, spent.token_id, at_least, subject)

    async def wait_for(self, unspent: UnspentSubjectToken, exchange: Exchange) -> None:
        """Wait for what was lacking to take a subject token."""
        await self._directory.wait_for_records(highest({"management": unspent.revision}, exchange.awaited))
        if not unspent.is_copy_whole:
            await self._revocations.copy()

    async def subject_again(self, taken: TakenSubjectToken, exchange: Exchange) -> LiveSubject:
        """Read and validate the subject of a taken token again.

        Raises:
            NotAcceptable: The subject is not live any more.
        """
        return await self._live_subject(taken.record, exchange, taken.at_least)

    async def _live_subject(
        self,
        record: SubjectTokenRecord,
        exchange: Exchange,
        at_least: Mapping[str, int],
        snapshot: SubjectSnapshot | None = None,
    ) -> LiveSubject:
        """Return the live subject, from records that include these revisions."""
        in_memory = self._directory.in_memory
        subject = await self._directory.subject(
            record.user_id, exchange.organization_id, at_least=at_least, snapshot=snapshot
        )
        person = subject.person
        reason, code = why_user_not_live(person, issued_at_ms=record.issued_at), _code(person)
        if in_memory.application(record.issued_to) is None:
            reason, code = "the application that requested it was deleted", "application.deleted"
        elif reason is None and person is not None and in_memory.excludes(person.role_ids):
            reason, code = "the policy excludes the subject", "user.excluded_from_impersonation"
        if person is None or reason is not None:
            exchange.audited.note_reason(code)
            _log.info("subject-token.refused", reason=reason, subject_token_id=record.id, user_id=record.user_id)
            raise NotAcceptable
        return LiveSubject(person, subject.membership, subject.memberships)


def _refused_actor(record: SubjectTokenRecord, exchange: Exchange) -> NotAcceptable:
    """Return the refusal of an actor that is the subject: ``act`` names a party separate from it.

    Only the current actor is compared. The subject may be a prior actor, which no decision depends on.

    Source:
        RFC 8693 sections 1.1 and 4.1.
    """
    exchange.audited.note_reason("actor.is_subject")
    _log.info("subject-token.refused", reason="the actor is the subject", subject_token_id=record.id)
    return NotAcceptable()


def _code(person: Person | None) -> str:
    """Return the audit trail's code for a subject that is not live."""
    if person is None:
        return "user.deleted"
    return "user.suspended" if person.user.is_suspended else "subject_token.outdated"


def _parties(exchange: Exchange) -> tuple[str, ...]:
    """Return the parties of the impersonation besides its subject, which is unknown before the take."""
    actor = exchange.actor
    return parties_of(
        user_id=None,
        actor_ids=actors_of(msgspec.to_builtins(actor.claim)) or () if actor else (),
        ancestors=len(actor.within.ids) if actor and actor.within else 0,
        client_id=exchange.client_id,
        organization_id=exchange.organization_id,
    )
