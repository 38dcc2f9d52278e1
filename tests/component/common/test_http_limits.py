"""Limits on one client: request heads, slow and unfinished requests, connections, aborted pipelines.

A server with the options of all our servers, in front of an application that echoes what it receives.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
import uvloop

from identity_common.http.connection import ConnectionLimits, HttpConnection
from identity_common.http.server import SERVER_OPTIONS
from tests.support.captured_logs import captured_logs
from tests.support.waiting import WAIT_S

QUICK = ConnectionLimits(head_s=0.3, body_s=0.3, body_bytes_per_s=1000, check_s=0.05, connections=8)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body and the header fields; ``/slow`` answers after one second."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    size, message = 0, {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    fields = [name.decode() for name, _ in scope["headers"]]
    body = json.dumps({"path": scope["path"], "size": size, "fields": fields}).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(limits: ConnectionLimits) -> Iterator[int]:
    """Run a server with these limits; yield its port."""
    protocol = type("Limited", (HttpConnection,), {"limits": limits})
    listener = socket.create_server(("127.0.0.1", 0))
    options = {**SERVER_OPTIONS, "http": protocol}
    server = uvicorn.Server(uvicorn.Config(echo, timeout_graceful_shutdown=1, **options))
    thread = threading.Thread(target=lambda: uvloop.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(WAIT_S)


@pytest.fixture(scope="module")
def usual() -> Iterator[int]:
    with served(HttpConnection.limits) as port:
        yield port


@pytest.fixture(scope="module")
def quick() -> Iterator[int]:
    with served(QUICK) as port:
        yield port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def rest(connection: socket.socket) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(65_536):
            received += data
    return received


def exchanged(port: int, request: bytes) -> bytes:
    with connect(port) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
            connection.sendall(request)
        return rest(connection)


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1]) if response else 0


def answered(port: int) -> bool:
    return status(exchanged(port, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")) == 200


HEAD = b"GET / HTTP/1.1\r\nConnection: close\r\n"


def padded(size: int) -> bytes:
    """Return a request whose head has exactly this many bytes."""
    return HEAD + b"X: " + b"x" * (size - len(HEAD) - 7) + b"\r\n\r\n"


@pytest.mark.parametrize(("size", "expected"), [(50_000, 200), (65_536, 200), (65_537, 431), (1_000_000, 431)])
def test_a_head_may_have_64_kib(usual: int, size: int, expected: int) -> None:
    assert status(exchanged(usual, padded(size))) == expected


@pytest.mark.parametrize(
    ("fields", "expected"), [(99, 200), (100, 431), (10_000, 431)], ids=["with Connection 100", "101", "10,001"]
)
def test_a_head_may_have_100_fields(usual: int, fields: int, expected: int) -> None:
    assert status(exchanged(usual, HEAD + b"a:\r\n" * fields + b"\r\n")) == expected


def test_a_target_of_100_kb_is_refused(usual: int) -> None:
    assert status(exchanged(usual, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")) == 431


def test_a_field_of_40_mb_is_not_read(usual: int) -> None:
    with connect(usual) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        sent = 0
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 40_000_000:
                connection.sendall(b"x" * 65_536)
                sent += 65_536
    assert answered(usual)


CHUNKED = b"POST / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhello\r\n0\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"a:b\r\n" * 50_000 + b"\r\n",
        b"5;" + b"x" * 100_000 + b"\r\nhello\r\n0\r\n\r\n",
    ],
    ids=["a trailer field of 100 kB", "250 kB of trailer fields", "a chunk extension of 100 kB"],
)
def test_the_framing_of_a_body_is_bounded(usual: int, body: bytes) -> None:
    assert status(exchanged(usual, CHUNKED + body)) == 431


def test_a_body_in_single_bytes_does_not_count_as_a_head(usual: int) -> None:
    response = exchanged(usual, CHUNKED + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n")
    assert json.loads(response.partition(b"\r\n\r\n")[2])["size"] == 30_000


def test_a_trailer_field_is_not_a_header_field(usual: int) -> None:
    response = exchanged(usual, CHUNKED + b"5\r\nhello\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
    assert json.loads(response.partition(b"\r\n\r\n")[2]) == {
        "path": "/",
        "size": 5,
        "fields": ["connection", "transfer-encoding"],
    }


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        (b"", 0),
        (b"GET / HT", 408),
        (b"GET / HTTP/1.1\r\nX-Half: ", 408),
        (b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", 408),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", 408),
        (b"GET / HTTP/1.1\r\n\r\nGET / HT", 408),
    ],
    ids=["nothing", "half a request line", "half a head", "half a body", "half a chunk", "half a second request"],
)
def test_an_unfinished_request_is_closed(quick: int, begun: bytes, expected: int) -> None:
    with connect(quick) as connection:
        connection.sendall(begun)
        received = rest(connection)
    assert status(received[received.rfind(b"HTTP/1.1") :] if received else b"") == expected


def test_a_slow_head_is_closed(quick: int) -> None:
    with connect(quick) as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(b"GET / HTTP/1.1\r\n")
        while True:
            connection.sendall(b"a:b\r\n")
            time.sleep(0.05)


@pytest.mark.heavy
def test_a_body_may_take_longer_at_a_sufficient_rate(quick: int) -> None:
    with connect(quick) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 10000\r\n\r\n")
        for _ in range(10):
            connection.sendall(b"x" * 1000)
            time.sleep(0.1)
        assert status(rest(connection)) == 200


@pytest.mark.heavy
def test_the_application_may_take_its_time(quick: int) -> None:
    """Empty lines after a body, and the start of the next request, do not cut it short."""
    for extra in (b"", b"\r\n\r\n", b"GET / HT"):
        with connect(quick) as connection:
            connection.sendall(b"POST /slow HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + extra)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_connections_beyond_the_limit_get_a_503(quick: int) -> None:
    keep = b"GET / HTTP/1.1\r\n\r\n"
    held = [connect(quick) for _ in range(QUICK.connections)]
    try:
        for connection in held:
            connection.sendall(keep)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        with connect(quick) as one_more:
            received = rest(one_more)
        assert status(received) == 503
        assert re.search(rb"retry-after: [123]\r\n", received)
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + WAIT_S
    while not answered(quick) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert answered(quick)


@pytest.mark.heavy
def test_a_refusal_never_becomes_the_answer_of_another_request(quick: int) -> None:
    """The second request of a pipeline is refused while the first is being answered."""
    with connect(quick) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\n\r\n" + padded(70_000))
        assert b"431" not in rest(connection)


@pytest.mark.heavy
def test_an_aborted_pipeline_logs_no_error(usual: int) -> None:
    with captured_logs("tests") as log:
        for _ in range(5):
            with connect(usual) as connection:
                connection.sendall(b"GET /slow HTTP/1.1\r\n\r\nGET /slow HTTP/1.1\r\n\r\n")
                time.sleep(0.1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        time.sleep(1.5)  # both requests are over; the second one was never started
        assert answered(usual)
    assert log.getvalue() == ""


def test_a_response_arrives_in_one_piece(usual: int) -> None:
    with connect(usual) as connection:
        for _ in range(20):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert connection.recv(65_536).endswith(b"}")


def test_a_head_without_a_body_is_sent_before_the_next_response(usual: int) -> None:
    received = exchanged(usual, b"HEAD / HTTP/1.1\r\n\r\n" + HEAD + b"\r\n")

    first, second, body = received.split(b"\r\n\r\n")
    assert [status(first), status(second)] == [200, 200]
    assert json.loads(body)["fields"] == ["connection"]


def test_a_last_head_without_a_body_is_sent_before_the_connection_closes(usual: int) -> None:
    assert status(exchanged(usual, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")) == 200


def test_a_client_that_waits_to_send_its_body_is_told_to(usual: int) -> None:
    with connect(usual) as connection:
        connection.sendall(HEAD.replace(b"GET", b"POST") + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert b'"size": 3' in rest(connection)
