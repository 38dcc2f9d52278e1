"""The feed as verifiers use it: kept current by a thread, looked up without I/O."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Self

import httpx2 as httpx

from stead._transport.http import issuer_at
from stead.errors import TokenInvalid, Unavailable
from stead.verify.access_tokens import AccessToken
from stead.verify.feed.endpoint import FeedEndpoint
from stead.verify.feed.http_source import HttpSource
from stead.verify.feed.state import FeedState

WhenStale = Literal["closed", "open"]

_STOP_S: Final = 1.0


class NotValidFeed:
    """What ends tokens before they expire, as the issuer tells its verifiers. Safe for threads and tasks.

    ::

        with NotValidFeed.over_http("https://id.example.com", client_id=..., client_secret=...) as feed:
            verifier = AccessTokenVerifier(base_url="https://id.example.com", audience=..., feed=feed)

    Within the ``with`` block a thread keeps it current. The feed is *fresh* while signed heartbeats arrive, one a
    second; a connection that is cut or silent, a replay, a gap or a forgery ends that. Tokens that a stale feed names
    are still refused; the others are refused (``Unavailable``: answer 503) or accepted, as configured.
    """

    def __init__(self, state: FeedState, follow: Callable[[FeedState, threading.Event], None]) -> None:
        """Use ``over_http`` or ``over_nats``."""
        self._state = state
        self._follow = follow
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._when_stale: tuple[WhenStale, WhenStale] = ("closed", "open")
        self._accepted_stale = 0

    @classmethod
    def over_http(
        cls,
        base_url: str,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        stale_after_s: float = 4.0,
        when_stale: WhenStale = "open",
        when_stale_impersonated: WhenStale = "closed",
        clock_leeway_s: float = 5.0,
        issuer: str | None = None,
        clock: Callable[[], float] = time.time,
        http: httpx.Client | None = None,
    ) -> Self:
        """Return a feed that is read over HTTP, from the moment it is entered.

        Args:
            base_url: Base address of the service.
            client_id: Id of any application with a secret; None if the operator made the feed public.
            client_secret: Its secret.
            stale_after_s: Seconds after the last heartbeat from which the feed is stale.
            when_stale: Whether tokens are refused (``closed``) or accepted (``open``) while the feed is stale.
            when_stale_impersonated: The same for tokens with ``act`` or ``gty``.
            clock_leeway_s: Tolerated difference between the clocks of issuer and verifier, in seconds. Older heartbeats
                that are replayed to a verifier at its start are detected beyond it.
            issuer: Of the tokens, if that is not ``{base_url}/oidc``.
            clock: Returns seconds since the epoch.
            http: Client for a proxy or your own certificates, used by another thread. You close it.

        Raises:
            ValueError: The address is invalid, ``stale_after_s`` is not positive, or ``clock_leeway_s`` is negative.
        """
        endpoint = _endpoint(base_url, client_id, client_secret, stale_after_s, clock, issuer, http)
        state = _state(stale_after_s, clock_leeway_s, clock)
        feed = cls(state, HttpSource(endpoint).follow)
        feed._when_stale = (when_stale_impersonated, when_stale)
        return feed

    @classmethod
    def over_nats(
        cls,
        nats_url: str,
        *,
        base_url: str,
        user: str | None = None,
        password: str | None = None,
        tenant_id: str = "default",
        tls: ssl.SSLContext | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        stale_after_s: float = 4.0,
        when_stale: WhenStale = "open",
        when_stale_impersonated: WhenStale = "closed",
        clock_leeway_s: float = 5.0,
        issuer: str | None = None,
        clock: Callable[[], float] = time.time,
        http: httpx.Client | None = None,
    ) -> Self:
        """Return a feed that is read over NATS, from the moment it is entered; needs the extra ``events``.

        The same messages as ``over_http``, without a connection to the issuer for each verifier. Keys and snapshots,
        at the start and after a gap, still come over HTTP, so the other parameters are those of ``over_http``.

        Args:
            nats_url: ``nats://host:port``, or the servers of a cluster separated by commas; may contain user and
                password, the same ones in each.
            base_url: Base address of the service.
            user: The NATS user, from the operator of the service.
            password: Its password.
            tenant_id: The tenant.
            tls: For ``tls://`` with your own certificates.
            client_id: Id of any application with a secret; None if the operator made the feed public.
            client_secret: Its secret.
            stale_after_s: Seconds after the last heartbeat from which the feed is stale.
            when_stale: Whether tokens are refused (``closed``) or accepted (``open``) while the feed is stale.
            when_stale_impersonated: The same for tokens with ``act`` or ``gty``.
            clock_leeway_s: Tolerated difference between the clocks of issuer and verifier, in seconds.
            issuer: Of the tokens, if that is not ``{base_url}/oidc``.
            clock: Returns seconds since the epoch.
            http: Client for a proxy or your own certificates, used by another thread. You close it.

        Raises:
            ImportError: The extra is not installed.
            ValueError: The address is invalid, ``stale_after_s`` is not positive, or ``clock_leeway_s`` is negative.
        """
        from stead.verify.feed.nats_source import NatsSource  # noqa: PLC0415 - nats-py is an extra

        endpoint = _endpoint(base_url, client_id, client_secret, stale_after_s, clock, issuer, http)
        state = _state(stale_after_s, clock_leeway_s, clock)
        source = NatsSource(nats_url, endpoint, tenant_id=tenant_id, user=user, password=password, tls=tls)
        feed = cls(state, source.follow)
        feed._when_stale = (when_stale_impersonated, when_stale)
        return feed

    def __enter__(self) -> Self:
        """Start the thread that follows the feed."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, args=(self._state, self._stopped), name="stead-not-valid-feed", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop following the feed, which then becomes stale."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    @property
    def is_fresh(self) -> bool:
        """Whether a heartbeat came recently and nothing before it is missing."""
        return self._state.is_fresh

    @property
    def age_s(self) -> float:
        """Seconds since the last heartbeat, infinite without one; for a metric."""
        return self._state.age_s

    @property
    def accepted_stale(self) -> int:
        """How many tokens were accepted while the feed was stale; for a metric."""
        return self._accepted_stale

    @property
    def position(self) -> tuple[int, int] | None:
        """Epoch and sequence reached; None before the first snapshot."""
        return self._state.position

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._state)

    def wait_until_fresh(self, timeout_s: float) -> bool:
        """Wait for the first heartbeat, blocking; return whether the feed is fresh."""
        deadline = time.monotonic() + timeout_s
        while not self.is_fresh and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.is_fresh

    def check(self, token: AccessToken, *, reject_stale_permissions: bool = False) -> None:
        """Refuse a verified access token that the feed names, or that needs a fresh feed.

        Verifiers with a feed call it themselves.

        Args:
            token: The token.
            reject_stale_permissions: See ``AccessTokenVerifier``.

        Raises:
            TokenInvalid: Its user, its client, its authorization or what else ``reason`` names was ended.
            Unavailable: The feed is stale, and such tokens are refused then.
        """
        ended = self._state.why_not_valid(token, stale_permissions=reject_stale_permissions)
        if ended == "permissions":
            raise TokenInvalid("stale_permissions")
        if ended is not None:
            raise TokenInvalid(f"ended_{ended}")  # type: ignore[arg-type]  # one reason for each kind
        if self._state.is_fresh:
            return
        is_impersonated = token.actor is not None or token.grant_type is not None
        if self._when_stale[0 if is_impersonated else 1] == "closed":
            raise Unavailable("the not-valid feed is stale", retry_after=1.0)
        self._accepted_stale += 1


def _endpoint(
    base_url: str,
    client_id: str | None,
    client_secret: str | None,
    timeout_s: float,
    clock: Callable[[], float],
    issuer: str | None,
    http: httpx.Client | None,
) -> FeedEndpoint:
    own_issuer = issuer_at(base_url)
    auth = None if client_id is None else httpx.BasicAuth(client_id, client_secret or "")
    return FeedEndpoint(
        f"{own_issuer}/not-valid", issuer=issuer or own_issuer, auth=auth, timeout_s=timeout_s, clock=clock, http=http
    )


def _state(stale_after_s: float, clock_leeway_s: float, clock: Callable[[], float]) -> FeedState:
    if stale_after_s <= 0 or clock_leeway_s < 0:
        raise ValueError("stale_after_s must be positive, clock_leeway_s not negative")
    return FeedState(stale_after_s=stale_after_s, clock_leeway_s=clock_leeway_s, clock=clock)
