"""Subject tokens in Redis: taken by one script, each at most once.

Reading a token *is* taking it. A take whose answer was lost is never retried: it would look like a second use. The same
script reads the directory's records of the subject, which saves round trips to Redis, and the revocations of the
impersonation: a token taken before the end carries ids that the end revokes. If either is too old or incomplete, the
script leaves the token unspent and says so. No other module outside the directory knows the keys of its records.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from redis.asyncio import Redis

from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable
from identity_common.identifiers import new_token_id
from identity_common.stores.audit_streams import encode_entry
from identity_common.stores.redis import RedisCommands, execute_on_replicas
from identity_common.telemetry.logs import get_logger
from identity_common.wire.revocations import cutoff_id, position_key, revocation_key
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key
from stead.verify.impersonations import Impersonation, ImpersonationSegments, party
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.directory import Requirement, SubjectSnapshot
from token_service.directory.keys import DirectoryKeys
from token_service.presented_tokens.revocations import Readings, Revocations
from token_service.presented_tokens.taking_script import SCRIPT, Answer, Arguments, Keys, Take

_log = get_logger(__name__)

_decode = msgspec.json.Decoder(SubjectTokenRecord).decode
_encode = msgspec.json.Encoder().encode

_AUDIT_PAUSE_S: Final = 5
_UNREADABLE: Final = "subject tokens cannot be read right now"
_RANDOM_DIGITS: Final = 20
"""Hexadecimal, at the end of a ``jti``."""
_NOT_WITHIN: Final = ImpersonationSegments((), 2**48 - 1)
"""No impersonation begins later: the time in a ``jti`` has 12 hexadecimal digits."""


class SecondFactorRequired(Exception):  # noqa: N818 - the name is what happened
    """The organization requires a second factor of those who act for its members; nothing was taken."""


class SpentSubjectToken(msgspec.Struct, frozen=True):
    """A subject token that has just been spent.

    Attributes:
        record: As management-service wrote it.
        token_id: ``jti`` of the access token to be issued for it, as the attempt has it in the audit trail.
        snapshot: The directory's records of its user, as of the take; none if they are still to be read.
    """

    record: SubjectTokenRecord
    token_id: str
    snapshot: SubjectSnapshot | None


class UnspentSubjectToken(msgspec.Struct, frozen=True):
    """A subject token that was not taken: the directory or the copy of the revocations lacks something.

    Attributes:
        revision: Management's revision that the directory and the checks must include.
        is_copy_whole: Whether the copy of the revocations lacks nothing.
    """

    revision: int
    is_copy_whole: bool


class SubjectTokenTaker:
    """Takes subject tokens out of Redis.

    Args:
        redis: For takes with ``WAIT``; its pool blocks, so that takes beyond its connections wait instead of failing.
        commands: For takes without it.
        revocations: Tells which impersonations were ended.
        audit: The audit log in which the take is recorded.
        tenant_id: The tenant.
        replicas: How many replicas must be online, or nothing is spent, and acknowledge a take. With any, each take
            uses a connection of its own, and only the primary that stored a token may take it.
    """

    def __init__(
        self,
        redis: "Redis",
        commands: RedisCommands,
        revocations: Revocations,
        audit: TokenAudit,
        *,
        tenant_id: str,
        replicas: int,
        clock: Clock = now_ms,
    ) -> None:
        self._redis = redis
        self._revocations = revocations
        self._commands = commands
        self._audit = audit
        self._tenant_id = tenant_id
        self._keys = DirectoryKeys(tenant_id)
        self._replicas = replicas
        self._clock = clock

    async def take(
        self,
        subject_token: str,
        organization_id: str | None = None,
        *,
        required: Requirement,
        parties: Sequence[str] = (),
        within: ImpersonationSegments | None = None,
        most_memberships: int = 0,
        has_second_factor: bool = True,
        request: AuditedTokenRequest,
    ) -> SpentSubjectToken | UnspentSubjectToken | None:
        """Take a token and read its subject; return None if it is unknown, expired, spent or ended.

        Args:
            subject_token: As presented.
            organization_id: The organization whose member the subject must be, if any.
            required: What the directory must include, besides the revision of the record; otherwise nothing is spent.
            parties: The parties of the impersonation besides the subject.
            within: The impersonations within which it is exchanged.
            most_memberships: How many memberships of the subject to read at most: all of them, or none.
            has_second_factor: Whether the actor has signed in with one: some organizations require it.
            request: Recorded as an attempt if the token is taken; receives the token's facts and the reason of a
                refusal.

        Raises:
            SecondFactorRequired: See there.
            StoreUnavailable: Redis does not answer, or too few replicas: the token may or may not be spent.
            TemporarilyUnavailable: The backlog of the audit trail is full: the token is not spent.
        """
        if not subject_token.startswith(PREFIX):
            request.note_reason("subject_token.malformed")
            return None
        within = within or _NOT_WITHIN
        attempt = self._audit.attempt(request)
        organizations_of, organization, member = self._keys.memberships
        arguments = Arguments(
            replicas=self._replicas,
            backlog=self._audit.backlog,
            attempt_id=attempt.id,
            attempt=encode_entry(attempt),
            outer_ids="".join(f"{each}." for each in within.ids),
            begun_by=within.begun_at,
            randomness=new_token_id()[:_RANDOM_DIGITS],
            least_position=self._revocations.highest,
            checked=required.checked,
            heard_since=required.heard_since,
            at_least=_encode(required.at_least),
            most_memberships=most_memberships,
            may_lack_factor=int(has_second_factor or organization_id is None),
            organizations_of=organizations_of,
            organization=organization,
            member=member,
            revocation_of=revocation_key(self._tenant_id, ""),
            cutoff_of_user=self._cutoff_key(party("user", "")),
            cutoffs=len(parties),
        )
        answer = await self._run(subject_token, organization_id, arguments, parties)
        match answer.outcome:
            case b"backlog-full":
                raise self._backlog_full()
            case b"unknown":
                request.note_reason("subject_token.unknown_or_spent")
                _log.info("subject-token.refused", reason="unknown or spent")
                return None
            case b"another-primary":  # it may have been spent there
                request.note_reason("subject_token.unknown_or_spent")
                _log.info("subject-token.refused", reason="stored before Redis failed over")
                return None
            case b"unreplicated":
                raise StoreUnavailable("redis", "too few replicas", why=_UNREADABLE)
            case b"factor-required":
                _log.info("subject-token.refused", reason="the organization requires a second factor of the actor")
                raise SecondFactorRequired
            case b"lacking":
                return UnspentSubjectToken(answer.revision, bool(answer.is_copy_whole))
            case b"taken":
                return await self._spent(answer, arguments, within, parties, request)

    async def _run(
        self, subject_token: str, organization_id: str | None, arguments: Arguments, parties: Sequence[str]
    ) -> Answer:
        """Run the script on the token and the records of its subject."""
        keys = Keys(subject_token_key(self._tenant_id, subject_token), *self._audit.keys, position_key(self._tenant_id))
        cutoffs = [self._cutoff_key(each) for each in parties]
        take = Take.of(keys, arguments, cutoffs=cutoffs, records=self._keys.of_subject(organization_id))
        try:
            if self._replicas:
                command = ("EVAL", SCRIPT.text, len(take.keys), *take.keys, *take.arguments)
                return Answer(*await execute_on_replicas(self._redis, *command, replicas=self._replicas))
            return Answer(*await self._commands.run(SCRIPT, take.keys, *take.arguments))
        except StoreUnavailable as error:
            raise error.explained(_UNREADABLE) from None

    async def _spent(
        self,
        answer: Answer,
        arguments: Arguments,
        within: ImpersonationSegments,
        parties: Sequence[str],
        request: AuditedTokenRequest,
    ) -> SpentSubjectToken | None:
        """Return what the script has taken; None if the token is expired or its impersonation was ended."""
        record = _decode(answer.record)
        segments = ImpersonationSegments((*within.ids, record.id), min(within.begun_at, record.minted_at))
        token_id = segments.format(arguments.randomness)
        request.note_taken(record.id, user_id=record.user_id, issued_token_id=token_id)
        if record.expires_at <= self._clock():
            request.note_reason("subject_token.expired")
            _log.info("subject-token.refused", reason="expired", subject_token_id=record.id)
            return None
        # Text of a caller may have misled the script, which does not decode the record.
        is_about_subject = answer.user_id.decode() == record.user_id
        readings, snapshot = None, None
        if is_about_subject:
            readings = Readings(answer.position, (answer.revocation,), answer.cutoffs, arguments.least_position)
            snapshot = SubjectSnapshot(answer.records, answer.memberships)
        impersonation = Impersonation((*parties, party("user", record.user_id)), segments.begun_at)
        if await self._revocations.is_ended(record.id, impersonation, readings):
            request.note_reason("impersonation.ended")
            _log.info("subject-token.refused", reason="ended", subject_token_id=record.id)
            return None
        return SpentSubjectToken(record, token_id, snapshot)

    def _cutoff_key(self, of: str) -> str:
        return revocation_key(self._tenant_id, cutoff_id(of))

    def _backlog_full(self) -> TemporarilyUnavailable:
        _log.warning("audit.backlog-full", store="redis", count=self._audit.backlog)
        return TemporarilyUnavailable(why="exchanges cannot be recorded right now", retry_after_s=_AUDIT_PAUSE_S)
