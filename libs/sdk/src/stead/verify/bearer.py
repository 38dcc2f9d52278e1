"""Bearer tokens in the headers of a request, and the error responses to requests without an acceptable one (RFC 6750).

The same for the middleware and the verifier process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from stead.errors import StepUpRequired

_Scope: TypeAlias = MutableMapping[str, Any]
_Send: TypeAlias = Callable[[Any], Awaitable[None]]

_BEARER: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9\-._~+/]+=*)")  # RFC 6750 section 2.1
_POLICY_VIOLATION: Final = 1008  # RFC 6455 section 7.4.1


class Refusal:
    """An error response (RFC 6750 section 3); a JSON body repeats the challenge."""

    __slots__ = ("_body", "_headers", "status")

    def __init__(
        self, status: int, error: str, description: str, *, challenge: str = "", headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        self.status = status
        self._body = msgspec.json.encode({"error": error, "error_description": description})
        named = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self._body))),
            ("Cache-Control", "no-store"),
            *([("WWW-Authenticate", challenge)] if challenge else []),
            *headers,
        ]
        self._headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in named]

    async def answer(self, scope: _Scope, send: _Send) -> None:
        """Send the response; on a WebSocket, fall back to closing it, which servers answer with 403."""
        prefix = ""
        if scope["type"] == "websocket":
            if "websocket.http.response" not in (scope.get("extensions") or {}):
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
            prefix = "websocket."
        start = {"type": f"{prefix}http.response.start", "status": self.status, "headers": list(self._headers)}
        await send(start)
        await send({"type": f"{prefix}http.response.body", "body": self._body})


# RFC 6750 section 3.1: without a bearer token, the challenge should not contain an error code.
NO_TOKEN: Final = Refusal(401, "unauthenticated", "An access token is required.", challenge="Bearer")
INVALID_TOKEN: Final = Refusal(
    401, "invalid_token", "The access token is not accepted.", challenge='Bearer error="invalid_token"'
)

# The token is valid, so RFC 6750 section 3.1 forbids invalid_token; no scope is named because none would help.
ONE_ORGANIZATION: Final = Refusal(
    403,
    "insufficient_scope",
    "The access token is valid within one organization only.",
    challenge='Bearer error="insufficient_scope"',
)


def invalid_request(description: str, *, status: int = 400) -> Refusal:
    """Return the response to a request that presents its token incorrectly."""
    return Refusal(status, "invalid_request", description, challenge='Bearer error="invalid_request"')


MALFORMED: Final = invalid_request("The Authorization header is malformed.")
REPEATED: Final = invalid_request("The request has more than one Authorization header.")


def insufficient_scope(required: frozenset[str]) -> Refusal:
    """Return the response to a token that lacks one of these scopes."""
    scope = " ".join(sorted(required))
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    return Refusal(403, "insufficient_scope", f"The access token must have the scope: {scope}", challenge=challenge)


def step_up(required: StepUpRequired) -> Refusal:
    """Return the response to a token whose user must sign in again, or more strongly (RFC 9470 section 3)."""
    description = "The user must sign in again, or with a second factor, as the challenge says."
    return Refusal(401, required.reason, description, challenge=required.challenge)


def unavailable(retry_after: float | None) -> Refusal:
    """Return the response while tokens cannot be verified; ``retry_after`` in seconds."""
    headers = [("Retry-After", str(max(1, math.ceil(retry_after or 1))))]
    return Refusal(503, "temporarily_unavailable", "Access tokens cannot be verified right now.", headers=headers)


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | Refusal:
    """Return the bearer token of a request's headers, or the response to a request without one.

    Source:
        RFC 6750 section 2.1.
    """
    values = [value for name, value in headers if name.lower() == b"authorization"]
    if not values:
        return NO_TOKEN
    if len(values) > 1:
        return REPEATED
    value = values[0].strip(b" \t")
    if value.partition(b" ")[0].lower() != b"bearer":
        return NO_TOKEN
    bearer = _BEARER.fullmatch(value)
    if bearer is None:
        return MALFORMED
    return bearer[1].decode("ascii")
