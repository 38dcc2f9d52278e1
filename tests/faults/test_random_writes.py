"""Random writes while processes are killed: every acknowledged write is kept, and the directory equals the database."""

import os

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.agreement import require_agreement
from tests.support.impersonation import Impersonation
from tests.support.lengths import length
from tests.support.processes import Deployment, killing
from tests.support.random_writes import UserWriter, make_roles, write_all

pytestmark = pytest.mark.slow

WRITES = length(short=500, long=5_000)
CLIENTS = 8
SEED = int(os.environ.get("RANDOM_SEED", "20261121"))


async def test_after_random_writes_and_kills_the_directory_equals_the_database(
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    role_ids = make_roles(management, impersonation)
    writers = [UserWriter(SEED + number, management, role_ids) for number in range(CLIENTS)]
    with killing([deployment.management, *deployment.tokens, own_servers.nats], seed=SEED):
        write_all(writers, WRITES)
    assert sum(writer.written for writer in writers) >= WRITES
    await require_agreement(own_addresses, management, writers)
