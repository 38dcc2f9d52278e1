"""The network between the members of a store is cut, or loses packets, under load; each member is on its own machine.

Clients still reach every member. Nothing that was acknowledged is lost.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from all_in_one.embedded import EmbeddedServers
from identity_common.wire.events import STREAM_INTERNAL
from provision import ServerAddresses, stored_passwords
from tests.support.lengths import length
from tests.support.mixed_load import MixedLoad
from tests.support.nats_cluster import MEMBERS, NatsCluster
from tests.support.network import Machine, Network
from tests.support.processes import Deployment
from tests.support.redis_servers import RedisServers
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

LASTS_S: Final = 12
"""So long that the others have a leader, and no connection leads to the old primary of Redis: until then a token that
was minted at the new one may be unknown, and answered 400."""
PERCENT_LOST: Final = 10
RECOVERS_S: Final = 180


class Stores(msgspec.Struct):
    """The replicated stores, one member of each on every machine."""

    machines: list[Machine]
    nats: NatsCluster
    redis: RedisServers

    def cut(self, machine: Machine | None) -> AbstractContextManager[None]:
        assert machine is not None
        return machine.cut_from([each for each in self.machines if each is not machine])


def leader_of_redis_cut_off(stores: Stores) -> AbstractContextManager[None]:
    return stores.cut(stores.redis.primary.machine)


def leader_of_nats_cut_off(stores: Stores) -> AbstractContextManager[None]:
    return stores.cut(stores.nats.leader_of(STREAM_INTERNAL).machine)


def both_leaders_cut_off(stores: Stores) -> AbstractContextManager[None]:
    """They are on one machine."""
    machine = stores.redis.primary.machine

    def leads() -> bool:
        if stores.nats.leader_of(STREAM_INTERNAL).machine is machine:
            return True
        stores.nats.step_down()
        return False

    eventually(leads)
    return stores.cut(machine)


@contextmanager
def packets_lost(stores: Stores) -> Iterator[None]:
    with ExitStack() as losing:
        for machine in stores.machines:
            losing.enter_context(machine.losing(PERCENT_LOST))
        yield


FAULTS: Final = (leader_of_redis_cut_off, leader_of_nats_cut_off, both_leaders_cut_off, packets_lost)[
    : length(short=0, long=4)
]


@pytest.fixture(scope="module")
def stores(
    own_directory: Path, own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stores]:
    with Network(MEMBERS) as network:
        passwords = stored_passwords(own_directory)
        with (
            NatsCluster(own_directory / "cluster", passwords, network.machines) as nats,
            RedisServers(tmp_path_factory.mktemp("redis"), passwords, network.machines) as redis,
        ):
            yield Stores(network.machines, nats, redis)


@pytest.fixture(scope="module")
def deployment(
    stores: Stores,
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    addresses = stores.redis.addresses(stores.nats.of(own_addresses))
    own_servers.nats.stop()
    own_servers.valkey.stop()
    deployment = Deployment(
        addresses,
        tmp_path_factory.mktemp("logs"),
        token_replicas=2,
        token_settings={"REDIS_REPLICAS": "1"},
        management_settings={"REDIS_REPLICAS": "1"},
    )
    for process in deployment.processes:
        process.configure(NATS_REPLICAS=str(MEMBERS))
    with deployment:
        yield deployment


@pytest.fixture(scope="module")
def load(deployment: Deployment, stores: Stores) -> Iterator[MixedLoad]:
    with MixedLoad(deployment, lambda: stores.redis.addresses(deployment.addresses)) as load:
        yield load


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_network_loses_nothing(
    fault: Callable[[Stores], AbstractContextManager[None]], stores: Stores, load: MixedLoad
) -> None:
    """Everything works again before the network is whole."""
    eventually(stores.redis.is_whole)
    eventually(load.works, within_s=RECOVERS_S)
    with load.running():
        began = time.monotonic()
        with fault(stores):
            time.sleep(LASTS_S)
            eventually(load.works, within_s=RECOVERS_S)
        eventually(load.works, within_s=RECOVERS_S)
    load.refused_s(began)
    eventually(stores.nats.is_whole)
    load.require_kept()
