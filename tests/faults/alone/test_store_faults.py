"""A store whose disk, memory or flushes fail, under load: what clients get meanwhile, and that everything recovers.

Nothing that was acknowledged is lost, no request goes unanswered, and no process is restarted.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from tests.support.lengths import length
from tests.support.mixed_load import MixedLoad
from tests.support.processes import Deployment
from tests.support.store_faults import on_a_small_disk, slow_flushes
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

LASTS_S: Final = length(short=1, long=20)
REFUSED_S: Final = length(short=60, long=10)
"""After the end of a fault, at most; in the short form on a busy machine."""
FLUSH_MS: Final = 500

GRANTED: Final = {
    "read": {200},
    "write": {200},
    "mint": {201},
    "exchange": {200},
    "client credentials": {200},
    "introspection": {200},
}

Occasion = AbstractContextManager[Callable[[], AbstractContextManager[None]]]
"""Makes a store ready for a fault, and provides the fault, which lasts as long as its body."""


class Stores(NamedTuple):
    """The servers of this module."""

    servers: EmbeddedServers
    addresses: ServerAddresses
    directory: Path


@contextmanager
def redis_without_memory(stores: Stores) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    @contextmanager
    def full() -> Iterator[None]:
        with redis.Redis.from_url(stores.addresses.admin_redis_url) as administrator:
            administrator.config_set("maxmemory", 1)
            try:
                yield
            finally:
                administrator.config_set("maxmemory", 0)

    yield full


@contextmanager
def postgresql_without_disk(stores: Stores) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Its tables cannot grow; there are files for the write-ahead log."""
    data = (stores.directory / "postgres").resolve()
    with on_a_small_disk(stores.servers.postgres, data, mib=512) as disk:
        yield disk.full


@contextmanager
def nats_without_disk(stores: Stores) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """NATS switches JetStream off, until a supervisor restarts it."""
    server = stores.servers.nats

    @contextmanager
    def full() -> Iterator[None]:
        with disk.full():
            yield
        assert "JetStream out of space, will be DISABLED" in server.log.read_text()
        server.stop()
        server.start()

    with on_a_small_disk(server, stores.directory / "nats", mib=64) as disk:
        yield full


@contextmanager
def slow_flushes_everywhere(stores: Stores) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Changes of a service commit one after another: two in a second, and those that wait for 5 s get 503."""
    servers = (stores.servers.postgres, stores.servers.valkey, stores.servers.nats)
    yield lambda: slow_flushes(servers, ms=FLUSH_MS)


class Fault(NamedTuple):
    """One fault.

    Attributes:
        occasion: See ``Occasion``.
        statuses: What clients get while it lasts, where that differs from ``GRANTED``.
    """

    occasion: Callable[[Stores], Occasion]
    statuses: Mapping[str, set[int]]


FAULTS: Final = (
    Fault(redis_without_memory, {"mint": {503}}),
    Fault(postgresql_without_disk, {"write": {503}}),
    Fault(nats_without_disk, {}),
    Fault(slow_flushes_everywhere, {"write": {200, 503}}),
)[: length(short=1, long=4)]


@pytest.fixture(scope="module")
def own_servers(own_directory: Path) -> Iterator[EmbeddedServers]:
    """Servers that flush every write."""
    servers = EmbeddedServers(own_directory)
    try:
        yield servers
    finally:
        servers.delete()


@pytest.fixture(scope="module")
def load(deployment: Deployment, own_addresses: ServerAddresses) -> Iterator[MixedLoad]:
    with MixedLoad(deployment, lambda: own_addresses) as load:
        yield load


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.occasion.__name__)
def test_a_fault_of_a_store_loses_nothing(
    fault: Fault,
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    own_directory: Path,
    load: MixedLoad,
) -> None:
    expected = {**GRANTED, **fault.statuses}

    def are_as_expected() -> bool:
        statuses = load.statuses(subject_tokens.pop())
        return all(status in expected[kind] for kind, status in statuses.items())

    with fault.occasion(Stores(own_servers, own_addresses, own_directory)) as begin:
        eventually(load.works)
        subject_tokens = [load.subject_token() for _ in range(100)]
        with load.running():
            with begin():
                eventually(are_as_expected)
                time.sleep(LASTS_S)
                eventually(are_as_expected)  # a row may still find room
            ended = time.monotonic()
            eventually(load.works)
        assert load.refused_s(ended) < REFUSED_S
        load.require_kept()
