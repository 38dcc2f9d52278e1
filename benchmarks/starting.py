"""``python -m benchmarks.starting``: the start of token-service replicas with a million members in the stream.

The members are inserted into the outbox, and published by the relay; creating them is not measured.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from all_in_one.embedded import EmbeddedServers
from benchmarks.measure import cpu_seconds, memory_mb
from stead.event_types import MemberState
from tests.support.processes import Deployment
from tests.support.template_tables import TemplateTables

_MEMBERS: Final = 1_000_000
_MEMBERS_PER_ORGANIZATION: Final = 10_000
_PUBLISHING_TIMEOUT_S: Final = 1_800
_MAX_START_S: Final = 30.0
_MAX_START_MB: Final = 300.0

_FILL: Final = """
    WITH counted AS (
        UPDATE source_revision SET revision = revision + $2 WHERE tenant_id = $1 RETURNING revision - $2 AS base
    ), member AS (
        SELECT number, 'bench' || number / $3 AS organization, 'member' || number AS id
        FROM generate_series(1, $2) AS number
    )
    INSERT INTO outbox (tenant_id, revision, subject, type, aggregate, occurred_at, data)
    SELECT $1, base + number, 'identity.' || $1 || '.member.' || organization || '.' || id, 'member.created',
        organization || '/' || id, 0, replace(replace($4, '@organization', organization), '@member', id)
    FROM counted, member
"""


class Start(NamedTuple):
    """The start of one replica.

    Attributes:
        seconds: Until it was ready.
        cpu_s: Its CPU time until then.
        mb: Its memory at that time.
        peak_mb: Its peak memory.
    """

    seconds: float
    cpu_s: float
    mb: float
    peak_mb: float


class StartBench:
    """Many members in the stream, and replicas of token-service that start with them."""

    def __init__(self, directory: Path, stop: ExitStack) -> None:
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        self._deployment = Deployment(servers.start(), directory, token_replicas=2, launcher=())
        stop.callback(self._deployment.stop)
        self._deployment.start(only=[self._deployment.management, self._deployment.template])

    async def fill(self, members: int) -> None:
        """Insert members into the outbox, and wait until all of them are in the stream."""
        addresses = self._deployment.addresses
        state = MemberState(
            organization_id="@organization", member_id="@member", member_type="user", role_ids=("r" * 21, "s" * 21)
        )
        text = msgspec.json.encode(state).decode()
        async with TemplateTables(addresses.template_database_url, addresses.subscriber_nats_url, "default") as tables:
            await tables.database.execute(_FILL, tables.tenant_id, members, _MEMBERS_PER_ORGANIZATION, text)
            await tables.settled(_PUBLISHING_TIMEOUT_S)

    def starts(self) -> Iterator[Start]:
        """Start one replica after another."""
        for replica in self._deployment.tokens:
            begun = time.perf_counter()
            replica.start()
            replica.wait_until_ready()
            seconds, pid = time.perf_counter() - begun, replica.pid
            yield Start(seconds, cpu_seconds([pid]), *memory_mb(pid))


def lines(directory: Path, stop: ExitStack, *, members: int) -> Iterator[str]:
    """Yield the start time of the first replica, which fills Redis, and of a second one, which finds it filled."""
    bench = StartBench(directory, stop)
    begun = time.perf_counter()
    asyncio.run(bench.fill(members))
    yield f"{members:,} members written to the stream in {time.perf_counter() - begun:.0f} s"
    for which, found in zip(("Redis empty", "Redis filled"), bench.starts(), strict=True):
        is_met = found.seconds < _MAX_START_S and found.peak_mb < _MAX_START_MB
        yield (
            f"{'met   ' if is_met else 'MISSED'}  token-service ready among {members:,} members, {which}: "
            f"{found.seconds:.1f} s ({found.cpu_s:.1f} s of its own CPU), {found.mb:.0f} MB, {found.peak_mb:.0f} MB "
            f"peak (targets: {_MAX_START_S:.0f} s, {_MAX_START_MB:.0f} MB)"
        )


def main() -> int:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starting", description="See benchmarks/README.md.")
    parser.add_argument("--members", type=int, default=_MEMBERS, help="number of members")
    members = parser.parse_args().members
    with ExitStack() as stop:
        directory = Path(stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-")))
        for line in lines(directory, stop, members=members):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
