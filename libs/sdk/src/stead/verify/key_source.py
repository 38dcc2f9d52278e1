"""The issuer's JWKS: fetched on first use, cached for as long as the issuer allows, refreshed by one caller at a time.

``KeyFreshness`` decides when to fetch, ``KeySource`` describes how. No I/O.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final

import httpx2 as httpx

from stead._transport.http import shown_url
from stead._transport.operations import Acquire, Operation, Request, Steps
from stead.errors import Unavailable
from stead.verify.keys import KeySet

_log = logging.getLogger("stead")

_DEFAULT_MAX_AGE_S: Final = 300.0
_MIN_MAX_AGE_S: Final = 10.0
_MAX_MAX_AGE_S: Final = 86_400.0
_FIRST_FETCH_FLOOR_S: Final = 1.0  # without keys nothing can be verified: retry sooner
_MAX_DOCUMENT_BYTES: Final = 256 * 1024
_HEADERS: Final = {"Accept": "application/jwk-set+json, application/json"}


class KeyFreshness:
    """The cached keys and when to refresh them. The caller passes the time.

    When the clock is set back, a refresh is due at once rather than never.

    Attributes:
        keys: The latest keys; None before the first successful fetch.
    """

    __slots__ = ("_attempted_at", "_fetched_at", "_floor_s", "_max_age_s", "keys")

    def __init__(self, *, floor_s: float) -> None:
        self.keys: KeySet | None = None
        self._floor_s = floor_s
        self._max_age_s = 0.0
        self._fetched_at = 0.0
        self._attempted_at: float | None = None

    @property
    def floor_s(self) -> float:
        """Minimum number of seconds between two attempts."""
        return self._floor_s if self.keys is not None else min(self._floor_s, _FIRST_FETCH_FLOOR_S)

    def due(self, now: float, *, stale: KeySet | None = None) -> bool:
        """Tell whether to fetch the keys now.

        Args:
            now: Seconds.
            stale: The key set that lacks a wanted key; None if none is missing.
        """
        if self._attempted_at is not None and 0 <= now - self._attempted_at < self.floor_s:
            return False
        if self.keys is None or self.keys is stale:
            return True
        return not 0 <= now - self._fetched_at < self._max_age_s

    def fresh(self, now: float) -> KeySet | None:
        """Return the keys unless a refresh is due."""
        return None if self.due(now) else self.keys

    def fetched(self, keys: KeySet, *, max_age_s: float, now: float) -> None:
        """Record a successful fetch. Equal keys stay the same object, so that cached signatures stay valid."""
        if keys != self.keys:
            self.keys = keys
        self._max_age_s = max_age_s
        self._fetched_at = self._attempted_at = now

    def failed(self, now: float) -> None:
        """Record a failed fetch; the previous keys stay in use."""
        self._attempted_at = now

    def require(self, url: str) -> KeySet:
        """Return the keys, even stale ones.

        Args:
            url: Their address, for the error.

        Raises:
            Unavailable: None have ever been fetched.
        """
        if self.keys is None:
            raise Unavailable(f"the issuer's keys could not be fetched from {url}", retry_after=self.floor_s)
        return self.keys


class KeySource:
    """The issuer's keys: one caller refreshes them, the others use the stale ones meanwhile if they can.

    Args:
        path: Their address, below ``base_url``.
        base_url: The address that its requests are sent to; empty if the path is a whole address.
        freshness: The cache.
        clock: Returns seconds.
        lock: See ``Acquire``.
    """

    def __init__(
        self, path: str, *, base_url: str = "", freshness: KeyFreshness, clock: Callable[[], float], lock: Any
    ) -> None:
        self._request = Request(method="GET", path=path, headers=_HEADERS)
        self._shown_url = _shown(base_url + path)
        self._freshness = freshness
        self._clock = clock
        self._fetching = lock

    def fresh(self) -> KeySet | None:
        """Return the keys unless a refresh is due; never waits."""
        return self._freshness.fresh(self._clock())

    def keys_with(self, key_id: str) -> Steps[KeySet]:
        """Return the keys, refreshed if due, or if they lack one.

        Raises:
            Unavailable: There are none, and fetching them failed.
        """
        keys = yield from self.keys()
        return keys if key_id in keys else (yield from self.keys(stale=keys))

    def keys(self, *, stale: KeySet | None = None) -> Steps[KeySet]:
        """Return the keys, refreshed if due.

        Args:
            stale: A key set returned before that lacks a wanted key.

        Raises:
            Unavailable: There are none, and fetching them failed.
        """
        held = self._freshness.keys
        if not self._freshness.due(self._clock(), stale=stale):
            return self._freshness.require(self._shown_url)
        if (yield Acquire(self._fetching, wait=held is None or held is stale)):
            try:
                if self._freshness.due(self._clock(), stale=stale):  # unless refreshed while this caller waited
                    yield from self._refresh()
            finally:
                self._fetching.release()
        return self._freshness.require(self._shown_url)

    def _refresh(self) -> Operation[None]:
        try:
            keys, max_age_s = _parse((yield self._request))
        except Unavailable as no_answer:
            self._failed(no_answer.__context__ or no_answer)  # the transport's own error
        except (httpx.InvalidURL, ValueError) as error:
            self._failed(error)
        else:
            self._freshness.fetched(keys, max_age_s=max_age_s, now=self._clock())

    def _failed(self, error: BaseException) -> None:
        self._freshness.failed(self._clock())
        _log.warning("the issuer's keys could not be refreshed from %s: %s", self._shown_url, type(error).__name__)


def _shown(url: str) -> str:
    try:
        return shown_url(httpx.URL(url))
    except httpx.InvalidURL:
        return "an invalid address"


def _parse(answer: httpx.Response) -> tuple[KeySet, float]:
    if answer.status_code != httpx.codes.OK or len(answer.content) > _MAX_DOCUMENT_BYTES:
        raise ValueError("not a JWK Set")
    return KeySet.parse(answer.content), max_age(answer.headers)


def max_age(headers: httpx.Headers) -> float:
    """Return the freshness lifetime of a response in seconds: 10 to 86,400; 300 by default (RFC 9111 section 4.2)."""
    directives = headers.get("Cache-Control", "").lower()
    if re.search(r"\bno-(?:store|cache)\b", directives):
        return _MIN_MAX_AGE_S
    stated = re.search(r"\bmax-age=\"?(\d{1,10})", directives)
    if stated is None:
        return _DEFAULT_MAX_AGE_S
    age = headers.get("Age", "")  # time already spent in an intermediate cache
    left = int(stated[1]) - (int(age) if re.fullmatch(r"\d{1,10}", age) else 0)
    return min(max(float(left), _MIN_MAX_AGE_S), _MAX_MAX_AGE_S)
