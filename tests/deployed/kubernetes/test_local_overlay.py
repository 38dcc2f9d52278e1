"""deploy/k8s: the overlay ``local`` on a real cluster, its edge, the first client, a subscriber, a restart under load.

The cluster is the one of kubectl's current context; its node has the images.
"""

import base64
import json
import threading
import time

import httpx2 as httpx
import pytest

from stead import IdentityError, ManagementClient, Unavailable
from tests.support.cluster import SERVICES, kubectl, secret
from tests.support.cluster_journeys import enter_the_console, hear_a_permission_and_use_it, impersonate, sign_in
from tests.support.impersonation import Impersonation, client_token, make_machine
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]


def test_an_impersonation_through_the_edge(
    system: str, management: ManagementClient, impersonation: Impersonation
) -> None:
    impersonate(system, management, impersonation)


def test_a_sign_in_through_the_edge(system: str, management: ManagementClient) -> None:
    sign_in(system, management)


def test_the_first_administrator_signs_in_to_the_console(system: str) -> None:
    enter_the_console(system, "By the console")


def test_a_subscriber_in_another_namespace_hears_what_an_organization_token_then_carries(
    system: str, management: ManagementClient, impersonation: Impersonation
) -> None:
    hear_a_permission_and_use_it(system, management, impersonation)


def test_the_edge_hides_what_is_not_public(system: str) -> None:
    paths = ("/health/ready", "/metrics", "/schema", "/oidc/jwks", "/.well-known/openid-configuration")
    assert [httpx.get(f"{system}{path}").status_code for path in paths] == [404, 404, 404, 200, 200]


def test_the_bootstrap_prints_the_name_of_its_secret_only(management: ManagementClient) -> None:
    printed = kubectl("logs", "--selector", "app.kubernetes.io/name=bootstrap", "--tail", "-1")
    assert "stead-first-client" in printed
    assert "stead-administrator" in printed
    assert secret("stead-first-client")["client_secret"] not in printed
    assert secret("stead-console")["console_client_secret"] not in printed
    assert secret("stead-administrator")["invitation"] not in printed


def test_no_secret_is_in_what_describe_shows() -> None:
    shown = kubectl("get", "pods,jobs,deployments,statefulsets,configmaps", "--output", "yaml")
    secrets = json.loads(kubectl("get", "secrets", "--output", "json"))["items"]
    values = {base64.b64decode(value).decode() for secret in secrets for value in secret["data"].values()}
    files = [json.loads(value) for value in values if value.startswith("{")]
    values |= {password for file in files for users in file.values() for password in users.values()}
    assert len(values) > 20
    assert [value for value in values if len(value) >= 16 and value in shown] == []


def test_postgresql_returns_in_another_pod(management: ManagementClient, impersonation: Impersonation) -> None:
    kubectl("delete", "pod", "postgres-0")
    kubectl("rollout", "status", "statefulset/postgres", "--timeout=120s")

    def is_read() -> bool:
        try:
            return management.users.get(impersonation.user_id).id == impersonation.user_id
        except Unavailable:
            return False

    eventually(is_read, within_s=60)


@pytest.mark.parametrize("service", SERVICES)
def test_no_request_fails_during_a_rolling_restart(
    system: str, management: ManagementClient, impersonation: Impersonation, service: str
) -> None:
    machine = make_machine(management, impersonation)
    eventually(lambda: client_token(system, machine).status_code == 200)
    outcomes: list[int | str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                outcomes.append(client_token(system, machine).status_code)
                management.users.get(impersonation.user_id)
            except (httpx.TransportError, IdentityError) as error:
                outcomes.append(repr(error))
            time.sleep(0.02)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        kubectl("rollout", "restart", f"deployment/{service}")
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")
    finally:
        stop.set()
        asking.join()
    assert len(outcomes) > 50
    assert set(outcomes) == {200}
