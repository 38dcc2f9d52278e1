"""One HTTP/1.1 connection, with the bounds that the server underneath lacks.

Owns the limits on request heads, slow clients and the number of connections. Parsing and framing are uvicorn's.
"""

import asyncio
import weakref
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from identity_common.http.retrying import retry_after
from identity_common.stopping import notify_stopping

_SLICE_BYTES: Final = 16 * 1024
_HEAD_TOO_LARGE: Final = b"the head of the request is too large"


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a connection, and on the number of connections.

    Attributes:
        head_bytes: Size of a request line with its header fields; of the trailer fields; or of a chunk extension.
        head_fields: Number of header fields of one request.
        head_s: Seconds for a whole head to arrive, counted from its first byte, or from the connection's start.
        body_s: Seconds for a body to arrive, plus one for every ``body_bytes_per_s`` received.
        body_bytes_per_s: The rate below which a long body is aborted.
        check_s: Seconds between checks of all connections.
        connections: Open at the same time; the next one gets a 503.
    """

    head_bytes: int = 64 * 1024
    head_fields: int = 100
    head_s: float = 10.0
    body_s: float = 30.0
    body_bytes_per_s: int = 1024
    check_s: float = 1.0
    connections: int = 8192


class _JoinedWrites:
    """The transport of one cycle. Sends the head of a response together with the beginning of its body.

    One system call instead of two, each of which takes longer than the framing, and one packet for the client.

    Source:
        ASGI 3.0, "Response Start" (a server need not send the head before the first part of the body).
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head = b""
        self._has_begun = False

    def write(self, data: bytes) -> None:
        """Send data, but keep the head of the response until more follows in this tick of the event loop."""
        if self._has_begun or not self._cycle.response_started:  # before it, a 100 (Continue)
            self._transport.write(self._head + data if self._head else data)
            self._head = b""
        else:
            self._has_begun, self._head = True, data
            asyncio.get_running_loop().call_soon(self.flush)  # a stream may begin with its head, and nothing for long

    def flush(self) -> None:
        """Send the head if no body follows."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._transport.is_closing()


class HttpConnection(HttpToolsProtocol):
    """A connection that refuses oversized heads (RFC 6585 section 5) and requests that their client does not finish."""

    limits = ConnectionLimits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._running: RequestResponseCycle | None = None
        self._writes: _JoinedWrites | None = None  # of the running cycle
        self._unframed_bytes = 0  # received since the last body data, or since the message began
        self._fields = 0
        self._body_bytes = 0
        self._has_begun = False  # a request whose end has not arrived
        self._receives_body = False
        self._waits_since: float | None = None  # for the client to send the rest of a head or body

    # What the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or refuse it when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, b"too many connections", b"retry-after: %b\r\n" % retry_after(1).encode())
            return
        self._waits_since = self.loop.time()
        _watch(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, piece by piece, as long as the request stays within the limits."""
        if self._waits_since is None:
            data = data.lstrip(b"\r\n")  # empty lines before a request (RFC 9112 section 2.2) do not begin one
        start = 0
        while start < len(data) and not self.transport.is_closing():
            piece = data[start : start + min(_SLICE_BYTES, self.limits.head_bytes - self._unframed_bytes)]
            start += len(piece)
            self._unframed_bytes += len(piece)
            super().data_received(piece)
            if self._unframed_bytes >= self.limits.head_bytes:
                self._refuse(431, _HEAD_TOO_LARGE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every request of this connection; with pipelining the base class notifies only the last one."""
        self._waits_since = None
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._has_begun = True
        self._waits_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or trailer field; only the former become part of the request."""
        self._fields += 1
        if not self._receives_body and self._fields <= self.limits.head_fields:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, unless its head is too large."""
        if self._fields > self.limits.head_fields:
            raise ValueError("too many header fields")  # stops the parser, which ends in send_400_response
        super().on_headers_complete()
        self._unframed_bytes = self._body_bytes = 0
        self._receives_body = True
        self._waits_since = self.loop.time()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        super().on_body(body)
        self._unframed_bytes = 0
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        """Record that the whole request has arrived."""
        super().on_message_complete()
        self._unframed_bytes = self._fields = 0
        self._has_begun = self._receives_body = False
        self._waits_since = None

    # What the server calls

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed; a head that was aborted for its size is a 431."""
        if self._fields > self.limits.head_fields:
            self._refuse(431, _HEAD_TOO_LARGE)
        else:
            self._refuse(400, msg.encode("ascii"))

    def shutdown(self) -> None:
        """Release held requests, and take no further one on this connection: the server is stopping."""
        notify_stopping(self.loop)
        super().shutdown()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._writes = _JoinedWrites(cycle)
        cycle.transport = self._writes  # type: ignore[assignment]  # the part of a transport that a cycle uses
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Send the head of a response without a body, before the next response begins."""
        if self._writes is not None:
            self._writes.flush()
        super().on_response_complete()

    # Limits

    def end_if_overdue(self, now: float) -> None:
        """End the connection if its client has taken too long over a request."""
        if self._waits_since is None or self.transport.is_closing():
            return
        is_answering = self._running is not None and not self._running.response_complete
        if self.flow.read_paused or (is_answering and not self._receives_body):  # not the client's turn
            self._waits_since = now
            return
        limits = self.limits
        allowed_s = limits.head_s
        if self._receives_body:
            allowed_s = limits.body_s + self._body_bytes / limits.body_bytes_per_s
        if now - self._waits_since <= allowed_s:
            return
        if self._has_begun:
            self._refuse(408, b"the request took too long")
        else:
            self.transport.close()

    def _refuse(self, status: int, text: bytes, headers: bytes = b"") -> None:
        """Answer a request that is not passed to the application, and close the connection.

        Nothing is written into another response, or before a pending one: the client would mistake it for that one.
        """
        if self.transport.is_closing():
            return
        cycle = self._running
        is_own = self._receives_body and cycle is self.cycle and not self.cycle.response_started
        if cycle is None or cycle.response_complete or is_own:
            content = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(text)
            self.transport.write(STATUS_LINE[status] + content + headers + b"connection: close\r\n\r\n" + text)
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self._waits_since = None
        self.transport.close()


_watched: Final["weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.WeakSet[HttpConnection]]"] = (
    weakref.WeakKeyDictionary()
)


def _watch(connection: HttpConnection) -> None:
    """Check the connection periodically, with one timer for all connections of its event loop."""
    loop = connection.loop
    connections = _watched.get(loop)
    if connections is None:
        connections = _watched[loop] = weakref.WeakSet()
        loop.call_later(connection.limits.check_s, _check, loop, connection.limits.check_s)
    connections.add(connection)


def _check(loop: asyncio.AbstractEventLoop, check_s: float) -> None:
    now = loop.time()
    for connection in tuple(_watched[loop]):
        if connection.transport.is_closing():
            _watched[loop].discard(connection)
        else:
            connection.end_if_overdue(now)
    if _watched[loop]:
        loop.call_later(check_s, _check, loop, check_s)
    else:
        del _watched[loop]
