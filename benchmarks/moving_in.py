"""Throughput of imports of users with digests of their passwords: ``python -m benchmarks.moving_in``.

One client sends requests of 10,000 lines, one after the other, to one replica of management-service on its own servers;
its relay publishes the events meanwhile. The target is 2,000 users a second.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from all_in_one.embedded import EmbeddedServers
from benchmarks.measure import cpu_seconds
from stead import ImportedUser, ManagementClient
from tests.support.processes import Deployment

USERS: Final = 10_000
ROUNDS: Final = 3

_TARGET_PER_S: Final = 2_000
_DIGEST: Final = f"$2b$10${'a' * 21}e{'a' * 31}"


def _rows(round_number: int, users: int) -> list[dict[str, Any]]:
    return [
        {
            "externalId": f"auth0|{round_number}-{number:06}",
            "primaryEmail": f"ada-{round_number}-{number}@example.com",
            "isEmailVerified": True,
            "name": f"Ada Lovelace {number}",
            "passwordDigest": _DIGEST,
            "passwordAlgorithm": "Bcrypt",
        }
        for number in range(users)
    ]


def _require(results: Sequence[ImportedUser], status: str) -> None:
    if wrong := [each for each in results if each.status != status]:
        raise RuntimeError(f"{len(wrong)} users are not {status}: {wrong[0].error}")


def lines(
    management: ManagementClient, *, own: Sequence[int], stores: Sequence[int], rounds: int, users: int = USERS
) -> Iterator[str]:
    """Import, and import again, and yield what it took."""
    took, repeated, own_us, store_us = [], [], [], []
    for number in range(rounds):
        rows = _rows(number, users)
        before = cpu_seconds(own), cpu_seconds(stores)
        began = time.perf_counter()
        results = management.users.import_users(rows)
        took.append(time.perf_counter() - began)
        own_us.append((cpu_seconds(own) - before[0]) / users * 1e6)
        store_us.append((cpu_seconds(stores) - before[1]) / users * 1e6)
        _require(results, "created")
        began = time.perf_counter()
        _require(management.users.import_users(rows), "existing")
        repeated.append(time.perf_counter() - began)
    yield f"imports of {users} users with digests, {rounds} rounds (median): {users / median(took):,.0f} users/s"
    yield f"  target: {_TARGET_PER_S:,} users/s; repeated, nothing to do: {users / median(repeated):,.0f} users/s"
    yield f"  CPU per user: management-service {median(own_us):.0f} µs, stores {median(store_us):.0f} µs"


def main() -> int:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moving_in", description="See benchmarks/README.md.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="imports of 10,000 users")
    arguments = parser.parse_args()
    with ExitStack() as stop:
        directory = Path(stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-")))
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        deployment = Deployment(servers.start(), directory, launcher=())
        stop.callback(deployment.stop)
        deployment.start()
        management = stop.enter_context(deployment.management_client())
        stores = [servers.postgres.pid, servers.nats.pid]
        for line in lines(management, own=[deployment.management.pid], stores=stores, rounds=arguments.rounds):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
