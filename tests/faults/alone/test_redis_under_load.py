"""The primary of Redis is lost under load, with the sentinel beside it: for how long clients are refused."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from provision import Passwords, ServerAddresses
from tests.support.lengths import length
from tests.support.mixed_load import MixedLoad
from tests.support.processes import Deployment
from tests.support.redis_servers import RedisServers, ValkeyProcess
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(length(short=1, long=0) == 1, reason="asserts how long a failover takes: TEST_LENGTH=long"),
]

FAILOVERS: Final = 3
REFUSED_S: Final = 10
LASTS_S: Final = 12


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServers]:
    with RedisServers(tmp_path_factory.mktemp("redis"), Passwords().completed()) as servers:
        yield servers


@pytest.fixture(scope="module")
def deployment(
    servers: RedisServers, own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    settings = {"REDIS_REPLICAS": "1"}
    addresses = servers.addresses(own_addresses)
    logs = tmp_path_factory.mktemp("logs")
    with Deployment(
        addresses, logs, token_replicas=2, token_settings=settings, management_settings=settings
    ) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def load(deployment: Deployment, servers: RedisServers) -> Iterator[MixedLoad]:
    with MixedLoad(deployment, lambda: servers.addresses(deployment.addresses)) as load:
        yield load


Fault = tuple[Callable[[ValkeyProcess], None], Callable[[ValkeyProcess], None]]
"""Stops a process, and has it go on."""
KILLED: Final[Fault] = (ValkeyProcess.kill, ValkeyProcess.start)
FROZEN: Final[Fault] = (ValkeyProcess.freeze, ValkeyProcess.thaw)


@pytest.mark.parametrize("fault", [KILLED, FROZEN], ids=["killed", "frozen"])
def test_a_lost_primary_is_replaced_within_ten_seconds(fault: Fault, servers: RedisServers, load: MixedLoad) -> None:
    stop, go_on = fault
    for _ in range(FAILOVERS):
        eventually(servers.is_whole)
        eventually(servers.watches)
        eventually(load.works)
        before = servers.primary
        lost = (before, servers.sentinels[servers.servers.index(before)])
        with load.running():
            eventually(load.has_acknowledged)
            began = time.monotonic()
            for process in lost:
                stop(process)
            time.sleep(LASTS_S)
            eventually(load.works)
        for process in lost:
            go_on(process)
        assert load.refused_s(began) < REFUSED_S
        eventually(servers.is_whole)
        load.require_kept()
