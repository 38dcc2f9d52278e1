"""NATS is down for minutes while writes continue: nothing is lost, and order is kept."""

import asyncio
import time

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.agreement import require_agreement
from tests.support.impersonation import Impersonation, client_token, cycle_works, make_machine
from tests.support.lengths import length
from tests.support.processes import Deployment
from tests.support.random_writes import UserWriter, make_roles, writing
from tests.support.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

OUTAGE_S = length(short=5, long=120)
"""The long outage is the stream's deduplication window, so that an event sent twice arrives twice."""
AROUND_S = length(short=2, long=3)
CLIENTS = 4
EACH = 5
"""Writes of each client during the outage, at least."""
BUSY = 0.05
"""Of the writes, less get 503 because the machine is busy."""
PAUSE_S = length(short=300, long=50) / 1000
SEED = 20261122


async def test_a_nats_outage_under_writes_loses_nothing_and_keeps_the_order(
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    role_ids = make_roles(management, impersonation)
    machine = make_machine(management, impersonation)
    eventually(lambda: cycle_works(deployment, management, impersonation))  # every replica knows the machine
    writers = [UserWriter(SEED + number, management, role_ids) for number in range(CLIENTS)]
    with writing(writers, pause_s=PAUSE_S):
        await asyncio.sleep(AROUND_S)
        own_servers.nats.kill()
        before = [writer.written for writer in writers]
        back_at = time.monotonic() + OUTAGE_S
        while time.monotonic() < back_at or not all(map(has_written, writers, before)):
            for process in deployment.tokens:
                assert client_token(process.url, machine).json()["scope"] == "read:orders"
            await asyncio.sleep(1)
            assert time.monotonic() < back_at + WAIT_S, "writes must continue during the outage"
        own_servers.nats.start()
        await asyncio.sleep(AROUND_S)

    assert sum(writer.unanswered for writer in writers) < BUSY * sum(writer.written for writer in writers)
    await require_agreement(own_addresses, management, writers)
    eventually(lambda: cycle_works(deployment, management, impersonation))


def has_written(writer: UserWriter, before: int) -> bool:
    """Return whether several writes of a client were answered."""
    return writer.written >= before + EACH
