"""A store refuses the services' passwords for some seconds, under load: everything recovers without a restart."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Self

import httpx2 as httpx
import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses, stored_passwords
from stead import ManagementClient, NotValidFeed, Unavailable
from stead.events import EventBus, permission_changes
from tests.support.at_a_browser import PASSWORD, password_sent
from tests.support.authorizing import REDIRECT_URI
from tests.support.impersonation import Impersonation, Machine, client_token, cycle_works, exchange, make_machine
from tests.support.lengths import length
from tests.support.passwords import refused_by_nats, refused_by_postgresql, refused_by_redis
from tests.support.processes import Deployment, ServiceProcess
from tests.support.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

REFUSED_S = length(short=4, long=20)
STORES = ("nats", "redis", "postgresql")
SCRIPT = "const getCustomJwtClaims = async () => ({ run: 'yes' });"


class Load:
    """Requests to every store through every service, repeated while the body of ``running`` runs."""

    def __init__(self, deployment: Deployment, impersonation: Impersonation, machine: Machine) -> None:
        self._deployment = deployment
        self._machine = machine
        self._revoked = client_token(deployment.tokens[0].url, machine).json()["access_token"]
        self._impersonation = impersonation
        self._bearer = {"Authorization": f"Bearer {deployment.management_access_token()}"}
        self._over = threading.Event()
        self.unexpected: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        requests = (self._exchange, self._revoke, self._create_user, self._list_organizations)
        with ThreadPoolExecutor(len(requests)) as pool:
            running = [pool.submit(self._repeat, request) for request in requests]
            try:
                yield
            finally:
                self._over.set()
        for each in running:
            each.result()

    def _repeat(self, request: Callable[[str], httpx.Response]) -> None:
        while not self._over.wait(0.05):
            for process in self._deployment.tokens[:2]:
                answer = request(process.url)
                is_complete = answer.status_code != 503 or int(answer.headers.get("Retry-After", 0)) >= 1
                if answer.status_code not in {200, 400, 503} or not is_complete:
                    self.unexpected[f"{request.__name__}: {answer.status_code} {answer.text}"] += 1

    def _exchange(self, url: str) -> httpx.Response:
        return exchange(url, self._impersonation, f"sub_{'unknown' * 6}0")

    def _revoke(self, url: str) -> httpx.Response:
        form = {"token": self._revoked}
        return httpx.post(f"{url}/oidc/token/revocation", data=form, auth=self._machine, timeout=WAIT_S)

    def _create_user(self, _: str) -> httpx.Response:
        url = f"{self._deployment.management.url}/api/users"
        return httpx.post(url, json={"name": "Made under load"}, headers=self._bearer, timeout=WAIT_S)

    def _list_organizations(self, _: str) -> httpx.Response:
        url = f"{self._deployment.template.url}/api/organizations"
        return httpx.get(url, headers=self._bearer, timeout=WAIT_S)


class Subscriber:
    """Reads changes of permissions in a thread, from before the refusal until ``stop``."""

    def __init__(self, addresses: ServerAddresses) -> None:
        self._url = addresses.subscriber_nats_url
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read()), daemon=True)
        self.members: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._reading.cancel)
        self._thread.join(WAIT_S)

    async def _read(self) -> None:
        async with EventBus(self._url) as bus:
            self._loop = asyncio.get_running_loop()
            self._reading = asyncio.ensure_future(self._keep(bus))
            await asyncio.wait((self._reading,))

    async def _keep(self, bus: EventBus) -> None:
        async for change in permission_changes(bus):
            self.members.add(change.member_id)


class Everything:
    """What the services do for each other over the stores, each of it at every replica.

    Attributes:
        feeds: The not-valid feed of verifiers, over HTTP and over NATS.
    """

    def __init__(
        self,
        deployment: Deployment,
        management: ManagementClient,
        impersonation: Impersonation,
        addresses: ServerAddresses,
    ) -> None:
        self._deployment = deployment
        self._management = management
        self._impersonation = impersonation
        self._username = f"person_{secrets.token_hex(4)}"
        management.users.create(username=self._username, password=PASSWORD)
        self._spa = management.applications.create(
            name="Partner", type="SPA", oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
        ).id
        name = f"read {secrets.token_hex(4)}"
        permission = management.organization_permissions.create(name.replace(" ", ":"))
        self._role = management.organization_roles.create(name, permission_ids=[permission.id]).id
        self._organization = management.organizations.create(name).id
        credentials = {"client_id": impersonation.client_id, "client_secret": impersonation.client_secret}
        options = {"base_url": deployment.tokens[0].url, "issuer": deployment.issuer, **credentials}
        self.feeds = (
            NotValidFeed.over_http(**options),
            NotValidFeed.over_nats(addresses.subscriber_nats_url, **options),
        )
        self.subscriber = Subscriber(addresses)

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for each in (*self.feeds, self.subscriber):
                entered.enter_context(each)
            eventually(self.works)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def works(self) -> bool:
        return (
            cycle_works(self._deployment, self._management, self._impersonation)
            and all(self._signs_in(process) for process in self._deployment.tokens)
            and all(feed.is_fresh for feed in self.feeds)
            and self._answers()
            and self._is_heard()
        )

    def _signs_in(self, process: ServiceProcess) -> bool:
        """Tell whether a password is checked, which management-service does."""
        return password_sent(process.url, self._spa, self._username).status_code == 303

    def _answers(self) -> bool:
        """Tell whether template-service and token-service answer management-service."""
        try:
            self._management.users.list(without_organization_id=self._organization, page_size=1).page()
            self._management.custom_claims.test("access-token", SCRIPT, token={}, context={})
        except Unavailable:
            return False
        return True

    def _is_heard(self) -> bool:
        """Tell whether a new member's permissions reach a subscriber, and the act the audit trail."""
        try:
            member = self._management.users.create(name="Member").id
            self._management.organizations.add_users(self._organization, [member])
            self._management.organizations.assign_user_roles(self._organization, member, [self._role])
            eventually(lambda: member in self.subscriber.members)
            eventually(lambda: bool(self._management.logs.list(target_id=member).page().items))
        except Unavailable:
            return False
        return True


@pytest.fixture(scope="module")
def everything(
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    own_addresses: ServerAddresses,
) -> Iterator[Everything]:
    with Everything(deployment, management, impersonation, own_addresses) as everything:
        yield everything


@pytest.fixture(scope="module")
def machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    return make_machine(management, impersonation)


@pytest.fixture(params=["nats", "redis", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def refusing(
    store: str, own_servers: EmbeddedServers, own_directory: Path, own_addresses: ServerAddresses
) -> AbstractContextManager[None]:
    if store == "nats":
        return refused_by_nats(own_servers, own_directory)
    return {"redis": refused_by_redis, "postgresql": refused_by_postgresql}[store](own_addresses, own_directory)


def test_everything_recovers_from_refused_logins(
    store: str,
    refusing: AbstractContextManager[None],
    own_directory: Path,
    deployment: Deployment,
    impersonation: Impersonation,
    machine: Machine,
    everything: Everything,
) -> None:
    eventually(everything.works)
    known = [*deployment.tokens[:2], *deployment.managements, *deployment.templates]
    before = [process.pid for process in known]
    passwords = getattr(stored_passwords(own_directory), "postgres" if store == "postgresql" else store).values()
    written = {process: process.log.stat().st_size for process in deployment.processes}
    since = dict(written)
    by_nats = deployment.processes if store == "nats" else []
    load = Load(deployment, impersonation, machine)
    with load.running():
        with refusing:
            deployment.tokens[2].kill()
            since[deployment.tokens[2]] = deployment.tokens[2].log.stat().st_size
            deployment.tokens[2].start()
            time.sleep(REFUSED_S)
            eventually(lambda: {reachable(process)[store] for process in known} == {0.0})
            eventually(lambda: all(refusals(process, since[process]) for process in by_nats))
        deployment.tokens[2].wait_until_ready()
        eventually(everything.works)
    assert load.unexpected == {}
    assert [process.pid for process in known] == before
    for process in deployment.processes:
        # Each process logs it once.
        assert refusals(process, since[process]) == ["authorization violation"] * (process in by_nats)
        log = process.log.read_bytes()[written[process] :].decode()
        assert not any(password in log for password in passwords)
    eventually(lambda: {reachable(process)[store] for process in deployment.processes} == {1.0})


def refusals(process: ServiceProcess, since: int) -> list[str]:
    """Return the reasons of the refused logins at NATS in the complete lines of a log, from this place on."""
    lines = process.log.read_bytes()[since:].rpartition(b"\n")[0].splitlines()
    return [line["reason"] for line in map(json.loads, lines) if line["event"] == "bus.login-refused"]


def reachable(process: ServiceProcess) -> dict[str, float]:
    """Return which stores a process reaches, from its metrics."""
    lines = [line.split() for line in httpx.get(f"{process.url}/metrics", timeout=WAIT_S).text.splitlines()]
    return {line[0].split('"')[1]: float(line[1]) for line in lines if line[0].startswith("stead_store_reachable{")}
