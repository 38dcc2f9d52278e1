"""Sign-in sessions, in Redis under their id; a random secret that only the browser holds authenticates it."""

import hashlib
import hmac
from typing import Final

import msgspec
from redis.asyncio import Redis

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id, new_secret
from identity_common.stores.redis import RedisCommands, execute_on_replicas

REMEMBERED_TTL_S: Final = 14 * 86_400
"""TTL, in seconds, of a session that the user asked to keep."""
SESSION_TTL_S: Final = 86_400
"""TTL, in seconds, of any other session: its cookie ends with the browser, but some browsers restore such cookies."""


class Session(msgspec.Struct, frozen=True, kw_only=True, tag="session.v2"):
    """One user at one browser until sign-out; signing in again continues the session.

    Attributes:
        id: Part of ID tokens (``sid``) and authorizations; not a secret.
        user_id: Who signed in.
        signed_in_at: The last sign-in, milliseconds since the epoch; becomes ``auth_time``.
        secret_sha256: Hash of the browser's secret.
    """

    id: str
    user_id: str
    signed_in_at: int
    secret_sha256: str


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Session).decode


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
        self, user_id: str, *, tokens_valid_after: int, earlier: Session | None = None, is_remembered: bool = False
    ) -> tuple[str, Session]:
        """Begin a session, or continue one of the same user; return the cookie and the session.

        Every sign-in creates a new secret, which prevents session fixation.

        Args:
            user_id: The user that has just signed in.
            tokens_valid_after: The user's, milliseconds since the epoch, by another machine's clock; the sign-in is
                never dated earlier.
            earlier: The browser's session. If it has ended meanwhile, a new one begins.
            is_remembered: Whether it outlives the browser's session.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        secret = new_secret()
        session = Session(
            id=new_id(),
            user_id=user_id,
            signed_in_at=max(self._clock(), tokens_valid_after),
            secret_sha256=_sha256(secret),
        )
        ttl_s = REMEMBERED_TTL_S if is_remembered else SESSION_TTL_S
        if earlier is not None and earlier.user_id == user_id:
            renewed = msgspec.structs.replace(session, id=earlier.id)
            if await self._keep(renewed, "XX", ttl_s):
                return f"{renewed.id}.{secret}", renewed
        await self._keep(session, "NX", ttl_s)
        return f"{session.id}.{secret}", session

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
        return session if hmac.compare_digest(session.secret_sha256, _sha256(secret)) else None

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
        await execute_on_replicas(self._redis, "DEL", self._key(session.id), replicas=self._replicas)

    async def _keep(self, session: Session, condition: str, ttl_s: int) -> bool:
        command = ("SET", self._key(session.id), _encode(session), "EX", ttl_s, condition)
        return await self._commands.execute(*command) is not None

    def _key(self, session_id: str) -> str:
        return f"identity:{self._tenant_id}:session:{session_id}"


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
