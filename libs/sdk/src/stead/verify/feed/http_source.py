"""The feed over HTTP: the snapshot, then server-sent events."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Final

import httpx2 as httpx

from stead.verify.feed.endpoint import FeedEndpoint, repeat, require_ok
from stead.verify.feed.messages import InvalidFeed
from stead.verify.feed.state import FeedState, Gap
from stead.verify.keys import KeySet

_MAX_EVENT_BYTES: Final = 64 * 1024
_CONTINUED_ELSEWHERE: Final = 410


class HttpSource:
    """Reads the snapshot and the events, and reconnects after every failure."""

    def __init__(self, endpoint: FeedEndpoint) -> None:
        self._endpoint = endpoint
        self._needs_snapshot = True

    def follow(self, state: FeedState, stopped: threading.Event) -> None:
        """Follow the feed until stopped."""
        with self._endpoint.client() as http:
            repeat(partial(self._follow_once, http, state, stopped), state, stopped)

    def _follow_once(self, http: httpx.Client, state: FeedState, stopped: threading.Event) -> None:
        keys = self._endpoint.keys()
        try:
            self._read(http, keys, state, stopped)
        except Gap:
            self._needs_snapshot = True
        except InvalidFeed:
            self._endpoint.distrust(keys)
            raise

    def _read(self, http: httpx.Client, keys: KeySet, state: FeedState, stopped: threading.Event) -> None:
        if self._needs_snapshot:
            self._endpoint.load(http, keys, state)
            self._needs_snapshot = False
        epoch, sequence = state.position or (0, 0)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": f"{epoch}.{sequence}"}
        with self._endpoint.get(http, f"{self._endpoint.url}/events", headers) as answer:
            if answer.status_code == _CONTINUED_ELSEWHERE:
                raise Gap
            require_ok(answer)
            for token in _data_of(answer):
                if stopped.is_set():
                    return
                state.take(self._endpoint.message(token, keys))


def _data_of(answer: httpx.Response) -> Iterator[str]:
    """Yield the data of each event; ours have one line (WHATWG HTML section 9.2.6)."""
    held = b""
    for part in answer.iter_bytes():
        *lines, held = (held + part).split(b"\n")
        if len(held) > _MAX_EVENT_BYTES:
            raise InvalidFeed("an event is too large")
        yield from (line[5:].strip().decode("latin-1") for line in lines if line.startswith(b"data:"))
