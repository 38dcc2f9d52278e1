"""Conditional GETs: ``ETag`` on every JSON response, and 304 for a client that already has it (RFC 9110).

Owns the entity tags that are computed from a response. A handler with a cheaper one sets ``ETag`` itself;
``If-None-Match`` is compared here in both cases.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from litestar.types import ASGIApp, HTTPResponseStartEvent, Message, Receive, Scope, Send

from identity_common.entity_tags import is_known

_IF_NONE_MATCH: Final = b"if-none-match"
_BODY_HEADERS: Final = frozenset({b"content-type", b"content-length"})
Headers = list[tuple[bytes, bytes]]


def entity_tag(body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the strong entity tag of a response.

    It covers ``Total-Number`` of a page, because an unchanged page may gain a successor, and ``Link`` of a page without
    a total. A page that holds a whole list has the same tag for every requested size.
    """
    digest = hashlib.sha256(body)
    named = {name.lower(): value for name, value in headers}
    name = next((name for name in (b"total-number", b"link") if name in named), None)
    if name is not None:
        digest.update(b"\0" + name + b"\0" + named[name])
    return b'"' + digest.hexdigest()[:32].encode() + b'"'


def read_condition(scope: Scope) -> bytes:
    """Return the ``If-None-Match`` of a request; empty without one."""
    return b", ".join(value for name, value in scope["headers"] if name == _IF_NONE_MATCH)


def conditional(condition: bytes, body: bytes, headers: Headers) -> tuple[int, Headers]:
    """Return the status of a successful response, 200 or 304, and its headers with the entity tag."""
    etag = next((value for name, value in headers if name.lower() == b"etag"), None)
    if etag is None:
        etag = entity_tag(body, headers)
        headers = [*headers, (b"etag", etag)]
    if condition and is_known(etag, condition):
        return 304, [(name, value) for name, value in headers if name.lower() not in _BODY_HEADERS]
    return 200, headers


class ConditionalGet:
    """ASGI layer around an app; it buffers JSON responses to GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http" or scope["method"] != "GET":  # type: ignore[comparison-overlap,typeddict-item]
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Response(read_condition(scope), send))


class _Response:
    """A response that is being sent."""

    def __init__(self, condition: bytes, send: Send) -> None:
        self._condition = condition
        self._send = send
        self._start: HTTPResponseStartEvent | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_json(message):
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message["body"]
            if not message["more_body"]:
                await self._finish(self._start)
        else:
            await self._send(message)

    async def _finish(self, start: HTTPResponseStartEvent) -> None:
        status, headers = conditional(self._condition, self._body, list(start["headers"]))
        body = b"" if status == 304 else self._body
        await self._send({**start, "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _is_json(start: HTTPResponseStartEvent) -> bool:
    return start["status"] == 200 and any(
        name.lower() == b"content-type" and value.startswith(b"application/json") for name, value in start["headers"]
    )
