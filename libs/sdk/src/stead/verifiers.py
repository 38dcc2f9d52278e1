"""Verification of access tokens without asking anybody but the issuer for its keys.

``AccessTokenVerifier`` (threads) and ``AsyncAccessTokenVerifier`` (tasks) are a few lines each over the same decision
(``stead.verification``) and the same ``KeySet``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import httpx
import msgspec

from stead._key_source import AsyncKeySource, KeyFreshness, KeySource
from stead._keys import SUPPORTED_ALGORITHMS
from stead.errors import TokenInvalid
from stead.verification import AccessToken, Expectations, TokenChecker, read_claims, read_token

__all__ = ["AccessTokenVerifier", "AsyncAccessTokenVerifier"]


@functools.lru_cache(maxsize=64)
def _with_audience(expected: Expectations, audience: str) -> Expectations:
    return msgspec.structs.replace(expected, audience=audience)


class AccessTokenVerifier:
    """Verifies access tokens against the keys that their issuer publishes. Safe for threads.

    Fetches nothing until the first token comes. Keys are kept as long as the issuer says (``Cache-Control: max-age``,
    10 s to 24 h, otherwise 300 s), fetched anew when a token names a key that is not among them, and go on serving when
    they are old and the issuer does not answer.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = SUPPORTED_ALGORITHMS,
        leeway_s: float = 60.0,
        refresh_floor_s: float = 5.0,
        cache_size: int = 1024,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
        http: httpx.Client | None = None,
    ) -> None:
        """Prepare to verify the tokens of one issuer for one audience.

        Args:
            issuer: What ``iss`` must be, byte for byte.
            audience: What ``aud`` must be or contain: the resource indicator of the API that receives the tokens.
            jwks_url: Where the keys are; ``{issuer}/jwks`` if not given.
            algorithms: The signature algorithms that are allowed.
            leeway_s: By how many seconds clocks may differ.
            refresh_floor_s: At least so many seconds lie between two requests for keys, whatever tokens come.
            cache_size: How many tokens are remembered, by their hash and with what they say; 0 for none.
            timeout_s: Seconds to wait for the keys; does not apply to an ``http`` of your own.
            clock: Seconds since the epoch.
            http: Fetches the keys, if you need a proxy or certificates of your own; stays yours to close.

        Raises:
            ValueError: Issuer or audience is empty, or an algorithm is not supported.
        """
        self._expected = Expectations(issuer=issuer, audience=audience, algorithms=tuple(algorithms), leeway_s=leeway_s)
        self._checker = TokenChecker(self._expected, cache_size=cache_size)
        self._clock = clock
        self._source = KeySource(
            jwks_url or f"{issuer}/jwks",
            freshness=KeyFreshness(floor_s=refresh_floor_s),
            clock=clock,
            timeout_s=timeout_s,
            http=http,
        )

    def verify(self, token: str, *, audience: str | None = None, organization_aware: bool = False) -> AccessToken:
        """Return what the token says.

        Args:
            token: As it was presented.
            audience: What ``aud`` must be or contain, if this request is for something else than the verifier was made
                for: an API of several audiences, with one set of keys.
            organization_aware: Take a token that counts within one organization only as well. Its scopes are what its
                subject may do there: compare ``organization_id`` with the organization that the request is about.

        Raises:
            TokenInvalid: It is refused; whatever is passed in, this is the only refusal. As ``organization_only`` it is
                good and not for this: 403 ``insufficient_scope`` (RFC 6750 section 3.1).
            Unavailable: There are no keys yet, and the issuer did not answer.
            ValueError: The audience is empty.
        """
        expected = self._expected if audience is None else _with_audience(self._expected, audience)
        remembered = self._checker.recall(token)
        if remembered is not None and remembered.keys is self._source.keys():
            accepted = read_claims(remembered.payload, expected=expected, now=self._clock())
        else:
            unchecked = read_token(token, expected)
            keys = self._source.keys()
            if unchecked.key_id not in keys:
                keys = self._source.keys(unlike=keys)
            accepted = self._checker.check(unchecked, keys=keys, now=self._clock(), expected=expected)
        if accepted.organization_id is not None and not organization_aware:
            raise TokenInvalid("organization_only")
        return accepted


class AsyncAccessTokenVerifier:
    """Verifies access tokens in tasks of one event loop; otherwise the same as ``AccessTokenVerifier``."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = SUPPORTED_ALGORITHMS,
        leeway_s: float = 60.0,
        refresh_floor_s: float = 5.0,
        cache_size: int = 1024,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Prepare to verify the tokens of one issuer for one audience; see ``AccessTokenVerifier``.

        Raises:
            ValueError: Issuer or audience is empty, or an algorithm is not supported.
        """
        self._expected = Expectations(issuer=issuer, audience=audience, algorithms=tuple(algorithms), leeway_s=leeway_s)
        self._checker = TokenChecker(self._expected, cache_size=cache_size)
        self._clock = clock
        self._source = AsyncKeySource(
            jwks_url or f"{issuer}/jwks",
            freshness=KeyFreshness(floor_s=refresh_floor_s),
            clock=clock,
            timeout_s=timeout_s,
            http=http,
        )

    async def verify(self, token: str, *, audience: str | None = None, organization_aware: bool = False) -> AccessToken:
        """Return what the token says.

        Args:
            token: As it was presented.
            audience: What ``aud`` must be or contain, if this request is for something else than the verifier was made
                for: an API of several audiences, with one set of keys.
            organization_aware: Take a token that counts within one organization only as well. Its scopes are what its
                subject may do there: compare ``organization_id`` with the organization that the request is about.

        Raises:
            TokenInvalid: It is refused; whatever is passed in, this is the only refusal. As ``organization_only`` it is
                good and not for this: 403 ``insufficient_scope`` (RFC 6750 section 3.1).
            Unavailable: There are no keys yet, and the issuer did not answer.
            ValueError: The audience is empty.
        """
        expected = self._expected if audience is None else _with_audience(self._expected, audience)
        remembered = self._checker.recall(token)
        if remembered is not None and remembered.keys is await self._source.keys():
            accepted = read_claims(remembered.payload, expected=expected, now=self._clock())
        else:
            unchecked = read_token(token, expected)
            keys = await self._source.keys()
            if unchecked.key_id not in keys:
                keys = await self._source.keys(unlike=keys)
            accepted = self._checker.check(unchecked, keys=keys, now=self._clock(), expected=expected)
        if accepted.organization_id is not None and not organization_aware:
            raise TokenInvalid("organization_only")
        return accepted
