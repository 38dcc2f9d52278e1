"""Random changes of the template and of members while processes are killed: nothing is lost, and all stores agree."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.agreement import CommitWatch, require_template_agreement
from tests.support.impersonation import Impersonation
from tests.support.lengths import length
from tests.support.processes import Deployment, killing
from tests.support.random_template_changes import TemplateWriter
from tests.support.random_writes import Acknowledged, write_all
from tests.support.template_tables import TemplateTables

pytestmark = pytest.mark.slow

CHANGES = length(short=400, long=10_000)
CLIENTS = 8
SEED = int(os.environ.get("RANDOM_SEED", "20261121"))


@pytest.fixture(scope="module")
def deployment(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas of each service that is killed."""
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
            await asyncio.to_thread(write_all, writers, CHANGES)
    assert sum(writer.written for writer in writers) >= CHANGES
    assert watch.heard > 0
    assert watch.early == []
    await require_template_agreement(tables, addresses, known)
