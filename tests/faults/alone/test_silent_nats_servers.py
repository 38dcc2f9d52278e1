"""Servers of a NATS cluster are cut off from each other, and JetStream is silent for a service that stays connected."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

import nats
import pytest
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.silence import jetstream_answers
from identity_common.bus.streams import ensure_streams
from identity_common.wire.events import STREAM_INTERNAL
from provision.passwords import Passwords, stored_passwords
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

MOVES_S: Final = 5
"""A service may still be moving to the server that was the last to notice that it leads nothing."""
SILENT_FOR_S: Final = 20
"""Longer than a service waits before it looks for another server, several times."""


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
        await answered(bus)
        yield bus
    finally:
        await bus.stop()


async def answered(bus: Bus) -> None:
    """Wait until JetStream answers; create missing streams."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(NatsError, TimeoutError):
                await ensure_streams(bus)
                if await jetstream_answers(bus.client):
                    return
            await asyncio.sleep(0.1)


async def eventually_silent(cluster: NatsCluster, passwords: Passwords) -> None:
    """Wait until JetStream answers at no server; a leader that is cut off answers until it has noticed."""
    for member in cluster.members:
        client = await nats.connect(
            member.address, user="template", password=passwords.nats["template"], inbox_prefix="_INBOX_template"
        )
        async with asyncio.timeout(WAIT_S):
            while await jetstream_answers(client):  # noqa: ASYNC110 - a server's state
                await asyncio.sleep(0.1)
        await client.close()


def server_of(bus: Bus, cluster: NatsCluster) -> Member:
    assert bus.client.connected_url is not None
    return next(member for member in cluster.members if member.port == bus.client.connected_url.port)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_a_service_leaves_a_server_that_is_cut_off_from_the_others(
    leads: bool, cluster: NatsCluster, passwords: Passwords
) -> None:
    async with connected(cluster.url, passwords):
        await asyncio.to_thread(eventually, cluster.is_whole)
        leader = await asyncio.to_thread(cluster.leader_of, STREAM_INTERNAL)
    left = leader if leads else next(member for member in cluster.members if member is not leader)
    async with connected(left.address, passwords) as bus:
        with cut_off(cluster, left):
            await eventually_here(lambda: bus.connections == 2 and bus.is_connected)
            assert server_of(bus, cluster) is not left
            await answered(bus)
            assert bus.connections == 2


async def test_a_service_stays_where_it_is_if_no_other_server_answers_either(
    cluster: NatsCluster, passwords: Passwords
) -> None:
    async with connected(cluster.url, passwords) as bus:
        with cut_off(cluster, *cluster.members):
            await eventually_silent(cluster, passwords)
            await asyncio.sleep(MOVES_S)
            before = bus.connections
            await asyncio.sleep(SILENT_FOR_S)
            assert bus.connections == before
        await answered(bus)


def cut_off(cluster: NatsCluster, *cut: Member) -> ExitStack:
    """Return the cut of these servers from each of the others."""
    machines = [member.machine for member in cluster.members if member.machine]
    with ExitStack() as cuts:
        for machine in (member.machine for member in cut if member.machine):
            cuts.enter_context(machine.cut_from([each for each in machines if each is not machine]))
        return cuts.pop_all()
