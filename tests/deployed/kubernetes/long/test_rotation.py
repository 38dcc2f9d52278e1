"""Keys and a database password, replaced as docs/operations/rotation.md says: new Secrets, restarted Deployments."""

import base64
import json
import os
import re

import pytest

from tests.deployed.kubernetes.long.conftest import Load
from tests.support.cluster import ROOT, kubectl, secret

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800), pytest.mark.usefixtures("system")]

DOCUMENT = ROOT / "docs/operations/rotation.md"
SHARED, SEALING = "environment-variable-keys", "key-encryption-keys"


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def as_administrator(language: str, password: str = "") -> None:
    """Run the document's statements for token-service in PostgreSQL."""
    blocks = re.findall(rf"```sql {language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    statements = "".join(blocks).replace("NEW", password)
    assert statements
    command = ("psql", "--username", "postgres", "--set", "ON_ERROR_STOP=1", "--command", statements)
    kubectl("exec", "postgres-0", "--", *command)


def roll(secrets: dict[str, dict[str, str]]) -> None:
    """Change values of the Secrets, each named after its service; restart one service after the other."""
    for service, values in secrets.items():
        kubectl("patch", "secret", service, "--type=merge", "--patch", json.dumps({"stringData": values}))
        kubectl("rollout", "restart", f"deployment/{service}")
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")


def test_new_keys_and_a_new_database_user_fail_no_request(load: Load) -> None:
    before = secret("token-service")
    old = {name: before[name] for name in (SEALING, SHARED)}
    new = {name: key() for name in old}
    _, found, address = before["database-url"].partition("@")
    assert found
    password = os.urandom(16).hex()
    with load.during("rotation of keys and of a database user, in three rolls") as failures:
        as_administrator("before", password)
        added = {name: f"{old[name]},{new[name]}" for name in old}
        first = {name: f"{new[name]},{old[name]}" for name in old}
        database = {"database-url": f"postgresql+asyncpg://token_next:{password}@{address}"}
        for keys, others in ((added, {}), (first, database), (new, {})):
            roll({"token-service": {**keys, **others}, "management-service": {SHARED: keys[SHARED]}})
        as_administrator("after")
    assert failures() == []
