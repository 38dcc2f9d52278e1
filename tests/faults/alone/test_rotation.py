"""Every key and password of the services, replaced under load as docs/operations/rotation.md says: no request fails."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import httpx2 as httpx
import jwt
import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from identity_common.http.routing import Service, service_for
from provision import ServerAddresses, stored_passwords
from stead import ManagementClient
from tests.support.impersonation import Impersonation
from tests.support.lengths import length
from tests.support.passwords import reload_nats
from tests.support.processes import Deployment, KeysEdge, ServiceProcess
from tests.support.rotation_document import statements

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(length(short=1, long=0) == 1, reason="restarts 14 processes: TEST_LENGTH=long"),
]

SERVICES = ("management", "token", "template")
DRAINING_S = 0.3
BETWEEN_ROUNDS_S = 0.1  # leaves the processors to the processes that start
SCRIPT = "const getCustomJwtClaims = async ({ environmentVariables }) => ({ mark: environmentVariables.MARK });"


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


class Edge(httpx.BaseTransport):
    """Sends each request to one of the replicas that serve, and counts the answers."""

    def __init__(self, deployment: Deployment) -> None:
        self.serving: dict[Service, list[ServiceProcess]] = {
            "management": [*deployment.managements],
            "token": [*deployment.tokens],
            "template": [*deployment.templates],
        }
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=50))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        service = service_for(request.url.path)
        assert service is not None
        chosen = random.choice(self.serving[service])
        request.url = request.url.copy_with(port=chosen.port)
        try:
            answer = self._inner.handle_request(request)
        except httpx.TransportError as error:
            self.failures.append(f"{request.method} {request.url.path}: {type(error).__name__}")
            raise
        if answer.status_code >= 400:
            answer.read()
            self.failures.append(f"{request.method} {request.url.path}: {answer.status_code} {answer.text[:300]}")
        self.answers[service] += 1
        return answer


class Load(NamedTuple):
    """The requests that are sent all the time; ``secret`` is the client's, and can be replaced."""

    edge: Edge
    management: ManagementClient
    impersonation: Impersonation
    base_url: str
    secret: list[str]

    def one_round(self) -> None:
        """Create a user and an organization, mint, exchange."""
        self.management.users.create(name="Passer-by")
        self.management.organizations.create("Passing")
        subject_token = self.management.subject_tokens.create(self.impersonation.user_id).token
        with httpx.Client(transport=self.edge, timeout=30) as client:
            answer = client.post(
                f"{self.base_url}/oidc/token",
                data=self.impersonation.form(subject_token),
                auth=(self.impersonation.client_id, self.secret[-1]),
            )
        if answer.status_code == 200:
            claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
            if claims["mark"] != "sealed":
                self.edge.failures.append(f"a token without its claim: {claims}")


@contextmanager
def requested(load: Load) -> Iterator[None]:
    """Repeat rounds in two threads while the body runs."""
    over = threading.Event()

    def rounds() -> None:
        while not over.wait(BETWEEN_ROUNDS_S):
            try:
                load.one_round()
            except Exception as error:  # noqa: BLE001 - reported below
                load.edge.failures.append(f"{type(error).__name__}: {error}")
                return

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(rounds)
        try:
            yield
        finally:
            over.set()


def roll(edge: Edge, settings: Mapping[Service, Mapping[str, str]]) -> None:
    """Restart the replicas of these services one by one with changed settings, as a Deployment does."""
    for service, changed in settings.items():
        for process in [*edge.serving[service]]:
            edge.serving[service].remove(process)
            time.sleep(DRAINING_S)
            process.stop()
            process.configure(**changed)
            process.start()
            process.wait_until_ready()
            edge.serving[service].append(process)


def executed(addresses: ServerAddresses, each_of: Sequence[str]) -> list[Any]:
    """Run statements as PostgreSQL's administrator; return the rows of the last one."""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(addresses.admin_postgres_url)
        try:
            for each in each_of[:-1]:
                await connection.execute(each)
            return [tuple(row) for row in await connection.fetch(each_of[-1])]
        finally:
            await connection.close()

    return asyncio.run(run())


def as_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


@pytest.fixture(scope="module")
def token_settings() -> dict[str, str]:
    return {"KEY_ENCRYPTION_KEYS": key(), "ENVIRONMENT_VARIABLE_KEYS": key()}


@pytest.fixture(scope="module")
def management_settings(token_settings: dict[str, str]) -> dict[str, str]:
    return {"ENVIRONMENT_VARIABLE_KEYS": token_settings["ENVIRONMENT_VARIABLE_KEYS"], "AUDIT_HEAD_KEYS": key()}


@pytest.fixture(scope="module")
def deployment(
    own_addresses: ServerAddresses,
    token_settings: dict[str, str],
    management_settings: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """Two replicas of each service."""
    with KeysEdge() as keys:
        deployment = Deployment(
            own_addresses,
            tmp_path_factory.mktemp("logs"),
            token_replicas=2,
            management_replicas=2,
            template_replicas=2,
            jwks_url=keys.url,
            token_settings=token_settings,
            management_settings=management_settings,
        )
        keys.replicas = [process.url for process in deployment.tokens]
        with deployment:
            yield deployment


def test_no_request_fails_while_every_secret_is_replaced(
    own_servers: EmbeddedServers,
    own_directory: Path,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    impersonation: Impersonation,
    token_settings: dict[str, str],
    management_settings: dict[str, str],
) -> None:
    edge = Edge(deployment)
    with deployment.management_client(edge) as management:
        management.custom_claims.save(
            "access-token", SCRIPT, environment_variables={"MARK": "sealed"}, block_issuance_on_error=True
        )
        load = Load(edge, management, impersonation, deployment.base_url, [impersonation.client_secret])
        with requested(load):
            _rotate_client_secret(load)
            new = _two_of_each(own_servers, own_directory, own_addresses)
            keys = {name: [old, key()] for name, old in {**token_settings, **management_settings}.items()}

            # 1: every replica can open what the new keys seal.
            roll(edge, {"token": _joined(keys, token_settings), "management": _joined(keys, management_settings)})
            # 2: the new keys seal, and seal again what there is. The servers' new users, too.
            for ring in keys.values():
                ring.reverse()
            roll(
                edge,
                {
                    "token": {**_joined(keys, token_settings), **new["token"]},
                    "management": {**_joined(keys, management_settings), **new["management"]},
                    "template": new["template"],
                },
            )
            # 3: only now are the old ones forgotten.
            only = {name: [ring[0]] for name, ring in keys.items()}
            roll(edge, {"token": _joined(only, token_settings), "management": _joined(only, management_settings)})
            _one_of_each(own_servers, own_directory, own_addresses)
            for _ in range(10):
                load.one_round()
    assert edge.failures == []
    assert min(edge.answers[service] for service in ("management", "token", "template")) > 20
    for process in deployment.processes:
        assert not re.search("unreadable|head-key-sealed", process.log.read_text())


def _joined(rings: Mapping[str, Sequence[str]], names: Iterable[str]) -> dict[str, str]:
    return {name: ",".join(rings[name]) for name in names}


def _rotate_client_secret(load: Load) -> None:
    made = load.management.applications.create_secret(load.impersonation.client_id, "second")
    load.secret.append(made.value or "")
    time.sleep(DRAINING_S)
    load.management.applications.delete_secret(load.impersonation.client_id, "first")


def _new_password(service: str) -> str:
    return f"the-next-password-of-{service}"


def _two_of_each(
    servers: EmbeddedServers, directory: Path, addresses: ServerAddresses
) -> dict[Service, dict[str, str]]:
    """Add a second user or password for each service to each server; return the settings that use them."""
    passwords = {service: _new_password(service) for service in SERVICES}
    for service, password in passwords.items():
        executed(addresses, [_filled(line, service, password) for line in statements("sql before")])
    with redis.Redis.from_url(addresses.admin_redis_url) as client:
        for service, password in passwords.items():
            for line in statements("redis before"):
                client.execute_command(*_filled(line, service, password).split())
    known = stored_passwords(directory).nats
    reload_nats(servers, directory, known | {f"{service}-next": password for service, password in passwords.items()})
    return {
        service: {  # type: ignore[misc]
            "DATABASE_URL": as_user(getattr(addresses, f"{service}_database_url"), f"{service}_next", password),
            "REDIS_URL": as_user(getattr(addresses, f"{service}_redis_url"), service, password),
            "NATS_URL": as_user(getattr(addresses, f"{service}_nats_url"), f"{service}-next", password),
        }
        for service, password in passwords.items()
    }


def _filled(line: str, service: str, password: str, old: str = "") -> str:
    return line.replace("token", service).replace("NEW", password).replace("OLD", old)


def _one_of_each(servers: EmbeddedServers, directory: Path, addresses: ServerAddresses) -> None:
    """Take the old password of each service away, and show that it is refused."""
    known = stored_passwords(directory)
    for service in SERVICES:
        for line in statements("sql after"):
            executed(addresses, [_filled(line, service, "")])
        used = executed(addresses, [f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{service}'"])
        assert used == [(0,)]
        with redis.Redis.from_url(addresses.admin_redis_url) as client:
            for line in statements("redis after"):
                client.execute_command(*_filled(line, service, "", known.redis[service]).split())
        with (
            redis.Redis.from_url(getattr(addresses, f"{service}_redis_url")) as refused,
            pytest.raises(redis.AuthenticationError),
        ):
            refused.ping()
    nats = {user: f"{password}-unused" if user in SERVICES else password for user, password in known.nats.items()}
    reload_nats(servers, directory, nats | {f"{service}-next": _new_password(service) for service in SERVICES})
