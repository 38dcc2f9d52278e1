"""Replicas of template-service are killed while members change at random, and during a large fan-out.

Nothing is lost, duplicated or out of order, and all stores agree.
"""

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.agreement import CommitWatch, require_template_agreement, require_told
from tests.support.impersonation import Impersonation
from tests.support.lengths import length
from tests.support.processes import Deployment, killing
from tests.support.random_template_changes import TemplateWriter
from tests.support.random_writes import Acknowledged, write_all
from tests.support.template_tables import TemplateTables

pytestmark = pytest.mark.slow

CHANGES = length(short=1_000, long=10_000)
CLIENTS = length(short=4, long=8)
PAUSE_MS = length(short=20, long=0)
"""Before each change of a client: a few changes last as long as several kills."""
MEMBERS = length(short=500, long=2_500)
"""Reached by a fan-out."""
KILLS = length(short=4, long=10)
"""During a fan-out."""
SEEDS = range(1, 1 + length(short=1, long=3))
SEED = int(os.environ.get("RANDOM_SEED", "20261121"))


@pytest.fixture(scope="module")
def deployment(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas of each service that is killed; either one of template-service may be the active one."""
    logs = tmp_path_factory.mktemp("logs")
    with Deployment(own_addresses, logs, token_replicas=2, template_replicas=2) as deployment:
        yield deployment


@pytest_asyncio.fixture
async def tables(own_addresses: ServerAddresses) -> AsyncIterator[TemplateTables]:
    database_url, bus_url = own_addresses.template_database_url, own_addresses.subscriber_nats_url
    async with TemplateTables(database_url, bus_url, "default") as tables:
        yield tables


async def test_after_random_changes_and_kills_database_directory_and_events_agree_on_every_member(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    tables: TemplateTables,
) -> None:
    addresses = deployment.addresses
    scope_ids = [scope.id for scope in management.resources.scopes(impersonation.resource_id)]
    known = Acknowledged()
    writers = [TemplateWriter(SEED + number, known, management, scope_ids) for number in range(CLIENTS)]
    async with CommitWatch(addresses) as watch:
        with killing([*deployment.templates, *deployment.tokens, own_servers.nats], seed=SEED):
            await asyncio.to_thread(write_all, writers, CHANGES, pause_s=PAUSE_MS / 1000)
    assert sum(writer.written for writer in writers) >= CHANGES
    assert watch.heard > 0
    assert watch.early == []
    await require_template_agreement(tables, addresses, known)


async def kill_at_random(deployment: Deployment, servers: EmbeddedServers, seed: int) -> None:
    """Kill replicas and NATS with SIGKILL, and start them again."""
    chance = random.Random(seed)
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.2, 1.2))
        victim = chance.choice([*deployment.templates, servers.nats])
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(chance.uniform(0, 0.5))
        await asyncio.to_thread(victim.start)
    for replica in deployment.templates:
        await asyncio.to_thread(replica.wait_until_ready)


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_events_agree_with_the_database_after_replicas_and_nats_are_killed(
    deployment: Deployment, own_servers: EmbeddedServers, tables: TemplateTables, seed: int
) -> None:
    chance = random.Random(seed)
    permissions = [await tables.permission(f"p{seed}-{number}") for number in range(4)]
    role, passing = await tables.role(permissions[0]), await tables.role(permissions[3])
    organization, dissolved = await tables.organization(), await tables.organization()
    members = await tables.members(organization, MEMBERS, role, passing, quietly=True)
    await tables.members(dissolved, MEMBERS // 2, role)
    killing = asyncio.create_task(kill_at_random(deployment, own_servers, seed))
    for edit in itertools.count():
        await (tables.revoke if edit % 2 else tables.grant)(role, permissions[1 + edit // 2 % 2])
        if edit % 5 == 0:
            await tables.unassign(organization, chance.sample(members, 20), role)
        if edit % 7 == 0:
            await tables.rename_permission(chance.choice(permissions[1:3]), f"renamed {seed} {edit}")
        if edit == 10:
            await tables.delete_role(passing)
            await tables.delete_organization(dissolved)
        await asyncio.sleep(chance.uniform(0, 0.8))
        if killing.done() and edit > 10:
            break
    await killing
    await tables.settled(120)

    await require_told(tables)
    for table in ("members WHERE organization_id", "member_roles WHERE role_id"):
        gone = dissolved if table.startswith("members") else passing
        assert await tables.database.fetchval(f"SELECT count(*) FROM {table} = $1", gone) == 0
