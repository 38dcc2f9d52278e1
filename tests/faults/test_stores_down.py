"""A store that is down causes 503 with Retry-After or makes no difference, and recovery is automatic."""

import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from identity_common.wire.subject_tokens import subject_token_key
from provision import ServerAddresses
from stead import Conflict, ManagementClient, Unavailable
from tests.support.impersonation import Impersonation, Machine, client_token, cycle_works, exchange, make_machine
from tests.support.lengths import length
from tests.support.processes import Deployment, stopped
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

EMPTIED = length(short=3, long=6)
"""How many times Redis is emptied: at least once for each replica."""


@pytest.fixture
def machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    """A machine-to-machine application that holds read:orders."""
    return make_machine(management, impersonation)


def test_with_redis_down_minting_and_exchange_answer_503_and_client_credentials_still_work(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    machine: Machine,
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    with stopped(own_servers.valkey):
        for process in deployment.tokens:
            refused = exchange(process.url, impersonation, subject_token)
            assert (refused.status_code, refused.json()["error"]) == (503, "temporarily_unavailable")
            assert int(refused.headers["Retry-After"]) >= 1
            issued = client_token(process.url, machine)
            assert (issued.status_code, issued.json().get("scope")) == (200, "read:orders")
            refused = client_token(process.url, machine, organization_id="o12345678901")
            assert (refused.status_code, refused.json()["error"]) == (503, "temporarily_unavailable")
        with pytest.raises(Unavailable) as unavailable:
            management.subject_tokens.create(impersonation.user_id)
        assert unavailable.value.retry_after is not None
    eventually(lambda: cycle_works(deployment, management, impersonation))


def test_with_nats_down_the_token_endpoint_still_works(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    machine: Machine,
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))  # every replica knows the machine
    with stopped(own_servers.nats):
        assert cycle_works(deployment, management, impersonation)
        assert client_token(deployment.tokens[0].url, machine).status_code == 200
        assert client_token(deployment.tokens[0].url, machine._replace(secret="wrong")).status_code == 401


def test_writes_made_while_nats_is_down_arrive_afterwards_in_order(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    with stopped(own_servers.nats):
        users = [management.users.create(name=f"written during the outage {number}").id for number in range(20)]
        management.users.suspend(users[0])
    management.users.suspend(users[1])
    eventually(lambda: _exchange_of(management, deployment, impersonation, users[2]) == 200)
    with pytest.raises(Conflict):
        management.subject_tokens.create(users[0])
    assert _exchange_of(management, deployment, impersonation, users[19]) == 200


def _exchange_of(
    management: ManagementClient, deployment: Deployment, impersonation: Impersonation, user_id: str
) -> int:
    subject_token = management.subject_tokens.create(user_id).token
    return exchange(deployment.tokens[0].url, impersonation, subject_token).status_code


def test_with_postgresql_down_the_token_endpoint_still_works(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    machine: Machine,
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))  # every replica is up to date
    subject_tokens = [management.subject_tokens.create(impersonation.user_id).token for _ in deployment.tokens]
    with stopped(own_servers.postgres):
        for process, subject_token in zip(deployment.tokens, subject_tokens, strict=True):
            assert exchange(process.url, impersonation, subject_token).status_code == 200
            assert client_token(process.url, machine).status_code == 200
        with pytest.raises(Unavailable) as unavailable:
            management.users.create(name="refused")
        assert unavailable.value.retry_after is not None
    eventually(lambda: cycle_works(deployment, management, impersonation))


def test_killing_a_replica_loses_nothing(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    killed = deployment.tokens[2]
    killed.kill()
    assert exchange(deployment.tokens[1].url, impersonation, subject_token).status_code == 200
    killed.start()
    killed.wait_until_ready()
    assert exchange(killed.url, impersonation, subject_token).status_code == 400


def test_emptying_redis_under_load_causes_no_wrong_grant_and_it_is_rebuilt_by_itself(
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    suspended = management.users.create(name="Suspended later").id
    outdated = management.subject_tokens.create(suspended).token
    key = subject_token_key("default", outdated)
    management.users.suspend(suspended)
    with redis.Redis.from_url(own_addresses.admin_redis_url) as administrator:
        record = administrator.dump(key)
        for number in range(EMPTIED):
            administrator.flushall()
            administrator.restore(key, 600_000, record)  # the one record that must never yield a token
            refused = exchange(deployment.tokens[number % 3].url, impersonation, outdated)
            assert refused.status_code in {400, 503}
            eventually(lambda: cycle_works(deployment, management, impersonation))
