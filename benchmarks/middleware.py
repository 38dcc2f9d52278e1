"""The CPU time that Stead's ``AccessTokenMiddleware`` adds to a request.

Measured in this process, with a trivial ASGI application, called alternately bare and behind the middleware, and a real
token of the running token-service.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from statistics import median
from typing import Any, Final

import uvloop

from stead import AsyncAccessTokenVerifier
from stead.verify.middleware import AccessTokenMiddleware

_REQUESTS: Final = 2_000
_ROUNDS: Final = 9
_TARGET_US: Final = 150.0
_NO_CACHE: Final = 0

_Application = Callable[[Any, Any, Any], Awaitable[None]]


async def _trivial(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def _cpu_us(application: _Application, access_token: str) -> float:
    """Return the CPU time of a request, microseconds."""
    headers = [(b"host", b"api.example.com"), (b"authorization", b"Bearer " + access_token.encode())]
    statuses = []

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    begun = time.process_time()
    for _ in range(_REQUESTS):
        scope = {"type": "http", "method": "GET", "path": "/orders/17", "query_string": b"", "headers": headers}
        await application(scope, None, send)
    used = time.process_time() - begun
    if set(statuses) != {200}:
        raise RuntimeError(f"the middleware refused a valid token: {set(statuses)}")
    return used / _REQUESTS * 1e6


async def _overhead_us(access_token: str, verifier: AsyncAccessTokenVerifier) -> float:
    """Return the CPU time that the middleware adds: the median of the rounds."""
    routes = {"GET /orders": "read:orders", "GET /orders/{order_id}": "read:orders", "POST /orders": "write:orders"}
    guarded = AccessTokenMiddleware(_trivial, verifier=verifier, routes=routes)
    await _cpu_us(guarded, access_token)  # fetches the keys
    return median(
        [await _cpu_us(guarded, access_token) - await _cpu_us(_trivial, access_token) for _ in range(_ROUNDS)]
    )


async def _measured(access_token: str, issuer: str, audience: str, jwks_url: str) -> tuple[float, float]:
    found = []
    for cache_size in (_NO_CACHE, 1024):
        verifier = AsyncAccessTokenVerifier(issuer=issuer, audience=audience, jwks_url=jwks_url, cache_size=cache_size)
        found.append(await _overhead_us(access_token, verifier))
    first_seen, seen_before = found
    return first_seen, seen_before


def lines(*, access_token: str, issuer: str, audience: str, jwks_url: str) -> Iterator[str]:
    """Measure, and yield the results line by line."""
    first_seen, seen_before = uvloop.run(_measured(access_token, issuer, audience, jwks_url))
    met = "met   " if first_seen < _TARGET_US else "MISSED"
    yield f"AccessTokenMiddleware: {first_seen:.0f} µs per request with a new token, {seen_before:.0f} µs with a cached"
    yield f"{met}  AccessTokenMiddleware, new token: {first_seen:.0f} µs (target: {_TARGET_US:.0f} µs)"
