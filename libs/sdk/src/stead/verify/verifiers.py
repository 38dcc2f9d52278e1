"""Offline verification of access tokens: the only request is for the issuer's keys.

``AccessTokenVerifier`` (threads) and ``AsyncAccessTokenVerifier`` (tasks) run the same operation, described by
``access_tokens.TokenChecker`` and ``key_source.KeySource``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import httpx2 as httpx

from stead._transport.http import async_sender, issuer_at, sender
from stead._transport.operations import async_run, run
from stead.verify.access_tokens import AccessToken, Expectations, TokenChecker
from stead.verify.feed import NotValidFeed
from stead.verify.feed.entries import MAX_LEEWAY_S
from stead.verify.key_source import KeyFreshness, KeySource
from stead.verify.keys import SUPPORTED_ALGORITHMS
from stead.verify.step_up import SignInDemand

__all__ = ["AccessTokenVerifier", "AsyncAccessTokenVerifier"]


class AccessTokenVerifier:
    """Verifies access tokens with the keys that their issuer publishes. Safe for threads.

    ::

        verifier = AccessTokenVerifier(base_url="https://id.example.com", audience="https://api.example.com")
        try:
            access_token = verifier.verify(bearer_token)
        except TokenInvalid:
            ...  # answer 401
        if "read:orders" not in access_token.scopes:
            ...  # answer 403

    Keys are fetched when the first token arrives and cached for as long as the issuer allows (``Cache-Control:
    max-age``, 10 s to 24 h, 300 s by default). They are refreshed when a token names an unknown key. If the issuer does
    not answer, stale keys stay in use.

    A verified token is accepted until it expires, unless a ``feed`` names it, its user or its client as ended. Create
    one verifier per process, not one per request, since it holds the caches.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        issuer: str | None = None,
        audience: str,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = SUPPORTED_ALGORITHMS,
        leeway_s: float = 60.0,
        refresh_floor_s: float = 5.0,
        cache_size: int = 1024,
        timeout_s: float = 5.0,
        feed: NotValidFeed | None = None,
        reject_stale_permissions: bool = False,
        clock: Callable[[], float] = time.time,
        http: httpx.Client | None = None,
    ) -> None:
        """Create a verifier for one issuer and one audience; nothing is fetched yet.

        Args:
            base_url: Base address of the service; the issuer is ``{base_url}/oidc``.
            issuer: Instead of ``base_url``: the required value of ``iss``, compared byte for byte.
            audience: The required ``aud``, or a member of it: the resource indicator of your API.
            jwks_url: Address of the issuer's keys; ``{issuer}/jwks`` by default.
            algorithms: The accepted signature algorithms.
            leeway_s: Tolerated clock difference in seconds. With a feed at most 900: it drops a record that long after
                the tokens of the record have expired.
            refresh_floor_s: Minimum number of seconds between two requests for keys, whatever tokens arrive; at most
                1 s until the first has succeeded.
            cache_size: How many verified tokens to cache, as a hash with their claims; 0 disables the cache.
            timeout_s: Timeout of a request for keys in seconds; ignored if ``http`` is given.
            feed: The not-valid feed of this issuer, with which tokens are rejected that were ended before they expired.
            reject_stale_permissions: Whether tokens with permissions that were lost after they were issued (``pv``) are
                rejected too. By default a token keeps its scopes until it expires.
            clock: Returns seconds since the epoch.
            http: Client for fetching keys, for a proxy or your own certificates. You close it.

        Raises:
            ValueError: Not exactly one of ``base_url`` and ``issuer`` is given, one of them or the audience is invalid,
                an algorithm is not supported, stale permissions are to be rejected without a feed, or the leeway is
                larger than a feed allows.
        """
        issuer = _issuer(base_url, issuer)
        expected = Expectations(issuer=issuer, audience=audience, algorithms=tuple(algorithms), leeway_s=leeway_s)
        self._checker = TokenChecker(expected, cache_size=cache_size)
        self._clock = clock
        self._leeway_s = leeway_s
        self._check = _check_of(feed, leeway_s=leeway_s, reject_stale_permissions=reject_stale_permissions)
        self._source = KeySource(
            jwks_url or f"{issuer}/jwks",
            freshness=KeyFreshness(floor_s=refresh_floor_s),
            clock=clock,
            lock=threading.Lock(),
        )
        self._send = sender(http, timeout_s=timeout_s)

    def verify(self, token: str, *, audience: str | None = None, organization_aware: bool = False) -> AccessToken:
        """Return the claims of an access token.

        Args:
            token: As presented, without ``Bearer``.
            audience: Expected instead of the verifier's audience, for an API with several audiences.
            organization_aware: Also accept a token that is valid within one organization only. You must then compare
                ``organization_id`` with the organization that the request is about.

        Raises:
            TokenInvalid: The token is rejected; ``reason`` names the rule. Answer 401, except for
                ``organization_only``: that token is valid, but not here. Answer 403 ``insufficient_scope`` (RFC 6750
                section 3.1).
            Unavailable: There are no keys yet, and the issuer did not answer; or the feed is stale. Answer 503.
            ValueError: The audience is empty.
        """
        recalled = self._checker.recall(
            token,
            keys=self._source.fresh(),
            now=self._clock(),
            audience=audience,
            organization_aware=organization_aware,
        )
        if recalled is not None:
            return self._check(recalled)
        verification = self._checker.verification(
            token,
            keys_with=self._source.keys_with,
            clock=self._clock,
            audience=audience,
            organization_aware=organization_aware,
        )
        return self._check(run(verification, self._send))

    def require_sign_in(
        self, token: AccessToken, *, max_age_s: int | None = None, acr: str | None = None, accepts_actor: bool = False
    ) -> None:
        """Raise unless the user of a verified token has signed in recently or strongly enough; nothing is sent.

        ::

            verifier.require_sign_in(access_token, max_age_s=600, acr="urn:service:acr:mfa")

        Check the scopes first: a new sign-in does not help a user without them.

        Args:
            token: From ``verify``.
            max_age_s: How long ago the sign-in may be, in seconds; the tolerated clock difference is added.
            acr: The weakest accepted ``acr``: ``urn:service:acr:mfa``, in the namespace of the service, or ``phr``.
            accepts_actor: Whether the sign-in of an impersonation's actor counts. Without it exchanged tokens are
                refused, since their subject has not signed in.

        Raises:
            StepUpRequired: Answer 401, with its ``challenge`` in ``WWW-Authenticate`` (RFC 9470).
            ValueError: Neither ``max_age_s`` nor ``acr`` is given, or one is invalid.
        """
        demand = SignInDemand(max_age_s=max_age_s, acr=acr, accepts_actor=accepts_actor)
        demand.judge(token, now=self._clock(), leeway_s=self._leeway_s)

    def fetch_keys(self) -> None:
        """Fetch the issuer's keys unless they are known, as a readiness probe does.

        Raises:
            Unavailable: There are none yet, and the issuer did not answer.
        """
        run(self._source.keys(), self._send)


class AsyncAccessTokenVerifier:
    """Verifies access tokens in the tasks of one event loop; see ``AccessTokenVerifier``.

    ::

        verifier = AsyncAccessTokenVerifier(base_url="https://id.example.com", audience="https://api.example.com")
        access_token = await verifier.verify(bearer_token)
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        issuer: str | None = None,
        audience: str,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = SUPPORTED_ALGORITHMS,
        leeway_s: float = 60.0,
        refresh_floor_s: float = 5.0,
        cache_size: int = 1024,
        timeout_s: float = 5.0,
        feed: NotValidFeed | None = None,
        reject_stale_permissions: bool = False,
        clock: Callable[[], float] = time.time,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Create a verifier for one issuer and one audience; see ``AccessTokenVerifier`` for the arguments.

        Raises:
            ValueError: Not exactly one of ``base_url`` and ``issuer`` is given, one of them or the audience is invalid,
                an algorithm is not supported, stale permissions are to be rejected without a feed, or the leeway is
                larger than a feed allows.
        """
        issuer = _issuer(base_url, issuer)
        expected = Expectations(issuer=issuer, audience=audience, algorithms=tuple(algorithms), leeway_s=leeway_s)
        self._checker = TokenChecker(expected, cache_size=cache_size)
        self._clock = clock
        self._leeway_s = leeway_s
        self._check = _check_of(feed, leeway_s=leeway_s, reject_stale_permissions=reject_stale_permissions)
        self._source = KeySource(
            jwks_url or f"{issuer}/jwks",
            freshness=KeyFreshness(floor_s=refresh_floor_s),
            clock=clock,
            lock=asyncio.Lock(),
        )
        self._send = async_sender(http, timeout_s=timeout_s)

    async def verify(self, token: str, *, audience: str | None = None, organization_aware: bool = False) -> AccessToken:
        """Return the claims of an access token; see ``AccessTokenVerifier.verify``.

        Raises:
            TokenInvalid: The token is rejected; ``reason`` names the rule.
            Unavailable: There are no keys yet, and the issuer did not answer; or the feed is stale.
            ValueError: The audience is empty.
        """
        recalled = self._checker.recall(
            token,
            keys=self._source.fresh(),
            now=self._clock(),
            audience=audience,
            organization_aware=organization_aware,
        )
        if recalled is not None:
            return self._check(recalled)
        verification = self._checker.verification(
            token,
            keys_with=self._source.keys_with,
            clock=self._clock,
            audience=audience,
            organization_aware=organization_aware,
        )
        return self._check(await async_run(verification, self._send))

    def require_sign_in(
        self, token: AccessToken, *, max_age_s: int | None = None, acr: str | None = None, accepts_actor: bool = False
    ) -> None:
        """Raise unless the user has signed in recently or strongly enough; see ``AccessTokenVerifier.require_sign_in``.

        Raises:
            StepUpRequired: Answer 401, with its ``challenge`` in ``WWW-Authenticate`` (RFC 9470).
            ValueError: Neither ``max_age_s`` nor ``acr`` is given, or one is invalid.
        """
        demand = SignInDemand(max_age_s=max_age_s, acr=acr, accepts_actor=accepts_actor)
        demand.judge(token, now=self._clock(), leeway_s=self._leeway_s)

    async def fetch_keys(self) -> None:
        """Fetch the issuer's keys unless they are known, as a readiness probe does.

        Raises:
            Unavailable: There are none yet, and the issuer did not answer.
        """
        await async_run(self._source.keys(), self._send)


def _check_of(
    feed: NotValidFeed | None, *, leeway_s: float, reject_stale_permissions: bool
) -> Callable[[AccessToken], AccessToken]:
    """Return the last check of a verified token: against the feed, if there is one. It returns the token."""
    if feed is None:
        if reject_stale_permissions:
            raise ValueError("reject_stale_permissions needs a feed")
        return lambda token: token
    if leeway_s > MAX_LEEWAY_S:
        raise ValueError(f"leeway_s must be at most {MAX_LEEWAY_S} with a feed, which forgets what has expired")

    def check(token: AccessToken) -> AccessToken:
        feed.check(token, reject_stale_permissions=reject_stale_permissions)
        return token

    return check


def _issuer(base_url: str | None, issuer: str | None) -> str:
    if (base_url is None) == (issuer is None):
        raise ValueError("give either base_url or issuer")
    return issuer_at(base_url) if base_url is not None else str(issuer)
