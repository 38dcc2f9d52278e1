"""Keys and passwords, replaced as docs/operations/rotation.md says: new Secrets, restarted Deployments."""

import base64
import json
import os
import re

import pytest

from stead import ManagementClient
from tests.deployed.kubernetes.long.conftest import Load
from tests.support.cluster import kubectl, run_again, secret
from tests.support.cluster_journeys import enter_the_console
from tests.support.rotation_document import statements
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800), pytest.mark.usefixtures("system")]

SHARED, SEALING, HEADS = "environment-variable-keys", "key-encryption-keys", "audit-head-keys"
RINGS = {"token-service": (SEALING, SHARED), "management-service": (SHARED, HEADS)}


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def as_administrator(language: str, password: str = "") -> None:
    """Run the document's statements for token-service in PostgreSQL."""
    command = ("psql", "--username", "postgres", "--set", "ON_ERROR_STOP=1", "--command")
    kubectl("exec", "postgres-0", "--", *command, "".join(statements(f"sql {language}")).replace("NEW", password))


def roll(secrets: dict[str, dict[str, str]]) -> None:
    """Change values of the Secrets, each named after its service; restart one service after the other."""
    for service, values in secrets.items():
        kubectl("patch", "secret", service, "--type=merge", "--patch", json.dumps({"stringData": values}))
        kubectl("rollout", "restart", f"deployment/{service}")
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")


def test_new_keys_and_a_new_database_user_fail_no_request(load: Load, management: ManagementClient) -> None:
    before = {name: value for service in RINGS for name, value in secret(service).items()}
    old = {name: before[name] for names in RINGS.values() for name in names}
    new = {name: key() for name in old}
    _, found, address = secret("token-service")["database-url"].partition("@")
    assert found
    password = os.urandom(16).hex()
    with load.during("rotation of keys and of a database user, in three rolls") as failures:
        for keys in ("/api/configs/oidc/not-valid-keys", "/api/logs/keys"):
            management.request("POST", f"{keys}/rotate")
        as_administrator("before", password)
        added = {name: f"{old[name]},{new[name]}" for name in old}
        first = {name: f"{new[name]},{old[name]}" for name in old}
        database = {"database-url": f"postgresql+asyncpg://token_next:{password}@{address}"}
        for ring, others in ((added, {}), (first, database), (new, {})):
            of = {service: {name: ring[name] for name in names} for service, names in RINGS.items()}
            roll({**of, "token-service": {**of["token-service"], **others}})
        as_administrator("after")
    assert failures() == []
    for service in RINGS:
        log = kubectl("logs", "--selector", f"app.kubernetes.io/name={service}", "--tail", "-1")
        assert not re.search("unreadable|head-key-sealed", log)
    assert len(management.request("GET", "/api/logs/keys")) > 1


def test_provisioning_goes_on_with_another_password_of_the_administrator() -> None:
    password = os.urandom(16).hex()
    passwords = json.loads(secret("provision")["secrets.json"])
    as_administrator("administrator", password)
    passwords["postgres"]["postgres"] = password
    changed = json.dumps({"stringData": {"secrets.json": json.dumps(passwords)}})
    kubectl("patch", "secret", "provision", "--type=merge", "--patch", changed)
    run_again("provision-dev")
    assert "applied to postgres" in kubectl("logs", "job/provision-dev")


def test_the_console_goes_on_with_another_secret_of_its_client(system: str) -> None:
    enter_the_console(system, "Before")
    old = secret("stead-console")["console_client_secret"]
    kubectl("delete", "secret", "stead-console")
    run_again("bootstrap-dev")
    new = secret("stead-console")["console_client_secret"]
    assert new != old
    pods = kubectl("get", "pods", "--selector", "app.kubernetes.io/name=console", "--output", "name").split()
    show = "print(open('/run/secrets/console/console_client_secret').read(), end='')"

    def mounted() -> set[str]:
        return {kubectl("exec", pod, "--", "python", "-c", show) for pod in pods}

    eventually(lambda: mounted() == {new}, within_s=240)
    enter_the_console(system, "Afterwards")
