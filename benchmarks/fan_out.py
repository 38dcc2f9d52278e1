"""Latency of the fan-out of a changed permission, and throughput of the relay.

``python -m benchmarks.fan_out`` runs only these. The role is edited over HTTP; the time runs from the answer until the
stream has acknowledged the last event and it is deleted from the outbox. The members are inserted with SQL, as creating
them is not measured.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from all_in_one.embedded import EmbeddedServers
from benchmarks.measure import cpu_seconds
from identity_common.identifiers import new_id, new_short_id
from provision import ServerAddresses
from stead import ManagementClient
from stead.event_types import GrantedPermission, MemberPermissionsState
from tests.support.processes import Deployment
from tests.support.template_tables import TemplateTables

MEMBERS: Final = (1_000, 10_000, 100_000)
EVENTS: Final = 100_000

_TENANT: Final = "default"
_MEMBERS_PER_ORGANIZATION: Final = 10_000
_TIMEOUT_S: Final = 300
_WRITES_EVERY_S: Final = 0.1
_TARGET_MEMBERS: Final = 100_000
_TARGET_S: Final = 5.0

_FILL: Final = """
    WITH counted AS (
        UPDATE source_revision SET revision = revision + $2 WHERE tenant_id = $1 RETURNING revision - $2 AS base
    ), recorded AS (
        INSERT INTO outbox (tenant_id, revision, subject, type, aggregate, occurred_at, data)
        SELECT $1, base + number, 'identity.' || $1 || '.member-permissions.bench.' || number,
            'member-permissions.updated', 'bench/' || number, 0, $3
        FROM counted, generate_series(1, $2) AS number
    )
    SELECT pg_notify('outbox', '')
"""


class FanOutTime(msgspec.Struct, frozen=True):
    """The fan-out of one edited role.

    Attributes:
        seconds: From the answer to the edit until the last event is in the stream.
        slowest_write_ms: Latency of the slowest concurrent write of an administrator.
        own_cpu_us: CPU time of template-service per member, microseconds.
        store_cpu_us: CPU time of the stores per member, microseconds.
    """

    seconds: float
    slowest_write_ms: float
    own_cpu_us: float
    store_cpu_us: float


class FanOutBench:
    """A running template-service with thousands of members.

    Args:
        addresses: The URLs of its servers.
        management: A client of its API.
        own: Process ids of the service.
        stores: Process ids of the stores.
    """

    def __init__(
        self, addresses: ServerAddresses, management: ManagementClient, *, own: Sequence[int], stores: Sequence[int]
    ) -> None:
        self._addresses = addresses
        self._management = management
        self._own = own
        self._stores = stores

    async def fan_out(self, members: int, rounds: int) -> list[FanOutTime]:
        """Give members a role, edit it in each round, and delete the members."""
        roles = self._management.organization_roles
        names = [f"bench:{new_id()}" for _ in range(6)]
        permissions = [self._management.organization_permissions.create(name).id for name in names]
        role = roles.create(f"bench {new_id()}", permission_ids=permissions[:4]).id
        async with self._connected() as tables:
            for start in range(0, members, _MEMBERS_PER_ORGANIZATION):
                organization = self._management.organizations.create("bench").id
                await tables.members(organization, min(_MEMBERS_PER_ORGANIZATION, members - start), role, quietly=True)
            await tables.database.execute("ANALYZE")
            roles.assign_permissions(role, permissions[4:5])
            await tables.settled(_TIMEOUT_S)  # every member has been published once
            times = []
            for number in range(rounds):
                granted = permissions[: 5 + (number + 1) % 2]
                own, stores = cpu_seconds(self._own), cpu_seconds(self._stores)
                roles.replace_permissions(role, granted)
                seconds, slowest = await self._until_settled(tables)
                times.append(
                    FanOutTime(
                        seconds=seconds,
                        slowest_write_ms=slowest * 1000,
                        own_cpu_us=(cpu_seconds(self._own) - own) / members * 1e6,
                        store_cpu_us=(cpu_seconds(self._stores) - stores) / members * 1e6,
                    )
                )
            await tables.database.execute("DELETE FROM members WHERE tenant_id = $1", _TENANT)
            return times

    async def relay(self, events: int) -> float:
        """Return how many events per second the relay carries from a full outbox into the stream."""
        async with self._connected() as tables:
            state = MemberPermissionsState(
                organization_id=new_short_id(),
                member_id=new_short_id(),
                member_type="user",
                version=1,
                cause="assignment",
                permissions=tuple(GrantedPermission(f"bench:{number}") for number in range(5)),
            )
            await tables.settled(_TIMEOUT_S)
            await tables.database.execute(_FILL, _TENANT, events, msgspec.json.encode(state).decode())
            begun = time.perf_counter()
            await tables.settled(_TIMEOUT_S)
            return events / (time.perf_counter() - begun)

    def _connected(self) -> TemplateTables:
        return TemplateTables(self._addresses.template_database_url, self._addresses.subscriber_nats_url, _TENANT)

    async def _until_settled(self, tables: TemplateTables) -> tuple[float, float]:
        """Return the duration, and the slowest concurrent write of an administrator."""
        begun = time.perf_counter()
        settled = asyncio.create_task(tables.settled(_TIMEOUT_S))
        slowest = 0.0
        while not settled.done():
            slowest = max(slowest, await asyncio.to_thread(self._write))
            await asyncio.wait((settled,), timeout=_WRITES_EVERY_S)
        await settled
        return time.perf_counter() - begun, slowest

    def _write(self) -> float:
        begun = time.perf_counter()
        self._management.organizations.create("concurrent write")
        return time.perf_counter() - begun


def lines(bench: FanOutBench, *, members: Sequence[int], rounds: int, events: int) -> Iterator[str]:
    """Measure, and yield the results line by line."""
    for count in members:
        times = asyncio.run(bench.fan_out(count, rounds))
        seconds = median(each.seconds for each in times)
        yield (
            f"role edit → last event, {count:,} members: {seconds:.2f} s, "
            f"{median(each.own_cpu_us for each in times):.0f} µs of our own CPU and "
            f"{median(each.store_cpu_us for each in times):.0f} µs of the stores per member; slowest concurrent write "
            f"{max(each.slowest_write_ms for each in times):.0f} ms"
        )
        if count == _TARGET_MEMBERS:
            met = "met   " if seconds < _TARGET_S else "MISSED"
            yield f"{met}  role edit → last event at {count:,} members: {seconds:.1f} s (target: {_TARGET_S:.0f} s)"
    yield f"relay: {asyncio.run(bench.relay(events)):,.0f} events/s"


def main() -> int:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fan_out", description="See benchmarks/README.md.")
    parser.add_argument("--members", type=int, nargs="*", default=MEMBERS, help="members of the role")
    parser.add_argument("--rounds", type=int, default=3, help="edits of the role")
    parser.add_argument("--events", type=int, default=EVENTS, help="events for the relay")
    arguments = parser.parse_args()
    with ExitStack() as stop:
        directory = Path(stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-")))
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        deployment = Deployment(servers.start(), directory, launcher=())
        stop.callback(deployment.stop)
        deployment.start()
        management = stop.enter_context(deployment.management_client())
        bench = FanOutBench(
            deployment.addresses,
            management,
            own=[deployment.template.pid],
            stores=[servers.postgres.pid, servers.nats.pid],
        )
        for line in lines(bench, members=arguments.members, rounds=arguments.rounds, events=arguments.events):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
