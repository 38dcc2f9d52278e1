"""Sign-in sessions, in Redis under their id; a random secret that only the browser holds authenticates it.

The index of a user has the ids of the user's sessions by the time of their last sign-in; so has that of a connector,
and that of a session at its provider. A script writes them with the record, so that they agree; ids of sessions that
have expired are removed when the sessions are listed, or more of them are added.

What ends the sign-ins of a person, or of a session, at a provider leaves a mark for a while. The same scripts read it:
either the session is there when it is looked for, or the mark is there when the session is stored.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from redis.asyncio import Redis

from identity_common.authentication import AtProvider, Authentication, FactorMethod, UsedFactor
from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id, new_secret
from identity_common.stores.redis import Argument, RedisCommands, execute_on_replicas
from token_service.authorizations import Through

REMEMBERED_TTL_S: Final = 14 * 86_400
"""TTL, in seconds, of a session that the user asked to keep."""
SESSION_TTL_S: Final = 86_400
"""TTL, in seconds, of any other session: its cookie ends with the browser, but some browsers restore such cookies."""

_MAX_ADDRESS: Final = 128
_MAX_USER_AGENT: Final = 256

_AT_ONCE: Final = 100
_MARK_TTL_S: Final = 3600
"""Longer than a visit to a provider, and linking an account after it, can take."""

# KEYS[1]: the session. KEYS[2…last]: indices, that of the user first. Then marks; behind the fixed ARGV, the time of
# the sign-in for each.
_INDEX: Final = """
local function has_ended(last, fixed)
    for i = 1, #KEYS - last do
        local ended_at = redis.call('GET', KEYS[last + i])
        if ended_at and tonumber(ARGV[fixed + i]) <= tonumber(ended_at) then return true end
    end
    return false
end
local function index(last, signed_in_at, id, ttl_s, oldest)
    for i = 2, last do
        if i > 2 then redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', '(' .. oldest) end
        redis.call('ZADD', KEYS[i], signed_in_at, id)
        redis.call('EXPIRE', KEYS[i], ttl_s)
    end
end
"""
# KEYS: see above. ARGV: the record, its TTL, NX or XX, when the user signed in, the id, TTL of the indices, the
# earliest sign-in that counts. Returns -1 if the sign-in has ended.
_KEEP: Final = (
    _INDEX
    + """
local last = #KEYS - (#ARGV - 7)
if has_ended(last, 7) then return -1 end
if not redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2], ARGV[3]) then
    return 0
end
index(last, ARGV[4], ARGV[5], ARGV[6], ARGV[7])
return 1
"""
)
# KEYS: the session, the index of its user. ARGV: when the user signed in, the id, TTL of the index.
_ADOPT: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('ZADD', KEYS[2], ARGV[1], ARGV[2])
    redis.call('EXPIRE', KEYS[2], ARGV[3])
end
"""
# KEYS: see above. ARGV: the hash of the secret that it has had so far, the record, then as above. Returns 0 if the
# session has ended or has another secret: it was signed in to again, or another factor was added; or if the sign-in at
# the provider has ended.
_ADD_FACTOR: Final = (
    _INDEX
    + """
local last = #KEYS - (#ARGV - 6)
if has_ended(last, 6) then return 0 end
local stored = redis.call('GET', KEYS[1])
if not stored or cjson.decode(stored).secret_sha256 ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
index(last, ARGV[3], ARGV[4], ARGV[5], ARGV[6])
return 1
"""
)
# KEYS: see above. ARGV: the id.
_END: Final = """
redis.call('DEL', KEYS[1])
for i = 2, #KEYS do redis.call('ZREM', KEYS[i], ARGV[1]) end
"""
# KEYS: a mark. ARGV: the time, its TTL.
_MARK: Final = """
local marked = redis.call('GET', KEYS[1])
if not marked or tonumber(marked) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2]) end
"""
# KEYS: an index. ARGV: prefix of sessions, the latest sign-in, how many to skip, how many to look at. Returns how many
# it looked at, and the records of those that have not expired.
_INDEXED: Final = """
local ids = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[2], 'BYSCORE', 'LIMIT', ARGV[3], ARGV[4])
local answer = {#ids}
for _, id in ipairs(ids) do
    local record = redis.call('GET', ARGV[1] .. id)
    if record then answer[#answer + 1] = record else redis.call('ZREM', KEYS[1], id) end
end
return answer
"""
# KEYS: the index of the user. ARGV: prefix of sessions, the earliest sign-in, number of sessions before the page, size
# of the page. Returns how many sessions there are, and the records of the page.
_LIST: Final = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[2])
local ids = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1, 'REV')) do
    if redis.call('EXISTS', ARGV[1] .. id) == 1 then
        ids[#ids + 1] = id
    else
        redis.call('ZREM', KEYS[1], id)
    end
end
local answer, offset = {#ids}, tonumber(ARGV[3])
for place = offset + 1, math.min(offset + tonumber(ARGV[4]), #ids) do
    answer[#answer + 1] = redis.call('GET', ARGV[1] .. ids[place])
end
return answer
"""


class Session(msgspec.Struct, frozen=True, kw_only=True, tag="session.v2"):
    """One user at one browser until sign-out; signing in again continues the session.

    Attributes:
        id: Part of ID tokens (``sid``) and authorizations; not a secret.
        user_id: Who signed in.
        signed_in_at: The last sign-in, milliseconds since the epoch.
        secret_sha256: Hash of the browser's secret.
        created_at: The first sign-in, milliseconds since the epoch; 0 in records of an earlier version, which have none
            of the following either.
        expires_at: Milliseconds since the epoch.
        address: Of the browser at the last sign-in.
        user_agent: Of the browser at the last sign-in, shortened.
        factors: Those of the last sign-in, in the order of their use; none in records of an earlier version, whose
            sign-ins were by password.
        judged_valid_after: The user's tokensValidAfter when the first of them was judged, milliseconds since the epoch;
            None in records of an earlier version.
    """

    id: str
    user_id: str
    signed_in_at: int
    secret_sha256: str
    created_at: int = 0
    expires_at: int = 0
    address: str = ""
    user_agent: str = ""
    factors: tuple[UsedFactor, ...] = ()
    judged_valid_after: int | None = None

    @property
    def authentication(self) -> Authentication:
        """How the user signed in."""
        return Authentication.of(self.factors, auth_time=self.signed_in_at, judged_valid_after=self.judged_valid_after)

    @property
    def provider(self) -> AtProvider | None:
        """The sign-in at a connector's provider, if it came through one."""
        return self.authentication.provider

    @property
    def is_remembered(self) -> bool:
        """Whether it outlives the browser's session."""
        return self.expires_at - self.signed_in_at > SESSION_TTL_S * 1000


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Session).decode


class SignInEndedError(Exception):
    """A sign-in at a provider has ended before its session was stored."""


class Sessions:
    """The sessions of one tenant.

    Args:
        commands: To Redis.
        redis: Connections for commands with ``WAIT``.
        tenant_id: The tenant.
        replicas: How many replicas of Redis must acknowledge the end of a session.
        clock: Clock, for tests.
    """

    def __init__(
        self, commands: RedisCommands, redis: "Redis", *, tenant_id: str, replicas: int, clock: Clock = now_ms
    ) -> None:
        self._commands = commands
        self._redis = redis
        self._tenant_id = tenant_id
        self._replicas = replicas
        self._clock = clock

    async def sign_in(
        self,
        user_id: str,
        *,
        judged_at: int,
        tokens_valid_after: int,
        earlier: Session | None = None,
        is_remembered: bool = False,
        address: str = "",
        user_agent: str = "",
        method: FactorMethod = "password",
        provider: AtProvider | None = None,
    ) -> tuple[str, Session]:
        """Begin a session, or continue one of the same user; return the cookie and the session.

        Every sign-in creates a new secret, which prevents session fixation.

        Args:
            user_id: The user that has just signed in.
            judged_at: The clock, read before the factor was judged.
            tokens_valid_after: The user's when the factor was judged, milliseconds since the epoch, by another
                machine's clock. A later value ends the session; the sign-in is never dated earlier.
            earlier: The browser's session. If it has ended meanwhile, a new one begins.
            is_remembered: Whether it outlives the browser's session.
            address: Of the browser.
            user_agent: Of the browser; printable.
            method: What the user signed in with; factors of the earlier sign-in do not count any more.
            provider: What the provider said, if it was one.

        Raises:
            SignInEndedError: It has ended at the provider, or with its identity.
            StoreUnavailable: Redis does not answer.
        """
        secret, now = new_secret(), self._clock()
        ttl_s = REMEMBERED_TTL_S if is_remembered else SESSION_TTL_S
        signed_in_at = max(judged_at, tokens_valid_after)
        session = Session(
            id=new_id(),
            user_id=user_id,
            signed_in_at=signed_in_at,
            secret_sha256=_sha256(secret),
            created_at=signed_in_at,
            expires_at=min(now, signed_in_at) + ttl_s * 1000,  # never more than the TTL after the sign-in
            address=address[:_MAX_ADDRESS],
            user_agent=user_agent[:_MAX_USER_AGENT],
            factors=(UsedFactor(method, signed_in_at, provider),),
            judged_valid_after=tokens_valid_after,
        )
        marks = self._marks(provider, judged_at=judged_at)
        if earlier is not None and earlier.user_id == user_id:
            begun = earlier.created_at or earlier.signed_in_at
            renewed = msgspec.structs.replace(session, id=earlier.id, created_at=begun)
            if await self._keep(renewed, "XX", ttl_s, marks):
                return f"{renewed.id}.{secret}", renewed
        await self._keep(session, "NX", ttl_s, marks)
        return f"{session.id}.{secret}", session

    async def add_factor(
        self,
        session: Session,
        method: FactorMethod,
        *,
        provider: AtProvider | None = None,
        tokens_valid_after: int = 0,
    ) -> tuple[str, Session] | None:
        """Add a factor that the user has just used, under a new secret; return the cookie and the session.

        None if the session has ended meanwhile, or was changed by another request of the browser; or if what a provider
        said has ended.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        secret, earlier = new_secret(), session.authentication
        factors = earlier.adding(UsedFactor(method, max(self._clock(), earlier.factors[-1].at), provider)).factors
        signed_in_at = max(session.signed_in_at, tokens_valid_after)
        added = msgspec.structs.replace(
            session, secret_sha256=_sha256(secret), factors=factors, signed_in_at=signed_in_at
        )
        marks = {} if provider is None else self._marks(provider, judged_at=provider.begun_at)
        keys, values = self._keys(added), (session.secret_sha256, _encode(added), *self._place(added))
        command: list[Argument] = ["EVAL", _ADD_FACTOR, len(keys) + len(marks)]
        command += (*keys, *marks, *values, *marks.values())
        return (f"{session.id}.{secret}", added) if await self._commands.execute(*command) else None

    async def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; none if it is unknown, expired or ended.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        session_id, _, secret = (cookie or "").partition(".")
        if not session_id or not secret:
            return None
        stored = await self._commands.execute("GET", self._key(session_id))
        if not stored:
            return None
        session = _decode(stored)
        if not hmac.compare_digest(session.secret_sha256, _sha256(secret)):
            return None
        if not session.created_at:  # a replica of an earlier version wrote it, and no index
            values = (session.signed_in_at, session.id, REMEMBERED_TTL_S)
            await self._commands.execute("EVAL", _ADOPT, 2, *self._keys(session)[:2], *values)
        return session

    async def of_user(self, user_id: str, session_id: str) -> Session | None:
        """Return a session by its id; None if it is unknown or of another user.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        stored = await self._commands.execute("GET", self._key(session_id))
        session = _decode(stored) if stored else None
        return session if session is not None and session.user_id == user_id else None

    async def all_of_user(self, user_id: str, *, since: int, offset: int, limit: int) -> tuple[int, Sequence[Session]]:
        """Return how many sessions a user has, and some of them; the last to sign in come first.

        Args:
            user_id: The user.
            since: The earliest sign-in that counts, milliseconds since the epoch.
            offset: How many to skip.
            limit: How many to return at most.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        since = max(since, self._clock() - REMEMBERED_TTL_S * 1000)
        command = ("EVAL", _LIST, 1, self._index(user_id), self._key(""), since, offset, limit)
        total, *records = await self._commands.execute(*command)
        return total, [_decode(record) for record in records]

    async def is_alive(self, session: Session) -> bool:
        """Return whether a session still exists.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return bool(await self._commands.execute("EXISTS", self._key(session.id)))

    async def end(self, session: Session) -> None:
        """End a session.

        Raises:
            StoreUnavailable: Redis or too many of its replicas did not answer: a failover might bring the session back.
        """
        keys = self._keys(session)
        command: list[Argument] = ["EVAL", _END, len(keys), *keys, session.id]
        await execute_on_replicas(self._redis, *command, replicas=self._replicas)

    async def end_through(self, through: Through) -> list[Session]:
        """End the sessions that came through a connector, and return them.

        Raises:
            StoreUnavailable: Some may go on; try again.
        """
        if through.provider_session_id is not None:
            index = self._at_provider(through.connector_id, through.provider_session_id)
        elif through.user_id is not None:
            index = self._index(through.user_id)
        else:
            index = self._through(through.connector_id)
        latest = "+inf" if through.before is None else f"({through.before}"
        ended: list[Session] = []
        kept = 0
        while True:
            command = ("EVAL", _INDEXED, 1, index, self._key(""), latest, kept, _AT_ONCE)
            looked_at, *records = await self._commands.execute(*command)
            if not looked_at:
                return ended
            for session in map(_decode, records):
                if _is_meant(session, through):
                    await self.end(session)
                    ended.append(session)
                else:  # the index of its user, or it was signed in to in another way since
                    kept += 1

    async def mark_ended(
        self, connector_id: str, *, subject: str | None = None, provider_session_id: str | None = None, until: int
    ) -> None:
        """Let sign-ins through a connector that are under way begin no session.

        Args:
            connector_id: The connector.
            subject: Of the person at the provider whose sign-ins are meant: those with which the browser was back.
            provider_session_id: The session at the provider whose sign-ins are meant: those that had begun.
            until: By this time, milliseconds since the epoch.

        Raises:
            StoreUnavailable: Redis or too many of its replicas did not answer.
        """
        if until < self._clock() - _MARK_TTL_S * 1000:  # a removed identity that is read again: nothing is under way
            return
        for kind, value in (("person", subject), ("session", provider_session_id)):
            if value is not None:
                command = ("EVAL", _MARK, 1, self._mark(connector_id, kind, value), until, _MARK_TTL_S)
                await execute_on_replicas(self._redis, *command, replicas=self._replicas)

    async def _keep(self, session: Session, condition: str, ttl_s: int, marks: Mapping[str, int]) -> bool:
        keys, values = self._keys(session), (_encode(session), ttl_s, condition, *self._place(session))
        command: list[Argument] = ["EVAL", _KEEP, len(keys) + len(marks)]
        kept: int = await self._commands.execute(*command, *keys, *marks, *values, *marks.values())
        if kept < 0:
            raise SignInEndedError
        return bool(kept)

    def _marks(self, provider: AtProvider | None, *, judged_at: int) -> dict[str, int]:
        """Return the marks that may end a sign-in, and for each the time of the sign-in that counts."""
        marks: dict[str, int] = {}
        if provider is not None and provider.subject is not None:
            marks[self._mark(provider.connector_id, "person", provider.subject)] = judged_at
        if provider is not None and provider.session_id is not None:
            marks[self._mark(provider.connector_id, "session", provider.session_id)] = provider.begun_at
        return marks

    def _place(self, session: Session) -> tuple[int, str, int, int]:
        """Return the arguments of the function ``index`` of the scripts."""
        oldest = session.signed_in_at - REMEMBERED_TTL_S * 1000
        return session.signed_in_at, session.id, REMEMBERED_TTL_S, oldest

    def _keys(self, session: Session) -> tuple[str, ...]:
        keys = (self._key(session.id), self._index(session.user_id))
        provider = session.provider
        if provider is None:
            return keys
        through = (*keys, self._through(provider.connector_id))
        if provider.session_id is None:
            return through
        return (*through, self._at_provider(provider.connector_id, provider.session_id))

    def _through(self, connector_id: str) -> str:
        return f"identity:{self._tenant_id}:sessions-through:{connector_id}"

    def _mark(self, connector_id: str, kind: str, value: str) -> str:
        return f"identity:{self._tenant_id}:ended-at-provider:{_sha256(f'{connector_id} {kind} {value}')}"

    def _at_provider(self, connector_id: str, provider_session_id: str) -> str:
        hashed = _sha256(f"{connector_id} {provider_session_id}")
        return f"identity:{self._tenant_id}:sessions-at-provider:{hashed}"

    def _key(self, session_id: str) -> str:
        return f"identity:{self._tenant_id}:session:{session_id}"

    def _index(self, user_id: str) -> str:
        return f"identity:{self._tenant_id}:sessions-of:{user_id}"


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _is_meant(session: Session, through: Through) -> bool:
    at = session.provider
    return (
        at is not None
        and at.connector_id == through.connector_id
        and through.user_id in {None, session.user_id}
        and through.provider_session_id in {None, at.session_id}
    )
