"""Random writes while processes are killed: whatever was acknowledged is there, and the directory is the database."""

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from all_in_one.embedded import EmbeddedServers
from all_in_one.provision import ServerAddresses
from identity_sdk import ManagementClient
from tests.support.agreement import require_agreement
from tests.support.impersonation import Impersonation
from tests.support.processes import Deployment
from tests.support.random_writes import Writer, make_roles

pytestmark = pytest.mark.slow

WRITES = int(os.environ.get("RANDOM_WRITES", "5000"))
CLIENTS = 8
SEED = int(os.environ.get("RANDOM_SEED", "20261121"))


def kill_until(over: threading.Event, deployment: Deployment, servers: EmbeddedServers) -> int:
    """Kill a process or NATS with SIGKILL every now and then, and start it again; return how often."""
    chance = random.Random(SEED)
    kills = 0
    while not over.wait(chance.uniform(1.0, 3.0)):
        victim = chance.choice(["management", "token", "nats"])
        if victim == "nats":
            servers.nats.kill()
            over.wait(chance.uniform(0.0, 1.5))
            servers.nats.start()
        else:
            process = deployment.management if victim == "management" else chance.choice(deployment.tokens)
            process.kill()
            process.start()
            process.wait_until_ready()
        kills += 1
    return kills


async def test_after_random_writes_and_kills_the_directory_is_the_database(
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    role_ids = make_roles(management, impersonation)
    writers = [Writer(SEED + number, management, role_ids) for number in range(CLIENTS)]
    over = threading.Event()
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        killing = pool.submit(kill_until, over, deployment, own_servers)
        try:
            list(pool.map(lambda writer: writer.write(WRITES // CLIENTS), writers))
        finally:
            over.set()
    assert killing.result() > 0
    assert sum(writer.written for writer in writers) >= WRITES // CLIENTS * CLIENTS
    await require_agreement(own_addresses, management, writers)
