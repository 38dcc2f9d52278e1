"""The ASGI application of the verifier process: checks, health and metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from stead import AccessToken, AsyncAccessTokenVerifier, NotValidFeed, TokenInvalid, Unavailable
from stead.verify.bearer import (
    INVALID_TOKEN,
    ONE_ORGANIZATION,
    Refusal,
    bearer_token,
    insufficient_scope,
    invalid_request,
    unavailable,
)
from verifier.checks import Check, check_at, identity_headers

_Send = Callable[[Any], Awaitable[None]]

# nginx passes 401 and 403 on and turns any other error into a 500, so 401 replaces the 400 of RFC 6750 section 3.1.
_NOT_ONE_TOKEN: Final = invalid_request("The Authorization header is malformed or repeated.", status=401)
_BAD_REQUEST: Final = 400
_FIRST_FEED_S: Final = 10.0
_NO_STORE: Final = (b"cache-control", b"no-store")
_TEXT: Final = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class VerifierApplication:
    """Answers checks with 200 and the identity headers, 401, 403 or 503."""

    def __init__(self, verifier: AsyncAccessTokenVerifier, feed: NotValidFeed | None) -> None:
        """Create the application; it follows the feed, which its verifier uses too, while it runs."""
        self._verifier = verifier
        self._feed = feed
        self._running = ExitStack()
        self._waits_until = time.monotonic() + _FIRST_FEED_S
        self._registry = CollectorRegistry()
        self._checks = Counter("stead_verifier_checks", "Checks by outcome.", ["outcome"], registry=self._registry)
        if feed is not None:
            self._registry.register(_FeedCollector(feed))

    async def __call__(self, scope: Any, receive: Any, send: _Send) -> None:
        """Answer one request of any method; its body is ignored."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        check = check_at(scope["raw_path"])
        if check is not None:
            await self._answer_check(check, scope, send)
        elif scope["path"] == "/metrics":
            await _answer(send, 200, generate_latest(self._registry), _TEXT)
        elif scope["path"] == "/health/live":
            await _answer(send, 200)
        elif scope["path"] == "/health/ready":
            await _answer(send, 200 if await self._is_ready() else 503)
        else:
            await _answer(send, 404)

    async def _live(self, receive: Any, send: _Send) -> None:
        """Follow the feed from the start of the server to its end."""
        await receive()
        if self._feed is not None:
            self._running.enter_context(self._feed)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._running.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer_check(self, check: Check, scope: Any, send: _Send) -> None:
        judged = await self._judge(check, scope["headers"])
        if isinstance(judged, Refusal):
            self._checks.labels(str(judged.status)).inc()
            await judged.answer(scope, send)
            return
        self._checks.labels("200").inc()
        await _answer(send, 200, b"", *identity_headers(judged))

    async def _judge(self, check: Check, headers: list[tuple[bytes, bytes]]) -> AccessToken | Refusal:
        candidate = bearer_token(headers)
        if isinstance(candidate, Refusal):
            return _NOT_ONE_TOKEN if candidate.status == _BAD_REQUEST else candidate
        try:
            token = await self._verifier.verify(candidate, organization_aware=True)
        except TokenInvalid:
            return INVALID_TOKEN
        except Unavailable as outage:
            return unavailable(outage.retry_after)
        if token.organization_id is not None and not check.organization_aware:
            return ONE_ORGANIZATION
        return token if check.scopes <= token.scopes else insufficient_scope(check.scopes)

    async def _is_ready(self) -> bool:
        """Tell whether the issuer's keys are known, and the feed was read once or 10 s have passed since the start.

        From then on, ``when_stale`` decides about tokens while the feed cannot be read.
        """
        try:
            await self._verifier.fetch_keys()
        except Unavailable:
            return False
        return self._feed is None or self._feed.position is not None or time.monotonic() > self._waits_until


class _FeedCollector(Collector):
    """The state of the feed at the moment of a scrape."""

    def __init__(self, feed: NotValidFeed) -> None:
        self._feed = feed

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return the current values."""
        prefix, feed = "stead_verifier_feed", self._feed
        return [
            GaugeMetricFamily(f"{prefix}_fresh", "1 while heartbeats arrive, else 0.", value=int(feed.is_fresh)),
            GaugeMetricFamily(f"{prefix}_age_seconds", "Seconds since the last heartbeat.", value=feed.age_s),
            GaugeMetricFamily(f"{prefix}_records", "Records of the not-valid feed.", value=len(feed)),
            CounterMetricFamily(
                f"{prefix}_accepted_stale", "Tokens accepted while the feed was stale.", value=feed.accepted_stale
            ),
        ]


async def _answer(send: _Send, status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, _NO_STORE, *headers]})
    await send({"type": "http.response.body", "body": body})
