"""Request ids, request metrics and the log line of a failed request: one ASGI layer around an app.

``X-Request-Id`` is a header of every response and a field of every log line; a well-formed one from the client is kept.
"""

import re
from collections.abc import Awaitable, Iterable
from time import perf_counter
from typing import Final

from litestar.types import ASGIApp, HTTPSendMessage, Message, Receive, Scope, Send

from identity_common.identifiers import new_token_id
from identity_common.telemetry.logs import REQUEST_ID, get_logger
from identity_common.telemetry.metrics import HttpMetrics

_log = get_logger(__name__)

HEADER: Final = b"x-request-id"
_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9-]{1,64}")


class Observation:
    """ASGI layer that sets the id of every request, records its metrics, and logs responses with 500 and above."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        method = str(scope["method"])  # type: ignore[typeddict-item]
        request_id = request_id_of(scope["headers"])
        status = 500

        def observed_send(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                start: HTTPSendMessage = message
                start["headers"] = [*start.get("headers", []), (HEADER, request_id)]  # type: ignore[typeddict-unknown-key,misc]
                status = message["status"]
            return send(message)

        before = REQUEST_ID.set(request_id.decode())
        started = perf_counter()
        try:
            await self._app(scope, receive, observed_send)
        finally:
            route = scope.get("path_template") or "unmatched"
            self._metrics.observe(method, route, status, perf_counter() - started)
            if status >= 500 and not route.startswith("/health/"):
                _log.warning("request.answered", method=method, route=route, status=status)
            REQUEST_ID.reset(before)


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id that the client sent, if it is well formed, or a new one."""
    given = next((value for name, value in headers if name == HEADER), b"")
    return given if is_well_formed(given) else new_token_id().encode()


def is_well_formed(request_id: bytes) -> bool:
    """Return whether an id from a client may be written to logs."""
    return _WELL_FORMED.fullmatch(request_id) is not None
