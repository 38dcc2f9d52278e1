"""The issuer's endpoints of the feed over HTTP: its keys, and the snapshot that every reader starts from."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

import httpx2 as httpx

from stead._transport.http import sender
from stead._transport.operations import run
from stead._transport.tls import default_ssl_context
from stead.errors import Unavailable
from stead.verify.feed.messages import InvalidFeed, Message, read_message, read_snapshot
from stead.verify.feed.state import FeedState
from stead.verify.key_source import KeyFreshness, KeySource
from stead.verify.keys import KeySet

_log = logging.getLogger("stead")

_MAX_SNAPSHOT_BYTES: Final = 512 * 1024 * 1024
_KEYS_FLOOR_S: Final = 1.0
_FIRST_RETRY_S: Final = 0.1
_LAST_RETRY_S: Final = 2.0

INTERRUPTIONS: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, Unavailable, ValueError)
"""Errors of reading over HTTP, after which reading is retried."""


class FeedEndpoint:
    """Reads keys and snapshots.

    Args:
        url: Of the snapshot; keys and events are below it.
        issuer: Of the tokens.
        auth: The credential of a client; None if the feed is public.
        timeout_s: Seconds of silence after which a request is aborted.
        clock: Returns seconds since the epoch.
        http: Client for all requests; None for one that is created and closed here.
    """

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
        self.url = url
        self.timeout_s = timeout_s
        self._issuer = issuer
        self._auth = auth
        self._timeout = httpx.Timeout(timeout_s)
        self._http = http
        self._keys = KeySource(
            f"{url}/jwks", freshness=KeyFreshness(floor_s=_KEYS_FLOOR_S), clock=clock, lock=threading.Lock()
        )
        self._send = sender(http, timeout_s=timeout_s)
        self._unusable: KeySet | None = None

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """Yield the client for requests; close it afterwards unless it was passed in."""
        if self._http is not None:
            yield self._http
            return
        with httpx.Client(verify=default_ssl_context()) as http:
            yield http

    def keys(self) -> KeySet:
        """Return the keys, fetched again after ``distrust``.

        Raises:
            Unavailable: They cannot be fetched.
        """
        keys = run(self._keys.keys(stale=self._unusable), self._send)
        self._unusable = None
        return keys

    def distrust(self, keys: KeySet | None) -> None:
        """Have keys fetched again before the next use: they may have been rotated."""
        self._unusable = keys

    def message(self, token: str, keys: KeySet) -> Message:
        """Verify a message.

        Raises:
            InvalidFeed: It is not accepted.
        """
        return read_message(token, keys, issuer=self._issuer)

    def load(self, http: httpx.Client, keys: KeySet, state: FeedState) -> None:
        """Replace the state with the current snapshot.

        Raises:
            InvalidFeed: It is not accepted.
            Unavailable: It was refused.
            httpx2.HTTPError: The issuer did not answer.
        """
        with self.get(http, self.url, {"Accept-Encoding": "gzip"}) as answer:
            require_ok(answer)
            body = bytearray()
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MAX_SNAPSHOT_BYTES:
                    raise InvalidFeed("the snapshot is too large")
        state.load(*read_snapshot(body, keys, issuer=self._issuer))

    def get(
        self, http: httpx.Client, url: str, headers: dict[str, str]
    ) -> contextlib.AbstractContextManager[httpx.Response]:
        """Begin a GET; its response is streamed."""
        return http.stream("GET", url, headers=headers, auth=self._auth, timeout=self._timeout, follow_redirects=False)


def require_ok(answer: httpx.Response) -> None:
    """Raise unless the status is 200.

    Raises:
        Unavailable: It is not.
    """
    if answer.status_code != httpx.codes.OK:
        raise Unavailable(f"the not-valid feed returned {answer.status_code}")


def repeat(
    attempt: Callable[[], None],
    state: FeedState,
    stopped: threading.Event,
    *,
    interruptions: tuple[type[BaseException], ...] = INTERRUPTIONS,
) -> None:
    """Follow the feed until stopped: restart after every failure, with a delay if there was no progress.

    Args:
        attempt: Follows the feed until it is interrupted; returns after a gap.
        state: Tells whether an attempt made progress.
        stopped: Whether to stop.
        interruptions: The expected errors of an attempt.
    """
    retry_s = _FIRST_RETRY_S
    while not stopped.is_set():
        reached = state.progress
        try:
            attempt()
        except InvalidFeed as invalid:
            _log.warning("the not-valid feed is not acceptable: %s", invalid)
        except interruptions as error:
            _log.warning("the not-valid feed was interrupted: %s", type(error).__name__)
        retry_s = _FIRST_RETRY_S if state.progress != reached else min(2 * retry_s, _LAST_RETRY_S)
        stopped.wait(retry_s)
