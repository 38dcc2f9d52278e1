"""The primary of Redis is lost under load, with the sentinel beside it: for how long clients are refused."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import Passwords, ServerAddresses
from tests.support.lengths import length
from tests.support.mixed_load import MixedLoad
from tests.support.processes import Deployment
from tests.support.redis_servers import RedisServers, ValkeyProcess
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(length(short=1, long=0) == 1, reason="asserts how long a failover takes: TEST_LENGTH=long"),
]

FAILOVERS: Final = 5
REFUSED_S: Final = 10


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


def killed(process: ValkeyProcess) -> None:
    process.kill()


def frozen(process: ValkeyProcess) -> None:
    process.freeze()


@pytest.mark.parametrize("fault", [killed, frozen])
def test_a_failover_refuses_for_ten_seconds_at_most(
    fault: Callable[[ValkeyProcess], None], servers: RedisServers, load: MixedLoad
) -> None:
    for _ in range(FAILOVERS):
        eventually(servers.is_whole)
        eventually(load.works)
        before = servers.primary
        lost = (before, servers.sentinels[servers.servers.index(before)])
        with load.running():
            time.sleep(2)
            began = time.monotonic()
            for process in lost:
                fault(process)
            eventually(load.works)
            worked = time.monotonic() - began
            time.sleep(2)
        print(f"\n{fault.__name__}: last 503 {load.refused_s(began):.1f} s, works {worked:.1f} s")
        print(Counter(each.status for each in load.answers))
        last: dict[str, float] = {}
        for each in load.answers:
            if each.status == 503:
                last[each.request.split("/api/")[-1].split("?")[0][:40]] = round(each.at - began, 1)
        print({k: v for k, v in sorted(last.items(), key=lambda x: x[1])[-8:]})
        for s in servers.sentinels:
            if s not in lost:
                print(
                    [
                        l.split(" # ")[-1].strip()[:70] + " @" + l.split()[4]
                        for l in s.log.read_text().splitlines()
                        if "+" in l or "-fail" in l
                    ][-30:]
                )
        for process in lost:
            if fault is killed:
                process.start()
            else:
                process.thaw()
    load.require_kept()
