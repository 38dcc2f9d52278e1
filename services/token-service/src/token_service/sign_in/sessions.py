"""Who is signed in at which browser: in Redis, under the hash of a random secret that only the browser has."""

import hashlib
from typing import Final

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_secret
from identity_common.redis_commands import RedisCommands

SESSION_TTL_S: Final = 14 * 86_400


class Session(msgspec.Struct, frozen=True, kw_only=True, tag="session.v1"):
    """One sign-in at one browser.

    Attributes:
        id: Of the session; the hash of its secret, safe to store elsewhere.
        user_id: Who signed in.
        signed_in_at: Milliseconds: ``auth_time``.
    """

    id: str
    user_id: str
    signed_in_at: int


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Session).decode


class Sessions:
    """The sessions of one tenant."""

    def __init__(self, commands: RedisCommands, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._commands = commands
        self._tenant_id = tenant_id
        self._clock = clock

    async def begin(self, user_id: str, *, tokens_valid_after: int) -> tuple[str, Session]:
        """Begin a session; return its secret, for the browser, and the session.

        Every sign-in begins a new one: an id that somebody knew before is worth nothing (session fixation).

        Args:
            user_id: Who has just signed in.
            tokens_valid_after: Milliseconds, by the clock of another machine: the sign-in was after it.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        secret = new_secret()
        signed_in_at = max(self._clock(), tokens_valid_after)
        session = Session(id=_id_of(secret), user_id=user_id, signed_in_at=signed_in_at)
        await self._commands.execute("SET", self._key(session.id), _encode(session), "EX", SESSION_TTL_S)
        return secret, session

    async def find(self, secret: str | None) -> Session | None:
        """Return the session of a secret; none when there is none, or not any more.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        if not secret:
            return None
        stored = await self._commands.execute("GET", self._key(_id_of(secret)))
        return _decode(stored) if stored else None

    async def is_alive(self, session: Session) -> bool:
        """Return whether a session that was found has not ended meanwhile.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return bool(await self._commands.execute("EXISTS", self._key(session.id)))

    async def end(self, session: Session) -> None:
        """End a session.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("DEL", self._key(session.id))

    def _key(self, session_id: str) -> str:
        return f"identity:{self._tenant_id}:session:{session_id}"


def _id_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
