"""``Cache-Control`` for reads of the Management API, whose responses are about people and applications.

The client may store a response that has an entity tag, and must revalidate it; it must not store any other. A header
that a route sets itself stays. Does not own the header of other endpoints (keys, metadata, tokens, pages).
"""

from collections.abc import Awaitable
from typing import Final

from litestar.types import Message, Scope, Send

_READS: Final = frozenset({"GET", "HEAD"})
_REVALIDATED: Final = (b"cache-control", b"private, no-cache")
_NOT_STORED: Final = (b"cache-control", b"no-store")


def with_cache_control(scope: Scope, send: Send) -> Send:
    """Return the ``send`` for one request: it adds the header to the response to a read under ``/api/``."""
    if scope.get("method") not in _READS or not scope["path"].startswith("/api/"):
        return send

    def send_with_header(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            names = {name.lower() for name, _ in headers}
            if b"cache-control" not in names:
                message["headers"] = [*headers, _REVALIDATED if b"etag" in names else _NOT_STORED]
        return send(message)

    return send_with_header
