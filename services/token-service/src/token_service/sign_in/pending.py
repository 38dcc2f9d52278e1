"""Pending authorization requests, in Redis; each belongs to the browser that sent it.

Any visitor can cause one to be stored, so its size is limited by validation, the bytes per address by ``SourceLimit``,
and its lifetime until a user has signed in.
"""

import hashlib
import hmac
from collections.abc import Awaitable
from typing import Final

import msgspec

from identity_common.identifiers import new_secret
from identity_common.stores.redis import RedisCommands
from token_service.sign_in.request import AuthorizationRequest

PENDING_TTL_S: Final = 900
SIGNED_IN_TTL_S: Final = 3600
"""TTL, in seconds, of a request whose user has signed in and now decides about consent."""
ARRIVED_TTL_S: Final = 60
"""TTL, in seconds, of a request that came without the browser's cookies, and begins when the browser sends them."""

COUNTED_BYTES: Final = 6 * 1024
_ANY_BROWSER: Final = ""

# KEYS: the request, its challenge and its visit, which are not counted by themselves and must not outlive what is.
_TAKE: Final = """
redis.call('DEL', KEYS[2], KEYS[3])
return redis.call('DEL', KEYS[1])
"""


class PendingLink(msgspec.Struct, frozen=True, kw_only=True):
    """An identity at a provider whose owner has yet to sign in to the account that it is linked to.

    Attributes:
        link: What management-service needs; reaches no page.
        identifier: What the account signs in with.
        begun_at: When the browser was sent to the provider, milliseconds since the epoch.
    """

    connector_id: str
    link: str
    identifier: str
    begun_at: int = 0

    def __repr__(self) -> str:
        """Hide the secret."""
        return "PendingLink(…)"


class ProviderVisit(msgspec.Struct, frozen=True, kw_only=True, tag="provider-visit.v1"):
    """A browser that was sent to a provider for a pending request.

    Attributes:
        state_sha256: Hash of ``state``.
        code_verifier: Of PKCE.
        begun_at: Milliseconds since the epoch.
        max_age_s: How long ago the person may have signed in there; 0 if the provider must ask again.
        language: Of the pages.
    """

    connector_id: str
    state_sha256: str
    nonce: str
    code_verifier: str
    begun_at: int
    max_age_s: int | None = None
    language: str | None = None

    def __repr__(self) -> str:
        """Hide the secrets."""
        return "ProviderVisit(…)"


class Pending(msgspec.Struct, frozen=True, kw_only=True, tag="pending-authorization.v1"):
    """A request between two pages.

    Attributes:
        browser: Hash of the secret of the browser that sent it; a link to it does not work in another browser.
        csrf_token: Part of every form of its pages.
        weight: How many requests it counts as at its address.
        created_at: Milliseconds since the epoch; a later sign-in satisfies ``prompt=login`` and ``select_account``.
        link: The identity that the next sign-in links, if there is one.
    """

    request: AuthorizationRequest
    browser: str
    csrf_token: str
    created_at: int
    weight: int = 1
    link: PendingLink | None = None

    def __repr__(self) -> str:
        """Hide the secrets."""
        return "Pending(…)"


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Pending).decode
_decode_visit: Final = msgspec.json.Decoder(ProviderVisit).decode


def weight_of(request: AuthorizationRequest) -> int:
    """Return how many requests this one counts as: one for every 6 KiB begun, so that their bytes are limited."""
    return -(-len(_encode(request)) // COUNTED_BYTES)


class PendingAuthorizations:
    """The pending requests of one tenant."""

    def __init__(self, commands: RedisCommands, *, tenant_id: str) -> None:
        self._commands = commands
        self._tenant_id = tenant_id

    async def keep(
        self, request: AuthorizationRequest, *, browser_secret: str, now: int, is_signed_in: bool = False
    ) -> str:
        """Store a request; return its id, which is part of the pages' addresses.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        ttl_s = SIGNED_IN_TTL_S if is_signed_in else PENDING_TTL_S
        return await self._store(request, browser=_hash(browser_secret), now=now, ttl_s=ttl_s)

    async def keep_arrived(self, request: AuthorizationRequest, *, now: int) -> str:
        """Store a request until its browser, which is not known yet, sends its cookies; return its id.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return await self._store(request, browser=_ANY_BROWSER, now=now, ttl_s=ARRIVED_TTL_S)

    async def take_arrived(self, pending_id: str) -> Pending | None:
        """Return a request that ``keep_arrived`` has stored, and delete it; none if it is unknown or expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        stored = await self._commands.execute("GET", self._key(pending_id))
        if not stored or (pending := _decode(stored)).browser != _ANY_BROWSER:
            return None
        return pending if await self.take(pending_id) else None

    async def _store(self, request: AuthorizationRequest, *, browser: str, now: int, ttl_s: int) -> str:
        pending_id = new_secret()
        pending = Pending(
            request=request, browser=browser, csrf_token=new_secret(), created_at=now, weight=weight_of(request)
        )
        await self._commands.execute("SET", self._key(pending_id), _encode(pending), "EX", ttl_s)
        return pending_id

    def prolong(self, pending_id: str) -> Awaitable[object]:
        """Extend the TTL of a request whose user has signed in; sent at once, with what is sent in the same tick.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return self._commands.execute("EXPIRE", self._key(pending_id), SIGNED_IN_TTL_S)

    async def require_sign_in(self, pending_id: str, pending: Pending, *, now: int) -> None:
        """Require a sign-in later than ``now``, from any user; a no-op if the request has expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        prompts = pending.request.prompts - {"select_account"} | {"login"}
        request = msgspec.structs.replace(pending.request, prompts=prompts)
        await self._replace(pending_id, msgspec.structs.replace(pending, request=request, created_at=now))

    async def select_account(self, pending_id: str, pending: Pending, *, login_hint: str | None) -> Pending:
        """Record that the user has selected the account that is signed in; a no-op if the request has expired.

        Args:
            pending_id: The request's id.
            pending: The request.
            login_hint: Prefills the sign-in page, if the account must sign in again.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        prompts = pending.request.prompts - {"select_account"}
        request = msgspec.structs.replace(pending.request, prompts=prompts, login_hint=login_hint)
        selected = msgspec.structs.replace(pending, request=request)
        await self._replace(pending_id, selected)
        return selected

    async def finish_action(self, pending_id: str, pending: Pending) -> Pending:
        """Record that the user has done what the request's ``action`` asks for; a no-op if the request has expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        finished = msgspec.structs.replace(pending, request=msgspec.structs.replace(pending.request, action=None))
        await self._replace(pending_id, finished)
        return finished

    async def keep_link(self, pending_id: str, pending: Pending, link: PendingLink | None, *, now: int) -> None:
        """Require a sign-in later than ``now``, which links an identity; None: an earlier one no longer waits for it.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self.require_sign_in(pending_id, msgspec.structs.replace(pending, link=link), now=now)

    async def finish_link(self, pending_id: str, pending: Pending) -> None:
        """Record that the identity is linked; a no-op if the request has expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._replace(pending_id, msgspec.structs.replace(pending, link=None))

    async def keep_visit(self, pending_id: str, visit: ProviderVisit) -> None:
        """Store the visit of a request's browser to a provider, in place of an earlier one.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        encoded = msgspec.json.encode(visit)
        await self._commands.execute("SET", self._visit_key(pending_id), encoded, "EX", PENDING_TTL_S)

    async def take_visit(self, pending_id: str, *, state: str) -> ProviderVisit | None:
        """Return the visit that has this ``state``, and delete it; None if it was taken, or another has begun.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        stored = await self._commands.execute("GET", self._visit_key(pending_id))
        if not stored or not hmac.compare_digest((visit := _decode_visit(stored)).state_sha256, _hash(state)):
            return None
        return visit if await self._commands.execute("DEL", self._visit_key(pending_id)) else None

    async def find(self, pending_id: str | None, *, browser_secret: str | None) -> Pending | None:
        """Return a request of this browser; none if it is unknown or expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        if not pending_id or not browser_secret:
            return None
        stored = await self._commands.execute("GET", self._key(pending_id))
        if not stored:
            return None
        pending = _decode(stored)
        return pending if hmac.compare_digest(pending.browser, _hash(browser_secret)) else None

    async def take(self, pending_id: str) -> bool:
        """Delete a request; return whether it existed, so that only one of two answers to a page gets a code.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        keys = (self._key(pending_id), self._challenge_key(pending_id), self._visit_key(pending_id))
        return bool(await self._commands.execute("EVAL", _TAKE, len(keys), *keys))

    async def keep_challenge(self, pending_id: str, challenge: str, *, user_id: str | None) -> None:
        """Store the challenge that a page of a request has shown last, and to which user; None: not known yet.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        value = f"{challenge} {user_id or ''}"
        await self._commands.execute("SET", self._challenge_key(pending_id), value, "EX", PENDING_TTL_S)

    async def take_challenge(self, pending_id: str, *, user_id: str | None) -> str | None:
        """Return the challenge of a request, and delete it; None if it was taken, has expired, or is another user's.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        stored = await self._commands.execute("GETDEL", self._challenge_key(pending_id))
        challenge, _, of_user = (stored or b"").decode().partition(" ")
        return challenge if challenge and of_user == (user_id or "") else None

    async def _replace(self, pending_id: str, pending: Pending) -> None:
        await self._commands.execute("SET", self._key(pending_id), _encode(pending), "XX", "KEEPTTL")

    def _challenge_key(self, pending_id: str) -> str:
        return f"identity:{self._tenant_id}:passkey-challenge:{_hash(pending_id)}"

    def _visit_key(self, pending_id: str) -> str:
        return f"identity:{self._tenant_id}:provider-visit:{_hash(pending_id)}"

    def _key(self, pending_id: str) -> str:
        return f"identity:{self._tenant_id}:pending-authorization:{_hash(pending_id)}"


def state_hash(state: str) -> str:
    """Return the hash of ``state`` that a visit is stored with."""
    return _hash(state)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
