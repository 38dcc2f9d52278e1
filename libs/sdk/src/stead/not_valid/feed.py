"""The feed as verifiers use it: kept current by a thread, looked up without I/O."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Literal, Self

import httpx2 as httpx

from stead._http import issuer_at
from stead._key_source import KeyFreshness, KeySource
from stead._keys import KeySet
from stead._tls import default_ssl_context
from stead.errors import TokenInvalid, Unavailable
from stead.not_valid._state import FeedState, Gap
from stead.not_valid.messages import InvalidFeed, read_message, read_snapshot
from stead.verification import AccessToken

_log = logging.getLogger("stead")

WhenStale = Literal["closed", "open"]

_MAX_SNAPSHOT_BYTES: Final = 512 * 1024 * 1024
_MAX_EVENT_BYTES: Final = 64 * 1024
_KEYS_FLOOR_S: Final = 1.0
_FIRST_RETRY_S: Final = 0.1
_LAST_RETRY_S: Final = 2.0
_STOP_S: Final = 1.0
_CONTINUED_ELSEWHERE: Final = 410


class NotValidFeed:
    """What no verifier should accept any more, as the issuer knew it a moment ago. Safe for threads and tasks.

    ::

        with NotValidFeed.over_http("https://id.example.com", client_id=..., client_secret=...) as feed:
            verifier = AccessTokenVerifier(base_url="https://id.example.com", audience=..., feed=feed)

    A thread keeps it current from entering to leaving. The feed is *fresh* while signed heartbeats arrive, one a
    second; a connection that is cut or silent, a replay, a gap or a forgery ends that. What a stale feed names is still
    refused. What it does not name is refused (``Unavailable``: answer 503) or accepted as configured.
    """

    def __init__(self, state: FeedState, follow: Callable[[FeedState, threading.Event], None]) -> None:
        """Use ``over_http``."""
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
            clock_leeway_s: Tolerated difference between the clocks of issuer and verifier. A replay of older heartbeats
                to a verifier that has just started is noticed from here on.
            issuer: Of the tokens, if that is not ``{base_url}/oidc``.
            clock: Returns seconds since the epoch.
            http: Client for a proxy or certificates of your own, used by another thread. You close it.

        Raises:
            ValueError: The address is invalid, or a number is not positive.
        """
        if stale_after_s <= 0 or clock_leeway_s < 0:
            raise ValueError("stale_after_s must be positive, clock_leeway_s not negative")
        own_issuer = issuer_at(base_url)
        auth = None if client_id is None else httpx.BasicAuth(client_id, client_secret or "")
        source = _HttpSource(
            f"{own_issuer}/not-valid",
            issuer=issuer or own_issuer,
            auth=auth,
            timeout_s=stale_after_s,
            clock=clock,
            http=http,
        )
        state = FeedState(stale_after_s=stale_after_s, clock_leeway_s=clock_leeway_s, clock=clock)
        feed = cls(state, source.follow)
        feed._when_stale = (when_stale_impersonated, when_stale)
        return feed

    def __enter__(self) -> Self:
        """Begin to follow the feed, in a thread."""
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
        """Stop following; from then on the feed becomes stale."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    @property
    def is_fresh(self) -> bool:
        """Whether a heartbeat came recently and nothing before it is missing."""
        return self._state.is_fresh

    @property
    def accepted_stale(self) -> int:
        """How many tokens were accepted while the feed was stale; for a metric."""
        return self._accepted_stale

    @property
    def position(self) -> tuple[int, int] | None:
        """Epoch and sequence that are known; None before the first snapshot."""
        return self._state.position

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._state)

    def wait_until_fresh(self, timeout_s: float) -> bool:
        """Wait at a start for the first heartbeat; return whether the feed is fresh."""
        deadline = time.monotonic() + timeout_s
        while not self.is_fresh and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.is_fresh

    def check(self, token: AccessToken) -> None:
        """Refuse a verified access token that the feed names, or that needs a fresh feed.

        Verifiers with a feed call it themselves.

        Raises:
            TokenInvalid: Its user, client, authorization or whatever else ``reason`` names was ended.
            Unavailable: The feed is stale, and such tokens are refused then.
        """
        ended = self._state.why_not_valid(token)
        if ended is not None:
            raise TokenInvalid(f"ended_{ended}")  # type: ignore[arg-type]  # one reason for each kind
        if self._state.is_fresh:
            return
        is_impersonated = token.actor is not None or token.grant_type is not None
        if self._when_stale[0 if is_impersonated else 1] == "closed":
            raise Unavailable("the not-valid feed is stale", retry_after=1.0)
        self._accepted_stale += 1


class _HttpSource:
    """Reads snapshot and events, and begins again after every failure."""

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        auth: httpx.BasicAuth | None,
        timeout_s: float,
        clock: Callable[[], float],
        http: httpx.Client | None,
    ) -> None:
        self._url = url
        self._issuer = issuer
        self._auth = auth
        self._timeout = httpx.Timeout(timeout_s)
        self._http = http
        self._keys = KeySource(
            f"{url}/jwks",
            freshness=KeyFreshness(floor_s=_KEYS_FLOOR_S),
            clock=clock,
            timeout_s=timeout_s,
            http=http,
        )
        self._needs_snapshot = True

    def follow(self, state: FeedState, stopped: threading.Event) -> None:
        """Follow the feed until told to stop."""
        with contextlib.ExitStack() as closing:
            http = self._http or closing.enter_context(httpx.Client(verify=default_ssl_context()))
            retry_s, unusable = _FIRST_RETRY_S, None
            while not stopped.is_set():
                reached = state.position
                keys: KeySet | None = None
                try:
                    keys = self._keys.keys(stale=unusable)
                    unusable = None
                    self._follow_once(http, keys, state, stopped)
                except Gap:
                    self._needs_snapshot = True
                except InvalidFeed as invalid:
                    unusable = keys  # they may have been rotated
                    _log.warning("the not-valid feed is not acceptable: %s", invalid)
                except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, Unavailable, ValueError) as error:
                    _log.warning("the not-valid feed was interrupted: %s", type(error).__name__)
                retry_s = _FIRST_RETRY_S if state.position != reached else min(2 * retry_s, _LAST_RETRY_S)
                stopped.wait(retry_s)

    def _follow_once(self, http: httpx.Client, keys: KeySet, state: FeedState, stopped: threading.Event) -> None:
        if self._needs_snapshot:
            self._load(http, keys, state)
            self._needs_snapshot = False
        epoch, sequence = state.position or (0, 0)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": f"{epoch}.{sequence}"}
        with self._get(http, f"{self._url}/events", headers) as answer:
            if answer.status_code == _CONTINUED_ELSEWHERE:
                raise Gap
            self._require_ok(answer)
            for token in _data_of(answer):
                if stopped.is_set():
                    return
                state.take(read_message(token, keys, issuer=self._issuer))

    def _load(self, http: httpx.Client, keys: KeySet, state: FeedState) -> None:
        with self._get(http, self._url, {"Accept-Encoding": "gzip"}) as answer:
            self._require_ok(answer)
            body = bytearray()
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MAX_SNAPSHOT_BYTES:
                    raise InvalidFeed("the snapshot is too large")
        state.load(*read_snapshot(bytes(body), keys, issuer=self._issuer))

    def _get(
        self, http: httpx.Client, url: str, headers: dict[str, str]
    ) -> contextlib.AbstractContextManager[httpx.Response]:
        return http.stream("GET", url, headers=headers, auth=self._auth, timeout=self._timeout, follow_redirects=False)

    def _require_ok(self, answer: httpx.Response) -> None:
        if answer.status_code != httpx.codes.OK:
            raise Unavailable(f"the not-valid feed was answered {answer.status_code}")


def _data_of(answer: httpx.Response) -> Iterator[str]:
    """Yield the data of each event; ours have one line (WHATWG HTML section 9.2.6)."""
    held = b""
    for part in answer.iter_bytes():
        *lines, held = (held + part).split(b"\n")
        if len(held) > _MAX_EVENT_BYTES:
            raise InvalidFeed("an event is too large")
        yield from (line[5:].strip().decode("latin-1") for line in lines if line.startswith(b"data:"))
