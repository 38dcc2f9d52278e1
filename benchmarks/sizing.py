"""``python -m benchmarks.sizing``: what a sign-in costs, and what a user, a member and a refresh token occupy.

The figures of docs/operations/sizing.md that no other benchmark prints. They are bytes and CPU time, so that they mean
something on a busy machine, too.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import asyncpg
import redis

from all_in_one.embedded import EmbeddedServers
from benchmarks.measure import cpu_seconds, memory_mb
from benchmarks.sign_in import sign_in
from stead import ManagementClient
from tests.support.at_a_browser import PASSWORD
from tests.support.authorizing import REDIRECT_URI
from tests.support.processes import Deployment

_USERS: Final = 500
_BATCH: Final = 100
_SIGN_INS: Final = 30
_SIZE: Final = "pg_total_relation_size(oid)"
_TABLES: Final = "relkind = 'r' AND relnamespace = 'public'::regnamespace"


def main() -> int:
    """Start everything, measure, and print the results line by line; return the exit status."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stop:
        servers = EmbeddedServers(Path(directory) / "servers", sync=False)
        stop.callback(servers.stop)
        deployment = Deployment(servers.start(), Path(directory), launcher=())
        stop.callback(deployment.stop)
        deployment.start()
        management = stop.enter_context(deployment.management_client())
        services = {process.package: process.pid for process in deployment.processes}
        stores = [server.pid for server in (servers.postgres, servers.valkey, servers.nats)]
        print(f"Python {sys.version.split()[0]}")
        for package, pid in services.items():
            print(f"{package}, idle: {memory_mb(pid)[0]:.0f} MB resident", flush=True)
        management_database = deployment.addresses.management_database_url
        size, entries = asyncio.run(_audit_trail(management_database))
        with redis.Redis.from_url(deployment.addresses.admin_redis_url) as cache:
            for line in (
                *_space(deployment, management, cache),
                *_sign_ins(deployment, management, services, stores),
                *_kinds_of_keys(cache),
            ):
                print(line, flush=True)
        grown, stored = asyncio.run(_audit_trail(management_database))
        entry = (grown - size) / (stored - entries)
        print(f"audit trail, bytes an entry: {entry:.0f}, of {stored - entries} entries")
        for package, pid in services.items():
            print(f"{package}, afterwards: {memory_mb(pid)[0]:.0f} MB resident")
    return 0


def _space(deployment: Deployment, management: ManagementClient, cache: "redis.Redis") -> Iterator[str]:
    role = management.organization_roles.create("Member").id
    organization = management.organizations.create("Sizing").id
    urls = {name: getattr(deployment.addresses, f"{name}_database_url") for name in ("management", "template")}

    def measured(what: str, work: Callable[[], None]) -> str:
        before = {name: asyncio.run(_database_bytes(url)) for name, url in urls.items()}
        memory = int(cache.info("memory")["used_memory"])
        work()
        grown = {name: (asyncio.run(_database_bytes(url)) - before[name]) / _USERS for name, url in urls.items()}
        memory = int(cache.info("memory")["used_memory"]) - memory
        return f"{what}, bytes: PostgreSQL {grown}, Redis {memory / _USERS:.0f}"

    users: list[str] = []
    yield measured("a user", lambda: users.extend(_made_users(management)))

    def join() -> None:
        for start in range(0, _USERS, _BATCH):
            batch = users[start : start + _BATCH]
            management.organizations.add_users(organization, batch)
            management.organizations.assign_roles_to_users(organization, batch, [role])

    yield measured("a member with a role", join)


def _made_users(management: ManagementClient) -> Iterator[str]:
    for number in range(_USERS):
        yield management.users.create(
            username=f"user_{number}", primary_email=f"user-{number}@example.com", name=f"User Number {number}"
        ).id


def _sign_ins(
    deployment: Deployment, management: ManagementClient, services: dict[str, int], stores: Iterable[int]
) -> Iterator[str]:
    metadata = {"redirectUris": [REDIRECT_URI]}
    client = management.applications.create(name="Site", type="SPA", oidc_client_metadata=metadata).id
    for number in range(5):
        management.users.create(username=f"signer_{number}", password=PASSWORD)
    for number in range(5):  # not measured: everything is loaded
        sign_in(deployment.tokens[0].url, client, f"signer_{number}")
    before = {package: cpu_seconds([pid]) for package, pid in services.items()}
    before_stores = cpu_seconds(stores)
    for number in range(_SIGN_INS):
        sign_in(deployment.tokens[0].url, client, f"signer_{number % 5}")
    for package, pid in services.items():
        spent_ms = 1e3 * (cpu_seconds([pid]) - before[package]) / _SIGN_INS
        yield f"a sign-in, a code and a refresh token, CPU: {package} {spent_ms:.1f} ms"
    yield f"the same, CPU of the stores: {1e3 * (cpu_seconds(stores) - before_stores) / _SIGN_INS:.1f} ms"
    for table in ("consents", "authorizations", "refresh_tokens"):
        yield f"{table}, bytes a row: {asyncio.run(_row_bytes(deployment.addresses.token_database_url, table))}"


def _kinds_of_keys(cache: "redis.Redis") -> Iterator[str]:
    sizes: dict[str, list[int]] = {}
    for key in cache.scan_iter(count=1000):
        kind = key.decode().split(":")[2]
        sizes.setdefault(kind, []).append(int(cache.memory_usage(key)))  # type: ignore[arg-type]
    for kind, found in sorted(sizes.items()):
        yield f"Redis, keys {kind}: {len(found)}, {sum(found) / len(found):.0f} bytes each"


async def _database_bytes(url: str) -> int:
    """Return the size of the tables with their indexes, without those of the audit trail and the outbox."""
    return await _fetched(url, f"SELECT sum({_SIZE}) FROM pg_class WHERE {_TABLES} AND relname !~ 'audit|outbox'")


async def _audit_trail(url: str) -> tuple[int, int]:
    """Return the size of the audit trail with its indexes, and the number of its entries."""
    trail = "relname ~ '^audit' AND relname <> 'audit_outbox'"
    size = await _fetched(url, f"SELECT sum({_SIZE}) FROM pg_class WHERE {_TABLES} AND {trail}")
    return size, await _fetched(url, "SELECT count(*) FROM audit_entries")


async def _row_bytes(url: str, table: str) -> int:
    return await _fetched(url, f"SELECT avg(pg_column_size(t.*)) FROM {table} t")


async def _fetched(url: str, query: str) -> int:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return int(await connection.fetchval(query) or 0)
    finally:
        await connection.close()


if __name__ == "__main__":
    sys.exit(main())
