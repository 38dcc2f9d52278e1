"""PostgreSQL is the source of truth: lost streams are rebuilt automatically."""

import shutil
from pathlib import Path

import httpx2 as httpx
import pytest

from all_in_one.embedded import EmbeddedServers
from stead import ManagementClient
from tests.support.impersonation import Impersonation, cycle_works, exchange
from tests.support.processes import Deployment
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def test_lost_nats_storage_is_rebuilt_and_a_new_replica_starts_from_current_rights_only(
    own_servers: EmbeddedServers,
    own_directory: Path,
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

    own_servers.nats.kill()
    shutil.rmtree(own_directory / "nats" / "jetstream")
    own_servers.nats.start()
    management.users.create(name="Written right after")
    eventually(lambda: cycle_works(deployment, management, impersonation))

    fresh = deployment.tokens[2]
    fresh.kill()
    fresh.start()
    fresh.wait_until_ready()
    eventually(lambda: cycle_works(deployment, management, impersonation))
    for subject_token in (token_of_deleted, token_of_suspended):
        refused = exchange(fresh.url, impersonation, subject_token)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
    assert httpx.get(f"{fresh.url}/health/ready").status_code == 200
