"""Subject tokens in Redis: taken by one script, each at most once.

Reading a token *is* taking it. A take whose answer was lost is never retried: it would look like a second use. The same
script reads the directory's records of the subject, which saves round trips to Redis, and the revocations of the
impersonation: a token taken before the end carries ids that the end revokes. If either is too old or incomplete, the
script leaves the token unspent and says so. No other module outside the directory knows the keys of its records.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from redis.asyncio import Redis

from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.oauth import temporarily_unavailable
from identity_common.stores.audit_streams import LUA_APPEND, encode_entry
from identity_common.stores.redis import Argument, RedisCommands, execute_on_replicas
from identity_common.telemetry.logs import get_logger
from identity_common.wire.revocations import LUA_IS_WHOLE, cutoff_id, position_key, revocation_key
from identity_common.wire.subject_tokens import LUA_READ_RECORD, PREFIX, SubjectTokenRecord, subject_token_key
from stead.verify.impersonations import Impersonation, ImpersonationSegments, party
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.directory import Requirement, SubjectSnapshot
from token_service.directory.keys import LUA_IS_CURRENT, LUA_READ_MEMBERSHIPS, DirectoryKeys
from token_service.presented_tokens.revocations import Readings, Revocations
from token_service.store_errors import redis_unavailable

_log = get_logger(__name__)

_decode = msgspec.json.Decoder(SubjectTokenRecord).decode
_encode = msgspec.json.Encoder().encode

_AUDIT_PAUSE_S: Final = 5
_LATEST: Final = 2**48 - 1  # no impersonation begins later: the time in a jti has 12 hexadecimal digits

# KEYS: the subject token, the stream and the numbering of the audit trail, the prefix of a revocation, the position of
# the copy of the revocations, the keys of RecordKeys, and those of the cutoffs. ARGV: how many entries may wait in the
# stream, the id of the entry of the attempt, that entry, three parts of the jti to be issued (what comes before the
# record's id, the time at which the outermost impersonation began at the latest, the random end), the position that the
# copy must have reached, the members of a Requirement, how many memberships to read at most (0 for none), the prefixes
# for them, then the prefixes of RecordKeys and that of a cutoff for the user.
#
# Three answers spend nothing: false if there is no such token, 0 if the stream is full, and if the directory or the
# copy lacks something, the record's revision and whether the copy is whole. Otherwise returns the record, the user id
# found in it, the values of: the revocation of the record's id, the other keys, the prefixes with the user id; and the
# memberships, false if they were not read. EVAL, not EVALSHA: a missing script would need a second attempt.
_TAKE: Final = (
    LUA_APPEND
    + LUA_READ_MEMBERSHIPS
    + LUA_IS_CURRENT
    + LUA_IS_WHOLE
    + """
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[1]) then return 0 end
local record = redis.call('GET', KEYS[1])
if not record then return false end
"""
    + LUA_READ_RECORD
    + """
local keys = {unpack(KEYS, 4)}
keys[1] = keys[1] .. id
for _, prefix in ipairs({unpack(ARGV, 15)}) do keys[#keys + 1] = prefix .. user_id end
local found = redis.call('MGET', unpack(keys))
local at_least, is_copy_whole = cjson.decode(ARGV[10]), is_whole(found[2], ARGV[7])
at_least.management = math.max(at_least.management or 0, revision)
if not is_copy_whole or revision > tonumber(ARGV[8]) or not is_current(found[3], ARGV[9], at_least) then
    return {revision, is_copy_whole and 1 or 0}
end
redis.call('DEL', KEYS[1])
local begun_at = math.min(minted_at, tonumber(ARGV[5]))
local token_id = ARGV[4] .. id .. string.format('.%012x', begun_at) .. ARGV[6]
local members = '"subjectTokenId":' .. cjson.encode(id) .. ',"userId":' .. cjson.encode(user_id)
    .. ',"issuedTokenId":' .. cjson.encode(token_id) .. ','
append(KEYS[2], KEYS[3], ARGV[2], {members .. ARGV[3]})
local memberships = ARGV[11] ~= '0' and read_memberships(user_id, unpack(ARGV, 11, 14))
return {record, user_id, found, memberships}
"""
)


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
        revision: Management's revision that the directory must include.
        is_copy_whole: Whether the copy of the revocations lacks nothing.
    """

    revision: int
    is_copy_whole: bool


class SubjectTokenStore:
    """Takes subject tokens out of Redis.

    Args:
        redis: For takes with ``WAIT``; its pool blocks, so that takes beyond its connections wait instead of failing.
        commands: For takes without it.
        revocations: Tells which impersonations were ended.
        audit: The audit log in which the take is recorded.
        tenant_id: The tenant.
        replicas: How many replicas must acknowledge a take; with any, each take uses a connection of its own.
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
            request: Recorded as an attempt if the token is taken; receives the token's facts and the reason of a
                refusal.

        Raises:
            OAuthError: ``temporarily_unavailable`` when Redis does not answer: the token may or may not be spent; and
                when the backlog of the audit trail is full: it is not spent.
        """
        if not subject_token.startswith(PREFIX):
            request.note_reason("subject_token.malformed")
            return None
        attempt = self._audit.attempt(request)
        of_subject = self._keys.of_subject(organization_id)
        revocation = partial(revocation_key, self._tenant_id)
        keys = (
            subject_token_key(self._tenant_id, subject_token),
            *self._audit.keys,
            revocation(""),
            position_key(self._tenant_id),
            *of_subject.keys,
            *(revocation(cutoff_id(each)) for each in parties),
        )
        randomness = ImpersonationSegments.new_randomness()
        outer_ids, begun_at = (within.ids, within.begun_at) if within else ((), _LATEST)
        token_id = ("".join(f"{each}." for each in outer_ids), begun_at, randomness)
        recorded = (self._audit.backlog, attempt.id, encode_entry(attempt), *token_id)
        at_least = self._revocations.highest
        needed = (at_least, required.in_memory, required.heard_since, _encode(required.at_least))
        of_memberships = (most_memberships, *self._keys.memberships)
        prefixes = (*of_subject.prefixes, revocation(cutoff_id(party("user", ""))))
        take: list[Argument] = ["EVAL", _TAKE, len(keys), *keys, *recorded, *needed, *of_memberships, *prefixes]
        try:
            if self._replicas:
                taken = await execute_on_replicas(self._redis, *take, replicas=self._replicas)
            else:
                taken = await self._commands.execute(*take)
        except StoreUnavailable as error:
            raise redis_unavailable(error, "subject tokens cannot be read right now") from None
        if taken is None:
            request.note_reason("subject_token.unknown_or_spent")
            _log.info("subject-token.refused", reason="unknown or spent")
            return None
        if isinstance(taken, int):
            _log.warning("audit.backlog-full", store="redis", count=self._audit.backlog)
            raise temporarily_unavailable("exchanges cannot be recorded right now", retry_after_s=_AUDIT_PAUSE_S)
        if len(taken) == 2:
            return UnspentSubjectToken(taken[0], bool(taken[1]))
        record = _decode(taken[0])
        segments = ImpersonationSegments((*outer_ids, record.id), min(begun_at, record.minted_at))
        token_id = segments.format(randomness)
        request.note_taken(record.id, user_id=record.user_id, issued_token_id=token_id)
        if record.expires_at <= self._clock():
            request.note_reason("subject_token.expired")
            _log.info("subject-token.refused", reason="expired", subject_token_id=record.id)
            return None
        is_about_subject = taken[1].decode() == record.user_id
        ended, position, *found = taken[2]
        first, end = len(of_subject.keys), len(of_subject.keys) + len(parties)
        cutoffs, snapshot = [*found[first:end], found[-1]], SubjectSnapshot([*found[:first], *found[end:-1]], taken[3])
        impersonation = Impersonation((*parties, party("user", record.user_id)), segments.begun_at)
        readings = Readings(position, (ended,), cutoffs, at_least) if is_about_subject else None
        if await self._revocations.is_ended(record.id, impersonation, readings):
            request.note_reason("impersonation.ended")
            _log.info("subject-token.refused", reason="ended", subject_token_id=record.id)
            return None
        return SpentSubjectToken(record, token_id, snapshot if is_about_subject else None)
