"""The secrets in the memory of token-service: no worker has them, and no process of the same user may read them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from nats.aio.client import Client
from nats.errors import NoRespondersError

from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import CheckScript, ClaimsFunctionRequests, ScriptChecked
from provision import ServerAddresses
from tests.support.claims_function import as_management
from tests.support.claims_workers import found_in_memory, kinds_of_descriptors, of_process, workers_of
from tests.support.processes import ServiceProcess
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from token_service.tokens.signing import load_private_key

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and prctl are Linux's")

IS_ROOT: Final = os.geteuid() == 0
WITHOUT_CAPABILITIES: Final = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if IS_ROOT else ()
"""Root may read every memory; without capabilities it is a user like others."""
READS: Final = "import sys; open(sys.argv[1], 'rb').close()"
TENANT: Final = f"memory-{os.getpid()}"
KEYS: Final = {
    name: base64.b64encode(os.urandom(32)).decode() for name in ("KEY_ENCRYPTION_KEYS", "ENVIRONMENT_VARIABLE_KEYS")
}


@pytest.fixture(scope="module")
def service(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """token-service as a process, in a tenant of its own; it has started workers, which have answered.

    Args:
        stack: Has created the streams.
        tmp_path_factory: For the log.
    """
    servers = stack.addresses
    environment = {
        "BASE_URL": "http://127.0.0.1:9",
        "ENVIRONMENT": "development",
        "TENANT_ID": TENANT,
        "DATABASE_URL": servers.token_database_url,
        "REDIS_URL": servers.token_redis_url,
        "NATS_URL": servers.token_nats_url,
        **KEYS,
    }
    log = tmp_path_factory.mktemp("service") / "log"
    service = ServiceProcess("token_service", environment, log, launcher=WITHOUT_CAPABILITIES)
    service.start()
    try:
        eventually(lambda: has_checked_a_script(servers))  # it is not ready: nothing has happened in the tenant
        assert all(has_checked_a_script(servers) for _ in range(3))  # the workers take turns
        yield service
    finally:
        service.stop()


def has_checked_a_script(servers: ServerAddresses) -> bool:
    """Ask the service for a check, as management-service; return whether it listens already."""
    requests = ClaimsFunctionRequests(SealingKeys((KEYS["ENVIRONMENT_VARIABLE_KEYS"],)), tenant_id=TENANT)
    sealed = requests.seal_question(CheckScript(script="const getCustomJwtClaims = () => ({});"))

    async def ask(client: Client) -> bytes | None:
        try:
            return (await client.request(requests.subject, sealed, timeout=10)).data
        except NoRespondersError:
            return None

    reply = as_management(servers.management_nats_url, ask)
    return reply is not None and requests.open_answer(reply, sealed_question=sealed) == ScriptChecked()


async def secrets_of(servers: ServerAddresses) -> dict[str, set[bytes]]:
    """Return the secrets of the service, each in the forms that a process may hold it in."""
    secrets = {name: {key.encode(), base64.b64decode(key)} for name, key in KEYS.items()}
    urls = (servers.token_database_url, servers.token_redis_url, servers.token_nats_url)
    secrets |= {
        f"password of {parts.scheme}": {parts.password.encode()} for url in urls if (parts := urlsplit(url)).password
    }
    sealing = SealingKeys((KEYS["KEY_ENCRYPTION_KEYS"],))
    database = await asyncpg.connect(servers.token_database_url.replace("+asyncpg", ""))
    try:
        rows = await database.fetch("SELECT kid, status, private_key FROM signing_key WHERE tenant_id = $1", TENANT)
    finally:
        await database.close()
    for row in rows:
        encoded = sealing.open(row["private_key"], name=row["kid"])
        key = load_private_key(encoded)
        assert isinstance(key, EllipticCurvePrivateKey)
        scalar = key.private_numbers().private_value
        secrets[f"{row['status']} signing key"] = {encoded, scalar.to_bytes(32, "big"), scalar.to_bytes(32, "little")}
    return secrets


@pytest.mark.heavy
@pytest.mark.skipif(not IS_ROOT, reason="only root may read the memory of a worker")
async def test_no_secret_of_the_service_is_in_the_memory_of_a_worker(
    servers: ServerAddresses, service: ServiceProcess
) -> None:
    secrets = await secrets_of(servers)
    assert sum(name.startswith("password of") for name in secrets) == 3
    assert {name for name in secrets if name.endswith("signing key")} == {"Current signing key", "Next signing key"}
    forms = set[bytes]().union(*secrets.values())
    in_service = found_in_memory(service.pid, *forms)
    # They are found where they are. The next key is published only, and its private part may have been overwritten.
    assert {name for name, each in secrets.items() if not each & in_service} <= {"Next signing key"}

    workers = workers_of(service.pid)
    assert len(workers) == 2
    for pid in workers:
        assert found_in_memory(pid, b"getCustomJwtClaims", *forms) == {b"getCustomJwtClaims"}
        assert of_process(pid, "environ") == ""
        assert kinds_of_descriptors(pid) == ["socket"]


def answer_to_a_reader(pid: int, name: str) -> str:
    """Return the error of another process of the same user, which no filter confines, and which opens a file."""
    command = [*WITHOUT_CAPABILITIES, sys.executable, "-I", "-c", READS, f"/proc/{pid}/{name}"]
    reader = subprocess.run(command, check=False, capture_output=True, text=True)
    return reader.stderr.splitlines()[-1].partition(":")[0] if reader.returncode else "none"


def test_another_process_of_its_user_may_not_read_the_memory_of_the_service(service: ServiceProcess) -> None:
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    in_general = "none" if not yama.exists() or yama.read_text().strip() == "0" else "PermissionError"
    with subprocess.Popen([*WITHOUT_CAPABILITIES, "sleep", "600"]) as other:
        try:
            assert answer_to_a_reader(other.pid, "mem") == in_general
        finally:
            other.kill()

    for pid in (service.pid, *workers_of(service.pid)):
        assert [answer_to_a_reader(pid, name) for name in ("mem", "environ", "maps")] == ["PermissionError"] * 3
