"""The connection to the bus: it is made again, for ever, however it ended."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.standing_subscription import StandingSubscription
from provision.errors import ProvisionError
from provision.streams import change_streams
from stead import Unavailable
from stead.events import EventBus
from tests.support.captured_logs import captured_logs
from tests.support.management_api import unique
from tests.support.own_servers import OwnServers
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S, eventually_here, round_trip

pytestmark = pytest.mark.heavy

CONNECTIONS = 20


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServers]:
    with OwnServers(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
def url(own: OwnServers) -> str:
    return own.addresses.management_nats_url


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    with captured_logs("tests") as log:
        yield log


@asynccontextmanager
async def started(url: str) -> AsyncIterator[Bus]:
    bus = Bus(url, service="management")
    bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


async def connected(bus: Bus) -> None:
    async with asyncio.timeout(WAIT_S):
        await bus.connected()


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"].startswith("bus.")]


class Echo:
    """Hears on a subject what it says there itself."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._subject = f"identity-relay.{unique('t')}.management"
        self._heard: set[bytes] = set()
        self.subscription = StandingSubscription(bus, self._subject, self._hear, name="echo")

    async def _hear(self, message: Msg) -> None:
        self._heard.add(message.data)

    async def is_heard(self) -> None:
        """Return once a message arrives."""
        said = unique("said").encode()
        async with asyncio.timeout(WAIT_S):
            while said not in self._heard:
                with suppress(NatsError):
                    await self._bus.client.publish(self._subject, said)
                await asyncio.sleep(0.01)


async def test_a_refused_login_is_tried_until_it_succeeds_and_told_once(
    own: OwnServers, url: str, log: io.StringIO
) -> None:
    async with started(url) as bus:
        echo = Echo(bus)
        echo.subscription.start()
        await connected(bus)
        await echo.is_heard()
        async with own.refused_by_nats():
            assert not bus.is_connected
        await connected(bus)
        await echo.is_heard()
        await echo.subscription.stop()
    told = [
        (line["event"], line["level"], line.get("reason"))
        for line in lines(log)
        if line["event"] != "bus.unreachable"  # the server may close the connection before it says why
    ]
    assert told == [
        ("bus.connected", "info", None),
        ("bus.disconnected", "warning", None),
        ("bus.login-refused", "error", "authorization violation"),
        ("bus.connected", "info", None),
        ("bus.disconnected", "warning", None),
    ]
    assert url.split(":")[2].partition("@")[0] not in log.getvalue()


async def test_a_service_that_starts_with_a_refused_login_connects_once_it_is_accepted(
    own: OwnServers, url: str, log: io.StringIO
) -> None:
    bus = Bus(url, service="management")
    echo = Echo(bus)
    echo.subscription.start()
    async with own.refused_by_nats(then=bus.start):
        assert not bus.is_connected
        with pytest.raises(NatsError):
            await bus.client.publish("identity-relay.t.management", b"")
    await connected(bus)
    await echo.is_heard()
    await echo.subscription.stop()
    await bus.stop()
    told = [line["event"] for line in lines(log) if line["event"] != "bus.unreachable"]
    assert told == ["bus.login-refused", "bus.connected", "bus.disconnected"]


async def test_a_connection_that_never_finishes_closing_is_made_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(url) as bus:
        await connected(bus)
        monkeypatch.setattr(bus.client._transport, "wait_closed", asyncio.Event().wait)
        closing = asyncio.create_task(bus.client.close())
        await eventually_here(lambda: bus.connections == 2)
        await connected(bus)
        closing.cancel()


async def test_nothing_is_left_of_earlier_connections(url: str) -> None:
    """Each is cut while it has data to write, and with a subscription."""

    def left() -> tuple[int, int]:
        """Return the number of tasks and open files; other tests' services in this process have some, too."""
        return len(asyncio.all_tasks()), len([*Path("/proc/self/fd").iterdir()])

    def is_at_most(before: tuple[int, int]) -> bool:
        return all(now <= then for now, then in zip(left(), before, strict=True))

    async with TcpProxy(url) as proxy, started(proxy.url) as bus:
        echo = Echo(bus)
        echo.subscription.start()
        await connected(bus)
        await echo.is_heard()
        before = left()
        for number in range(CONNECTIONS):
            for _ in range(1000):
                await bus.client.publish("identity-relay.t.management", b"x" * 1000)
            await proxy.cut()
            await eventually_here(lambda: not bus.is_connected)
            await proxy.mend()
            await connected(bus)
            await echo.is_heard()
            assert bus.connections == number + 2
        await round_trip(bus.client)
        await eventually_here(lambda: is_at_most(before))
        await echo.subscription.stop()


async def test_a_stopped_bus_does_not_connect_again(url: str) -> None:
    others = asyncio.all_tasks()
    async with TcpProxy(url) as proxy:
        async with started(proxy.url) as bus:
            await connected(bus)
        assert (bus.is_connected, bus.connections, proxy.accepted) == (False, 1, 1)
        async with started(proxy.url) as unconnected:
            await proxy.cut()
        assert not unconnected.is_connected
        await proxy.mend()
        assert not [task for task in asyncio.all_tasks() - others if task.get_name() == "bus-connect"]


async def test_a_request_ends_with_its_connection(url: str) -> None:
    async with TcpProxy(url) as proxy, started(proxy.url) as bus:
        await connected(bus)
        proxy.swallow()
        asking = asyncio.create_task(bus.client.request("identity-rpc.t.members", timeout=10 * WAIT_S))
        await asyncio.sleep(0)
        await proxy.cut()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionClosedError):
                await asking


async def connect_as_service(url: str) -> None:
    with captured_logs("tests") as log:
        async with started(url):
            await eventually_here(lambda: bool(lines(log)))
    assert [(line["event"], line["error"]) for line in lines(log)] == [("bus.unreachable", "NotEncryptedError")]


async def connect_as_subscriber(url: str) -> None:
    with pytest.raises(Unavailable):
        async with EventBus(url, tenant_id="default", connect_timeout_s=1):
            pass


async def connect_as_operator(url: str) -> None:
    with pytest.raises(ProvisionError, match="does not require TLS"):
        await asyncio.to_thread(change_streams, url, {"operator": "secret"})


@pytest.mark.parametrize("connect", [connect_as_service, connect_as_subscriber, connect_as_operator])
async def test_no_password_is_sent_in_clear_text_to_an_encrypted_address(
    connect: Callable[[str], Awaitable[None]],
) -> None:
    """Neither to a server without TLS nor to an attacker in between, who removes it from the greeting."""
    received: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"auth_required": true, "headers": true, "max_payload": 1048576}\r\n')
        received.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await connect(f"tls://subscriber:secret@127.0.0.1:{port}")
    assert set(received) == {b""}
