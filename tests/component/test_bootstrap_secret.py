"""The first client's credentials in a Secret of Kubernetes: the requests to the API server, and what repeats do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import asyncpg
import httpx2 as httpx
import msgspec
import pytest
import pytest_asyncio

from identity_common.serving import CommandError
from identity_common.settings import InvalidSettingsError
from management_service.app import _bootstrap, migrate
from management_service.bootstrap import Credentials
from management_service.kubernetes_secret import KubernetesSecret
from management_service.settings import Settings
from provision import ServerAddresses
from tests.support.databases import new_database
from tests.support.issuer import Issuer
from tests.support.management_api import settings_for

pytestmark = pytest.mark.servers

PATH = "/api/v1/namespaces/stead/secrets/first-client"


class ApiServer(BaseHTTPRequestHandler):
    """Answers for one Secret as the API server of Kubernetes does."""

    server: Recorded

    def do_GET(self) -> None:
        self._answer(404 if self.server.secret is None else 200)

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.refuses:
            self.server.secret = json.loads(body)
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.server.requests.append((self.command, self.path, self.headers.get("Content-Type")))
        self.send_response(403 if self.server.refuses == self.command else status)
        self.end_headers()
        refusal = {"kind": "Status", "reason": "Forbidden", "message": "secret text"}
        self.wfile.write(json.dumps(refusal if self.server.refuses else self.server.secret).encode())

    def log_message(self, *_: object) -> None:
        pass


class Recorded(ThreadingHTTPServer):
    """A server with the Secret that it has, the requests so far, and the method that it refuses."""

    secret: dict[str, Any] | None = None
    refuses = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiServer)
        self.requests: list[tuple[str, str, str | None]] = []


@pytest.fixture
def server() -> Iterator[Recorded]:
    server = Recorded()
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest_asyncio.fixture
async def settings(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Settings]:
    async with new_database(servers, servers.management_database_url) as url:
        settings = settings_for(servers, issuer, database_url=url)
        await asyncio.to_thread(migrate, settings)
        yield settings


async def bootstrapped(settings: Settings, server: Recorded) -> Credentials:
    """Run the command as in a pod."""
    http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.server_port}")
    return await _bootstrap(settings, KubernetesSecret(http, namespace="stead", name="first-client"))


async def secrets_of(settings: Settings) -> int:
    connection = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    try:
        return int(await connection.fetchval("SELECT count(*) FROM application_secrets"))
    finally:
        await connection.close()


def stored(server: Recorded) -> Credentials:
    assert server.secret is not None
    values = msgspec.convert(server.secret["data"], dict[str, bytes], strict=False)  # from Base64
    return msgspec.convert({key: value.decode() for key, value in values.items()}, Credentials)


async def test_it_is_written_once_and_kept_by_runs_at_once_and_later(settings: Settings, server: Recorded) -> None:
    first, second = await asyncio.gather(bootstrapped(settings, server), bootstrapped(settings, server))
    assert first == second == await bootstrapped(settings, server) == stored(server)
    assert await secrets_of(settings) == 1
    assert server.requests == [
        ("GET", PATH, None),
        ("PATCH", f"{PATH}?fieldManager=stead-bootstrap&force=true", "application/apply-patch+yaml"),
        ("GET", PATH, None),
        ("GET", PATH, None),
    ]
    assert server.secret is not None
    assert {key: server.secret[key] for key in ("apiVersion", "kind", "metadata", "type")} == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "first-client"},
        "type": "Opaque",
    }


@pytest.mark.parametrize(
    "lost", [None, {}, {"data": {"client_id": "eA=="}}, {"data": {"client_id": "not Base64"}}, {"data": {"x": "/w=="}}]
)
async def test_a_lost_or_damaged_one_gets_a_new_secret_of_the_same_client(
    settings: Settings, server: Recorded, lost: dict[str, Any] | None
) -> None:
    first = await bootstrapped(settings, server)
    server.secret = lost
    second = await bootstrapped(settings, server)
    assert second == stored(server)
    assert second.client_id == first.client_id
    assert second.client_secret != first.client_secret


async def test_a_secret_that_was_deleted_is_replaced(settings: Settings, server: Recorded) -> None:
    first = await bootstrapped(settings, server)
    connection = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    await connection.execute("DELETE FROM application_secrets")
    await connection.close()
    second = await bootstrapped(settings, server)
    assert second.client_secret != first.client_secret
    assert stored(server) == second


@pytest.mark.parametrize(("method", "made"), [("GET", 0), ("PATCH", 1)])
async def test_a_refusal_is_an_error_without_its_message(
    settings: Settings, server: Recorded, method: str, made: int
) -> None:
    server.refuses = method
    with pytest.raises(CommandError, match=r"^Kubernetes refused access to the Secret first-client: 403 Forbidden$"):
        await bootstrapped(settings, server)
    assert await secrets_of(settings) == made


async def test_a_server_that_does_not_answer_is_an_error(settings: Settings, server: Recorded) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(CommandError, match="the API server of Kubernetes does not answer"):
        await bootstrapped(settings, server)
    assert await secrets_of(settings) == 0


def test_outside_of_a_pod_nothing_is_done(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not a pod with the token of a ServiceAccount"):
        KubernetesSecret.in_this_pod("first-client", {}, tmp_path)
    address = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(CommandError, match="not a pod with the token of a ServiceAccount"):
        KubernetesSecret.in_this_pod("first-client", address, tmp_path)


@pytest.mark.parametrize("name", ["../x", "A", "a_b", "a/", "-a", "a" * 254])
def test_a_name_that_no_secret_can_have_is_refused(servers: ServerAddresses, issuer: Issuer, name: str) -> None:
    with pytest.raises(InvalidSettingsError, match="BOOTSTRAP_SECRET_NAME"):
        settings_for(servers, issuer, bootstrap_secret_name=name)
