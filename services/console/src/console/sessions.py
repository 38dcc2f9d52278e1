"""Sessions of signed-in users of a site, in Redis, sealed under a secret that only the browser's cookie holds.

A session has two parts that are written separately, so that a request that only leaves a notice cannot overwrite tokens
that another request has just renewed.
"""

import base64
import hashlib
from typing import Final, Self

import msgspec

from identity_common.identifiers import new_id, new_secret
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.stores.redis import RedisCommands

SESSION_TTL_S: Final = 8 * 3600
"""Lifetime of an idle session."""

_KEPT_S: Final = 3600
_REFRESHING_MS: Final = 15_000  # longer than a refresh may take
_UNLOCK: Final = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Tokens(msgspec.Struct):
    """Results of a sign-in; changed only by signing in and by renewing tokens.

    Attributes:
        storage: The storage of ``stead.AsyncIdentityClient``.
    """

    storage: dict[str, str] = {}


class Notice(msgspec.Struct, frozen=True):
    """A notice on the next page.

    Attributes:
        kind: Which text of ``notices.html``.
        values: Values of the text.
        secret: Shown once, to be copied.
    """

    kind: str
    values: dict[str, str] = {}
    secret: str | None = None


class Draft(msgspec.Struct, frozen=True):
    """A form that was sent before the user had to sign in.

    Attributes:
        path: The page with the form, with its query.
        fields: What was typed.
        notice: Which text of ``notices.html`` its page shows then.
    """

    path: str
    fields: dict[str, list[str]]
    notice: str = "draft"


class Memory(msgspec.Struct):
    """State that one page leaves for the next one.

    Attributes:
        revision: The highest ``Identity-Revision`` seen.
        notices: Shown by the next page.
        draft: Filled into its form again.
    """

    revision: str | None = None
    notices: list[Notice] = []
    draft: Draft | None = None


class Session:
    """One browser's session.

    Attributes:
        tokens: Save it with ``save_tokens``.
        memory: Save it with ``save_memory``.
        is_used: Whether saving it prolongs it.
    """

    def __init__(self, commands: RedisCommands, key: str, secret: str, tokens: Tokens, memory: Memory) -> None:
        self.tokens = tokens
        self.memory = memory
        self.is_used = True
        self._commands = commands
        self._key = key
        self._secret = secret
        self._seal = sealing_keys(secret)

    @property
    def cookie(self) -> str:
        """The value of the cookie."""
        return f"{self._key.rpartition(':')[2]}.{self._secret}"

    @property
    def csrf_token(self) -> str:
        """Token in every form of this session; reveals nothing of the secret that it is derived from."""
        return hashlib.sha256(f"csrf:{self._secret}".encode()).hexdigest()

    async def save_tokens(self) -> None:
        """Write the tokens.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._save("tokens", msgspec.json.encode(self.tokens))

    async def save_memory(self) -> None:
        """Write the memory.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._save("memory", msgspec.json.encode(self.memory))

    async def reload_tokens(self) -> bool:
        """Read the tokens again; return False if the session has ended.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        sealed = await self._commands.execute("HGET", self._key, "tokens")
        if sealed is None:
            return False
        stored = msgspec.json.decode(self._open("tokens", sealed), type=Tokens).storage
        self.tokens.storage.clear()  # the client of this request holds the same dict
        self.tokens.storage.update(stored)
        return True

    async def lock_refresh(self) -> str | None:
        """Acquire the lock for a refresh of the tokens, across replicas; None while another request holds it.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        holder = new_id()
        taken = await self._commands.execute("SET", f"{self._key}:refresh", holder, "NX", "PX", _REFRESHING_MS)
        return holder if taken else None

    async def unlock_refresh(self, holder: str) -> None:
        """Release the lock that ``lock_refresh`` returned.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _UNLOCK, 1, f"{self._key}:refresh", holder)

    async def keep(self, content: bytes) -> None:
        """Store content that is too large to read with every request, for an hour, in place of earlier content.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        key = f"{self._key}:kept"
        await self._commands.execute("SET", key, self._seal.seal(content, name=key), "EX", _KEPT_S)

    async def kept(self) -> bytes | None:
        """Return the content that ``keep`` stored; None if there is none.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        key = f"{self._key}:kept"
        sealed = await self._commands.execute("GET", key)
        return None if sealed is None else self._seal.open(sealed, name=key)

    async def end(self) -> None:
        """End the session.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("DEL", self._key, f"{self._key}:kept")

    async def _save(self, part: str, content: bytes) -> None:
        sealed = self._seal.seal(content, name=f"{self._key}:{part}")
        saved = self._commands.execute("HSET", self._key, part, sealed)
        # With NX only a session that has just expired gets an end: it was created again.
        await self._commands.execute("EXPIRE", self._key, SESSION_TTL_S, *(() if self.is_used else ("NX",)))
        await saved

    def _open(self, part: str, sealed: bytes) -> bytes:
        return self._seal.open(sealed, name=f"{self._key}:{part}")

    @classmethod
    def opened(cls, commands: RedisCommands, key: str, secret: str, parts: dict[bytes, bytes]) -> Self:
        """Return the session with these sealed parts.

        Raises:
            NoFittingKeyError: The secret is another session's, or a part was altered.
            msgspec.ValidationError: Another version wrote it.
        """
        session = cls(commands, key, secret, Tokens(), Memory())
        for name, kind in (("tokens", Tokens), ("memory", Memory)):
            if sealed := parts.get(name.encode()):
                setattr(session, name, msgspec.json.decode(session._open(name, sealed), type=kind))
        return session


class Sessions:
    """The sessions of one tenant at a site."""

    def __init__(self, commands: RedisCommands, *, site: str, tenant_id: str) -> None:
        self._commands = commands
        self._site = site
        self._tenant_id = tenant_id

    def new(self) -> Session:
        """Return a session with a new id and secret; nothing is written yet."""
        return Session(self._commands, self._key(new_id()), new_secret(), Tokens(), Memory())

    async def find(self, cookie: str | None, *, is_used: bool = True) -> Session | None:
        """Return the session of a cookie, and prolong it; None if it is unknown, expired or ended.

        Args:
            cookie: Its value.
            is_used: False for a page that refreshes itself: the session expires as if this had not been sent.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        found_parts = parts_of_cookie(cookie)
        if found_parts is None:
            return None
        session_id, secret = found_parts
        key = self._key(session_id)
        read = self._commands.execute("HGETALL", key)
        if is_used:
            await self._commands.execute("EXPIRE", key, SESSION_TTL_S)
        found = await read
        parts = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        if not parts:
            return None
        try:
            session = Session.opened(self._commands, key, secret, parts)
        except (NoFittingKeyError, msgspec.MsgspecError):
            return None
        session.is_used = is_used
        return session

    def _key(self, session_id: str) -> str:
        return f"identity:{self._tenant_id}:{self._site}-session:{session_id}"


def parts_of_cookie(cookie: str | None) -> tuple[str, str] | None:
    """Return the id and the secret in a cookie, of a session or a pending sign-in; a mark may follow them.

    None if the cookie cannot be one of ours.
    """
    found_id, _, rest = (cookie or "").partition(".")
    secret, _, _ = rest.partition(".")
    return (found_id, secret) if found_id and secret and ":" not in found_id else None


def sealing_keys(secret: str) -> SealingKeys:
    """Return the keys that seal what belongs to the secret of a cookie."""
    return SealingKeys([base64.b64encode(hashlib.sha256(f"seal:{secret}".encode()).digest()).decode()])
