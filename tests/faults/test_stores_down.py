"""A store that is down causes 503 with Retry-After or makes no difference, and recovery is automatic."""

from collections.abc import Callable
from functools import partial

import httpx2 as httpx
import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from identity_common.revisions import parse_revisions
from identity_common.wire.subject_tokens import subject_token_key
from provision import ServerAddresses
from stead import Conflict, ManagementClient, Unavailable
from tests.support.impersonation import (
    Application,
    Impersonation,
    Machine,
    client_token,
    cycle_works,
    exchange,
    make_machine,
)
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
        management.users.create(name="Unrelated")
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
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    machine: Machine,
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))  # every replica knows the machine
    application = Application(deployment, impersonation, own_addresses)
    with stopped(own_servers.nats):
        assert cycle_works(deployment, management, impersonation)
        subject_tokens = [management.subject_tokens.create(impersonation.user_id).token for _ in deployment.tokens]
        management.users.create(name="Unrelated")
        for process, subject_token in zip(deployment.tokens, subject_tokens, strict=True):
            assert exchange(process.url, impersonation, subject_token).status_code == 200
            assert client_token(process.url, machine).status_code == 200
            assert client_token(process.url, machine._replace(secret="wrong")).status_code == 401
            tokens = application.tokens(process)
            assert application.refresh(tokens["refresh_token"], process).status_code == 200
            assert application.is_active(tokens["access_token"], process)


def test_a_write_while_nats_is_down_costs_no_subject_token(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    """A token minted after the write waits for it, unspent, however often it is exchanged meanwhile."""
    eventually(lambda: cycle_works(deployment, management, impersonation))
    with stopped(own_servers.nats):
        subject_tokens = [_minted_after_a_write(management, impersonation) for _ in deployment.tokens]
        for process, subject_token in zip(deployment.tokens, subject_tokens, strict=True):
            for _ in range(2):
                _require_unavailable(exchange(process.url, impersonation, subject_token))
    for process, subject_token in zip(deployment.tokens, subject_tokens, strict=True):
        assert _once_available(partial(exchange, process.url, impersonation, subject_token)).status_code == 200
        assert exchange(process.url, impersonation, subject_token).status_code == 400


def test_a_role_assigned_while_nats_is_down_is_in_the_token_exchanged_afterwards(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    user = management.users.create(name="Promoted during the outage").id
    with stopped(own_servers.nats):
        management.users.assign_roles(user, [impersonation.role_id])
        subject_token = management.subject_tokens.create(user).token
        _require_unavailable(exchange(deployment.tokens[0].url, impersonation, subject_token))
    answer = _once_available(partial(exchange, deployment.tokens[0].url, impersonation, subject_token))
    assert (answer.status_code, answer.json().get("scope")) == (200, "read:orders write:orders")


def test_a_write_while_nats_is_down_costs_no_code_and_no_refresh_token(
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    """A code from a sign-in that saw the write waits for it, unspent; a refresh token does not depend on it."""
    eventually(lambda: cycle_works(deployment, management, impersonation))
    application = Application(deployment, impersonation, own_addresses)
    refresh_token = application.tokens()["refresh_token"]
    with stopped(own_servers.nats):
        management.users.create(name="Unrelated")
        written = parse_revisions([management.last_revision or ""])
        redemption = application.sign_in(revision=written["management"])
        for _ in range(2):
            _require_unavailable(application.post("/oidc/token", **redemption))
        refreshed = application.refresh(refresh_token)
        assert refreshed.status_code == 200, refreshed.text
    answer = _once_available(partial(application.post, "/oidc/token", **redemption))
    assert answer.status_code == 200, answer.text
    assert application.is_active(answer.json()["access_token"])


def _minted_after_a_write(management: ManagementClient, impersonation: Impersonation) -> str:
    management.users.create(name="Unrelated")
    return management.subject_tokens.create(impersonation.user_id).token


def _require_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
    assert int(answer.headers["Retry-After"]) >= 1


def _once_available(request: Callable[[], httpx.Response]) -> httpx.Response:
    """Repeat a request until the answer is not 503."""
    answers: list[httpx.Response] = []

    def is_available() -> bool:
        answers.append(request())
        return answers[-1].status_code != 503

    eventually(is_available)
    return answers[-1]


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
