"""The primary of PostgreSQL is cut off from services and standby, which is promoted; each is on its own machine."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from tests.support.lengths import length
from tests.support.mixed_load import MixedLoad
from tests.support.network import Network
from tests.support.postgres_pair import PostgresPair
from tests.support.processes import Deployment
from tests.support.waiting import eventually_here

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        length(short=1, long=0) == 1, reason="in the long form only: networks of namespaces take their time"
    ),
]

FAILOVERS: Final = 3
REFUSED_S: Final = 10
LASTS_S: Final = 15
"""So long that each client is served again, or counts as refused for too long."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(2) as network:
        yield network


@pytest_asyncio.fixture(scope="module")
async def pair(
    network: Network,
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[PostgresPair]:
    second = tmp_path_factory.mktemp("second")
    async with PostgresPair(own_servers, own_addresses, second, network.machines) as pair:
        yield pair


@pytest_asyncio.fixture(scope="module")
async def deployment(pair: PostgresPair, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    deployment = Deployment(pair.addresses, tmp_path_factory.mktemp("logs"), token_replicas=2)
    try:
        await asyncio.to_thread(deployment.start)
        yield deployment
    finally:
        await asyncio.to_thread(deployment.stop)


async def test_a_primary_that_is_cut_off_is_left(pair: PostgresPair, deployment: Deployment) -> None:
    """Clients of every kind are served again by the standby, though the network is still cut."""
    with await asyncio.to_thread(MixedLoad, deployment, lambda: pair.addresses) as load:
        for _ in range(FAILOVERS):
            await pair.begin_replication(is_synchronous=True)
            await eventually_here(load.works)
            with load.running():
                await eventually_here(load.has_acknowledged)
                began = time.monotonic()
                async with pair.cut_off_primary():
                    await pair.promote()
                    await asyncio.sleep(LASTS_S)
                    await eventually_here(load.works)
            assert load.refused_s(began) < REFUSED_S
            await asyncio.to_thread(load.require_kept)
