"""Where a verifier has its keys from: the issuer's JWKS, fetched when first needed and kept as long as the issuer says.

``KeyFreshness`` decides (no I/O, no lock); ``KeySource`` (threads) and ``AsyncKeySource`` (tasks) fetch, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Final

import httpx

from stead._keys import KeySet
from stead._tls import trusted
from stead.errors import Unavailable

_log = logging.getLogger("stead")

_DEFAULT_MAX_AGE_S: Final = 300.0
_MIN_MAX_AGE_S: Final = 10.0
_MAX_MAX_AGE_S: Final = 86_400.0
_FIRST_FETCH_FLOOR_S: Final = 1.0  # without any key nothing can be verified: ask again sooner
_MAX_DOCUMENT_BYTES: Final = 256 * 1024
_HEADERS: Final = {"Accept": "application/jwk-set+json, application/json"}


class KeyFreshness:
    """What is known of the issuer's keys, and whether it is time to ask again. The caller says what time it is.

    A clock that is set back makes everything due at once, rather than never.
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
        """Seconds between two attempts, whoever asks."""
        return self._floor_s if self.keys is not None else min(self._floor_s, _FIRST_FETCH_FLOOR_S)

    def due(self, now: float, *, unlike: KeySet | None = None) -> bool:
        """Tell whether to ask the issuer now.

        Args:
            now: Seconds.
            unlike: The keys that turned out not to be enough; None if nothing was missed.
        """
        if self._attempted_at is not None and 0 <= now - self._attempted_at < self.floor_s:
            return False
        if self.keys is None or self.keys is unlike:
            return True
        return not 0 <= now - self._fetched_at < self._max_age_s

    def fetched(self, keys: KeySet, *, max_age_s: float, now: float) -> None:
        """Take over what the issuer said. Equal keys stay the same object, so that what hangs on them stays valid."""
        if keys != self.keys:
            self.keys = keys
        self._max_age_s = max_age_s
        self._fetched_at = self._attempted_at = now

    def failed(self, now: float) -> None:
        """Remember that the issuer did not answer usably; what was there before goes on serving."""
        self._attempted_at = now

    def require(self) -> KeySet:
        """Return the keys, stale ones too.

        Raises:
            Unavailable: There have never been any.
        """
        if self.keys is None:
            raise Unavailable("the issuer's keys could not be fetched", retry_after=self.floor_s)
        return self.keys


class KeySource:
    """The issuer's keys for threads: one of them fetches, nobody else waits unless it must."""

    def __init__(
        self,
        url: str,
        *,
        freshness: KeyFreshness,
        clock: Callable[[], float],
        timeout_s: float,
        http: httpx.Client | None,
    ) -> None:
        self._url = url
        self._freshness = freshness
        self._clock = clock
        self._timeout_s = timeout_s
        self._http = http
        self._fetching = threading.Lock()

    def keys(self, *, unlike: KeySet | None = None) -> KeySet:
        """Return the keys; those that are merely too old serve everyone but the one that fetches.

        Raises:
            Unavailable: There are none and none could be fetched.
        """
        held = self._freshness.keys
        if not self._freshness.due(self._clock(), unlike=unlike):
            return self._freshness.require()
        must_wait = held is None or held is unlike
        if not self._fetching.acquire(blocking=must_wait):
            return self._freshness.require()
        try:
            if self._freshness.due(self._clock(), unlike=unlike):  # not done meanwhile by whom we waited for
                self._refresh()
        finally:
            self._fetching.release()
        return self._freshness.require()

    def _refresh(self) -> None:
        try:
            keys, max_age_s = _read(self._fetch())
        except (httpx.RequestError, httpx.InvalidURL, ValueError) as error:
            self._freshness.failed(self._clock())
            _log.warning("the issuer's keys could not be refreshed: %s", type(error).__name__)
        else:
            self._freshness.fetched(keys, max_age_s=max_age_s, now=self._clock())

    def _fetch(self) -> httpx.Response:
        if self._http is not None:
            return self._http.get(self._url, headers=_HEADERS, follow_redirects=False)
        # every few minutes: not worth a pool that someone must close
        with httpx.Client(timeout=self._timeout_s, verify=trusted()) as http:
            return http.get(self._url, headers=_HEADERS, follow_redirects=False)


class AsyncKeySource:
    """The issuer's keys for tasks of one event loop; otherwise the same as ``KeySource``."""

    def __init__(
        self,
        url: str,
        *,
        freshness: KeyFreshness,
        clock: Callable[[], float],
        timeout_s: float,
        http: httpx.AsyncClient | None,
    ) -> None:
        self._url = url
        self._freshness = freshness
        self._clock = clock
        self._timeout_s = timeout_s
        self._http = http
        self._fetching = asyncio.Lock()

    async def keys(self, *, unlike: KeySet | None = None) -> KeySet:
        """Return the keys; those that are merely too old serve everyone but the one that fetches.

        Raises:
            Unavailable: There are none and none could be fetched.
        """
        held = self._freshness.keys
        if not self._freshness.due(self._clock(), unlike=unlike):
            return self._freshness.require()
        must_wait = held is None or held is unlike
        if self._fetching.locked() and not must_wait:
            return self._freshness.require()
        async with self._fetching:
            if self._freshness.due(self._clock(), unlike=unlike):  # not done meanwhile by whom we waited for
                await self._refresh()
        return self._freshness.require()

    async def _refresh(self) -> None:
        try:
            keys, max_age_s = _read(await self._fetch())
        except (httpx.RequestError, httpx.InvalidURL, ValueError) as error:
            self._freshness.failed(self._clock())
            _log.warning("the issuer's keys could not be refreshed: %s", type(error).__name__)
        else:
            self._freshness.fetched(keys, max_age_s=max_age_s, now=self._clock())

    async def _fetch(self) -> httpx.Response:
        if self._http is not None:
            return await self._http.get(self._url, headers=_HEADERS, follow_redirects=False)
        async with httpx.AsyncClient(timeout=self._timeout_s, verify=trusted()) as http:
            return await http.get(self._url, headers=_HEADERS, follow_redirects=False)


def _read(answer: httpx.Response) -> tuple[KeySet, float]:
    if answer.status_code != httpx.codes.OK or len(answer.content) > _MAX_DOCUMENT_BYTES:
        raise ValueError("not a JWK Set")
    return KeySet.parse(answer.content), max_age(answer.headers)


def max_age(headers: httpx.Headers) -> float:
    """Return for how many seconds an answer may be kept: 10 to 86,400, and 300 if it does not say (RFC 9111 4.2)."""
    directives = headers.get("Cache-Control", "").lower()
    if re.search(r"\bno-(?:store|cache)\b", directives):
        return _MIN_MAX_AGE_S
    said = re.search(r"\bmax-age=\"?(\d{1,10})", directives)
    if said is None:
        return _DEFAULT_MAX_AGE_S
    age = headers.get("Age", "")  # what a cache between here and there has already used up
    left = int(said[1]) - (int(age) if re.fullmatch(r"\d{1,10}", age) else 0)
    return min(max(float(left), _MIN_MAX_AGE_S), _MAX_MAX_AGE_S)
