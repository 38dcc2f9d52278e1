"""Calls to addresses from configuration: which are made, and what counts as an answer."""

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from identity_common import outgoing
from identity_common.outgoing import OutgoingAnswer, OutgoingCallError, OutgoingCalls, is_public, url_problem
from tests.support.tls_terminator import Certificate
from tests.support.waiting import eventually_here

LOOPBACK = ("127.0.0.0/8", "::1/128")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers every connection with the same bytes, and keeps what it was sent."""

    def __init__(self, answer: bytes, *, pause_s: float = 0) -> None:
        self.answer, self.pause_s = answer, pause_s
        self.port = 0
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return writer.close()
        sized = re.search(rb"Content-Length: (\d+)", head)
        self.requests.append(head + (await reader.readexactly(int(sized[1])) if sized else b""))
        await asyncio.sleep(self.pause_s)
        try:
            writer.write(self.answer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.8"),
        *("192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::1", "2001:0:1::1", "2002:a9fe:a9fe::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%1"),
        *("fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1", "100:0:0:1::1", "5f00::1"),
        *("::ffff:0:10.0.0.1", "::ffff:0:127.0.0.1", "4000::1", "8000::1"),
    ],
)
def test_addresses_inside_networks_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


def test_addresses_of_the_internet_are_public() -> None:
    assert all(is_public(ip_address(each)) for each in ("93.184.216.34", "2606:4700::6810:84e5", "::ffff:8.8.8.8"))


@pytest.mark.parametrize(
    "url",
    [
        *("", "idp.example.com", "//idp.example.com", "https://", "https:///path", "ftp://idp.example.com"),
        *("https://user@idp.example.com", "https://u:p@idp.example.com", "https://idp.example.com#x", "file:///etc/x"),
        *("https://idp.example.com:0", "https://idp.example.com:99999", "https://idp.exämple.com", "https://a b"),
        *("https://idp.example.com\r\nX: y", "https://idp.example.com\\@127.0.0.1/"),
    ],
)
async def test_what_is_no_address_is_not_called(url: str) -> None:
    assert url_problem(url)
    with pytest.raises(OutgoingCallError):
        await OutgoingCalls(networks=()).get(url)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "0"],
)
async def test_nothing_is_sent_to_this_machine_in_any_notation(host: str) -> None:
    async with serving(Server(OK)) as server:
        for scheme in "https", "http":
            with pytest.raises(OutgoingCallError):
                await OutgoingCalls(networks=()).get(f"{scheme}://{host}:{server.port}/")
    assert server.connections == 0


async def test_a_name_is_resolved_once_and_the_judged_address_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS may answer differently a moment later: the second answer would be this machine."""
    async with serving(Server(OK)) as server:
        answers = [["203.0.113.9"], ["127.0.0.1"], ["10.0.0.1", "127.0.0.1"]]  # the first is of no network: refused
        asked: list[str] = []

        def resolving(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
            asked.append(host)
            found = answers.pop(0)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

        monkeypatch.setattr(socket, "getaddrinfo", resolving)
        calls = OutgoingCalls(networks=())
        url = f"https://idp.example.com:{server.port}/"
        for _ in range(3):
            with pytest.raises(OutgoingCallError, match="no public address"):
                await calls.get(url)
    assert asked == ["idp.example.com"] * 3
    assert server.connections == 0


async def test_the_addresses_that_may_be_called_are_tried_in_turn_and_the_others_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(Server(OK)) as server:

        def resolving(_: str, port: int, **__: Any) -> list[tuple[Any, ...]]:
            found = ("127.0.0.2", "127.0.0.9", "127.0.0.1")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

        monkeypatch.setattr(socket, "getaddrinfo", resolving)
        calls = OutgoingCalls(networks=["127.0.0.1/32", "127.0.0.2/32"])
        answer = await calls.get(f"http://idp.example.com:{server.port}/")
    assert answer == OutgoingAnswer(200, b"{}")


def test_a_name_that_takes_long_to_resolve_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of the loop resolve the names of the databases, too. It is a loop of its own: it has one thread."""
    started, ended = threading.Event(), threading.Event()

    def resolving(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        started.set()
        ended.wait()
        return []

    async def call() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = asyncio.create_task(OutgoingCalls(networks=()).get("https://idp.example.com/"))
        try:
            await eventually_here(started.is_set)
            async with asyncio.timeout(outgoing.DEADLINE_S):
                assert not await asyncio.to_thread(ended.is_set)
        finally:
            ended.set()
        with pytest.raises(OutgoingCallError, match="no public address"):
            await waiting

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    asyncio.run(call())


async def test_a_form_goes_to_a_named_network_with_its_headers() -> None:
    async with serving(Server(OK)) as server:
        url = f"http://127.0.0.1:{server.port}/token?a=b"
        answer = await OutgoingCalls(networks=LOOPBACK).post_form(
            url, {"code": "a b&c"}, {"Authorization": "Basic eA=="}
        )
    assert answer == OutgoingAnswer(200, b"{}")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert (first, body) == (b"POST /token?a=b HTTP/1.1", b"code=a+b%26c")
    assert {b"Authorization: Basic eA==", f"Host: 127.0.0.1:{server.port}".encode()} <= {*headers}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", "redirect"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "compressed"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (outgoing.MAX_ANSWER_BYTES + 1), "longer than 1024 KiB"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 2_000_000, "longer than 1024 KiB"),
        (b"\x00\x01 garbage\r\n\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000 + b"\r\n\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
async def test_what_is_no_whole_answer_is_refused(answer: bytes, problem: str) -> None:
    async with serving(Server(answer)) as server:
        with pytest.raises(OutgoingCallError, match=problem):
            await OutgoingCalls(networks=LOOPBACK).get(f"http://127.0.0.1:{server.port}/")
    assert server.connections == 1


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "DEADLINE_S", 0.05)
    async with serving(Server(OK, pause_s=30)) as server:
        with pytest.raises(OutgoingCallError, match="did not answer"):
            await OutgoingCalls(networks=LOOPBACK).get(f"http://127.0.0.1:{server.port}/")


async def test_the_certificate_is_verified_for_the_name(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path, "idp")
    trusting = ssl.create_default_context(cafile=certificate.path)
    async with serving(Server(OK), tls=certificate.context) as server:
        trusted, others = (OutgoingCalls(networks=LOOPBACK, context=each) for each in (trusting, None))
        assert (await trusted.get(f"https://localhost:{server.port}/")).status == 200
        for calls, host in (others, "localhost"), (trusted, "127.1"):
            with pytest.raises(OutgoingCallError, match="certificate is not valid"):
                await calls.get(f"https://{host}:{server.port}/")
