"""Servers of a NATS cluster are cut off from each other, and JetStream is silent for a service that stays connected."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Final

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.streams import ensure_streams, last_published
from identity_common.wire.events import STREAM_INTERNAL
from provision.passwords import Passwords, stored_passwords
from stead.events import EventBus
from stead.jetstream_silence import last_worked
from tests.support.lengths import length
from tests.support.nats_cluster import MEMBERS, Member, NatsCluster
from tests.support.network import Network
from tests.support.waiting import WAIT_S, eventually, eventually_here

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        length(short=1, long=0) == 1, reason="in the long form only: networks of namespaces take their time"
    ),
]

HEARD_WITHIN_S: Final = 3
LEADS_S: Final = 4
"""What a leader says counts no longer after this time without the others, who may have elected another one."""
SILENT_FOR_S: Final = 25
"""Longer than a service waits before it looks for another server, several times, and than a leader that is cut off
takes to notice it."""


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> Passwords:
    return stored_passwords(tmp_path_factory.mktemp("passwords"))


@pytest.fixture(scope="module")
def cluster(passwords: Passwords, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with Network(MEMBERS) as network, NatsCluster(tmp_path_factory.mktemp("c"), passwords, network.machines) as cluster:
        yield cluster


@asynccontextmanager
async def connected(url: str, passwords: Passwords) -> AsyncIterator[Bus]:
    """Yield a bus on a cluster that has all streams."""
    credentials = f"//template:{passwords.nats['template']}@"
    bus = Bus(url.replace("//", credentials), service="template", replicas=MEMBERS)
    bus.start()
    try:
        await bus.connected()
        await works(bus)
        yield bus
    finally:
        await bus.stop()


async def works(bus: Bus) -> None:
    """Wait until JetStream works; create missing streams."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(NatsError, TimeoutError):
                await ensure_streams(bus)
                if time.monotonic() - await last_worked(bus.client, STREAM_INTERNAL) < HEARD_WITHIN_S:
                    return
            await asyncio.sleep(0.1)


def server_of(client: Client, cluster: NatsCluster) -> Member:
    url = client.connected_url
    assert url is not None
    return next(member for member in cluster.members if member.port == url.port)


async def leader_of(cluster: NatsCluster, passwords: Passwords) -> Member:
    """Return the leader of a cluster that is whole and has all streams."""
    async with connected(cluster.url, passwords):
        await asyncio.to_thread(eventually, cluster.is_whole)
        return await asyncio.to_thread(cluster.leader_of, STREAM_INTERNAL)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_a_service_leaves_a_server_that_is_cut_off_from_the_others(
    leads: bool, cluster: NatsCluster, passwords: Passwords
) -> None:
    leader = await leader_of(cluster, passwords)
    left = leader if leads else next(member for member in cluster.members if member is not leader)
    async with connected(left.address, passwords) as bus:
        cut_at = time.monotonic()
        with cut_off(cluster, left):
            await eventually_here(lambda: bus.connections == 2 and bus.is_connected)
            print(f"left after {time.monotonic() - cut_at:.1f} s")  # noqa: T201
            assert server_of(bus.client, cluster) is not left
            await works(bus)
            assert bus.connections == 2


async def test_a_subscriber_leaves_it_too(cluster: NatsCluster, passwords: Passwords) -> None:
    await leader_of(cluster, passwords)
    async with EventBus(cluster.url, user="subscriber", password=passwords.nats["subscriber"]) as bus:
        client = bus.client
        left = server_of(client, cluster)
        with cut_off(cluster, left):
            await eventually_here(lambda: bus.client is not client)
            assert server_of(bus.client, cluster) is not left


@pytest.mark.parametrize("lost", ["leader", "follower"])
async def test_a_service_stays_at_a_server_that_most_others_reach(
    lost: str, cluster: NatsCluster, passwords: Passwords
) -> None:
    leader = await leader_of(cluster, passwords)
    frozen = leader if lost == "leader" else next(member for member in cluster.members if member is not leader)
    async with AsyncExitStack() as services:
        there = [each for each in cluster.members if each is not frozen]
        buses = [await services.enter_async_context(connected(each.address, passwords)) for each in there]
        with frozen.frozen():
            await asyncio.sleep(SILENT_FOR_S)
        assert [bus.connections for bus in buses] == [1, 1]


async def test_a_service_stays_where_it_is_if_jetstream_works_at_no_other_server_either(
    cluster: NatsCluster, passwords: Passwords
) -> None:
    async with AsyncExitStack() as services:
        at_each = [connected(each.address, passwords) for each in cluster.members]
        buses = [await services.enter_async_context(each) for each in at_each]
        with cut_off(cluster, *cluster.members):
            await asyncio.sleep(LEADS_S)
            asked = [last_published(bus, "template", "default") for bus in buses]
            answers = await asyncio.gather(*asked, return_exceptions=True)  # the leader answers its client
            assert all(isinstance(each, NatsError) for each in answers)
            await asyncio.sleep(SILENT_FOR_S)
            assert [bus.connections for bus in buses] == [1, 1, 1]
        for bus in buses:
            await works(bus)


def cut_off(cluster: NatsCluster, *cut: Member) -> ExitStack:
    """Return the cut of these servers from each of the others."""
    machines = [member.machine for member in cluster.members if member.machine]
    with ExitStack() as cuts:
        for machine in (member.machine for member in cut if member.machine):
            cuts.enter_context(machine.cut_from([each for each in machines if each is not machine]))
        return cuts.pop_all()
