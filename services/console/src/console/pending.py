"""Sign-ins that a site has begun, in Redis, each sealed under a secret that only the browser's cookie holds.

Any visitor can cause one to be stored, so its size and lifetime are limited here, and the number per address by
``SourceLimit``.
"""

from typing import Final

import msgspec

from console.sessions import Draft, Notice, parts_of_cookie, sealing_keys
from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id, new_secret
from identity_common.sealing import NoFittingKeyError
from identity_common.stores.redis import RedisCommands

PENDING_TTL_S: Final = 900
MAX_DRAFT_BYTES: Final = 8 * 1024
"""Size of a form that is kept during a sign-in."""
MAX_PAGE: Final = 2048
"""Characters of a page's address, with its query, that is kept during a sign-in."""

_MS: Final = 1000


class PendingSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in between its first redirect and the callback.

    Attributes:
        storage: The storage of ``stead.AsyncIdentityClient``.
        return_to: Path to go to after the sign-in.
        draft: A form that was sent after the session had ended.
        person: The user who was signed in to the site in this browser before, and typed the draft; empty if unknown.
        notices: Shown by the first page after the sign-in.
        expires_at: Milliseconds since the epoch.
    """

    storage: dict[str, str]
    return_to: str
    draft: Draft | None = None
    person: str = ""
    notices: tuple[Notice, ...] = ()
    expires_at: int = 0


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(PendingSignIn).decode


def is_small_enough(draft: Draft) -> bool:
    """Return whether a form may be kept during a sign-in."""
    return len(draft.path) <= MAX_PAGE and len(_encode(draft)) <= MAX_DRAFT_BYTES


class PendingSignIns:
    """The pending sign-ins of one tenant to a site."""

    def __init__(self, commands: RedisCommands, *, site: str, tenant_id: str, clock: Clock = now_ms) -> None:
        self._commands = commands
        self._site = site
        self._tenant_id = tenant_id
        self._clock = clock

    async def keep(self, sign_in: PendingSignIn) -> str:
        """Store a sign-in; return the value of its cookie.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        cookie = f"{new_id()}.{new_secret()}"
        expires_at = self._clock() + PENDING_TTL_S * _MS
        await self.put_back(cookie, msgspec.structs.replace(sign_in, expires_at=expires_at))
        return cookie

    async def take(self, cookie: str | None) -> PendingSignIn | None:
        """Return and delete the sign-in of a cookie, so that a callback works once; None if it is unknown or expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        found = parts_of_cookie(cookie)
        if found is None:
            return None
        key = self._key(found[0])
        sealed = await self._commands.execute("GETDEL", key)
        if sealed is None:
            return None
        try:
            return _decode(sealing_keys(found[1]).open(sealed, name=key))
        except (NoFittingKeyError, msgspec.MsgspecError):
            return None

    async def put_back(self, cookie: str, sign_in: PendingSignIn) -> None:
        """Store a sign-in under its cookie until it expires, as if it had not been taken.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        session_id, secret = parts_of_cookie(cookie) or ("", "")
        key = self._key(session_id)
        sealed = sealing_keys(secret).seal(_encode(sign_in), name=key)
        await self._commands.execute("SET", key, sealed, "PXAT", sign_in.expires_at)

    def _key(self, sign_in_id: str) -> str:
        return f"identity:{self._tenant_id}:{self._site}-sign-in:{sign_in_id}"
