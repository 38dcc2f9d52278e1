"""Processes are killed between a provider's answer and the event of a lost role: the last sign-in counts.

The last sign-in is the last one that management-service has stored; one that was killed before had not happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import asyncpg
import pytest
import pytest_asyncio

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import AccessTokenVerifier, ManagementClient, NotValidFeed, TokenInvalid, Unavailable
from tests.support.databases import until_waited_for
from tests.support.impersonation import Impersonation
from tests.support.lengths import length
from tests.support.mapped_groups import MappedGroups, NotSignedIn
from tests.support.processes import Deployment, killing
from tests.support.provider import Provider
from tests.support.template_tables import TemplateTables, fold
from tests.support.waiting import WAIT_S, eventually, eventually_here

pytestmark = pytest.mark.slow

ROUNDS = range(length(short=1, long=10))
SEEDS = range(1, 1 + length(short=0, long=3))
SIGN_INS = 150
"""While processes are killed at random."""
KEPT, LOST = "staff", "on-call"


class Point(NamedTuple):
    """When a process is killed.

    Attributes:
        victim: The process.
        held: Whose transaction is under way.
        is_committed: Whether it is committed before, and its event not published, since NATS is down.
    """

    victim: Literal["management", "token", "template"]
    held: Literal["management", "template"]
    is_committed: bool = False

    def __str__(self) -> str:
        return f"{self.victim}-{'committed' if self.is_committed else self.held}"

    @property
    def is_lost(self) -> bool:
        """Whether the sign-in has not happened."""
        return self.victim == "management" and not self.is_committed


POINTS = (
    Point("management", "management"),
    Point("management", "management", is_committed=True),
    Point("token", "template"),
    Point("template", "template"),
    Point("template", "template", is_committed=True),
)


@pytest.fixture(scope="module")
def mapped(management: ManagementClient, deployment: Deployment) -> Iterator[MappedGroups]:
    with Provider() as provider:
        mapped = MappedGroups(management, provider, KEPT, LOST)
        eventually(lambda: mapped.is_known(deployment.tokens[0].url))
        yield mapped
        management.connectors.delete(mapped.connector)


@pytest.fixture(scope="module")
def browsers() -> Iterator[ThreadPoolExecutor]:
    """No test waits for their pages: token-service gives a question up after 8 s that died with management-service."""
    with ThreadPoolExecutor(16) as browsers:
        yield browsers


@pytest.fixture(scope="module")
def api(deployment: Deployment, impersonation: Impersonation, mapped: MappedGroups) -> Iterator[AccessTokenVerifier]:
    """One that refuses stale permissions, and hears of them from a replica that stays."""
    url, issuer = deployment.tokens[1].url, deployment.issuer
    reading = {"client_id": impersonation.client_id, "client_secret": impersonation.client_secret}
    with NotValidFeed.over_http(url, issuer=issuer, **reading) as feed:
        yield AccessTokenVerifier(
            issuer=issuer,
            jwks_url=f"{url}/oidc/jwks",
            audience=f"urn:service:organization:{mapped.organization}",
            feed=feed,
            reject_stale_permissions=True,
        )


class Stores:
    """What the databases and the stream say about the person.

    Attributes:
        management: A connection to the database of management-service.
        template: The tables of template-service.
    """

    def __init__(self, mapped: MappedGroups, management: asyncpg.Connection[Any], template: TemplateTables) -> None:
        self._mapped = mapped
        self.management = management
        self.template = template

    async def said(self) -> set[str]:
        """Return the groups of the last sign-in."""
        query = "SELECT groups FROM identities WHERE connector_id = $1"
        return set(await self.management.fetchval(query, self._mapped.connector))

    async def held(self) -> set[str]:
        """Return the groups whose roles the person has."""
        query = "SELECT role_id FROM member_roles WHERE organization_id = $1"
        rows = await self.template.database.fetch(query, self._mapped.organization)
        return {group for group, role in self._mapped.roles.items() if role in {row["role_id"] for row in rows}}

    async def told(self) -> set[str]:
        """Return the groups whose permissions the person has by the events alone."""
        told = fold(await self.template.told(self._mapped.organization))
        names = {each.name for permissions in told.values() for each in permissions}
        return {group for group, permission in self._mapped.permissions.items() if permission in names}

    async def require(self, groups: Collection[str]) -> None:
        """Wait until the person has what these groups give, which the last sign-in must have said."""
        assert await self.said() == set(groups)
        async with asyncio.timeout(WAIT_S):
            while await self.held() != set(groups) or await self.told() != set(groups):  # noqa: ASYNC110 - from outside
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def stores(own_addresses: ServerAddresses, mapped: MappedGroups) -> AsyncIterator[Stores]:
    management = await asyncpg.connect(own_addresses.management_database_url.replace("+asyncpg", ""))
    urls = own_addresses.template_database_url, own_addresses.subscriber_nats_url
    try:
        async with TemplateTables(*urls, "default") as template:
            yield Stores(mapped, management, template)
    finally:
        await management.close()


@asynccontextmanager
async def holding(stores: Stores, mapped: MappedGroups, where: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Let the transaction that stores a sign-in, or applies it, wait until the block ends."""
    connection = stores.management if where == "management" else stores.template.database
    async with connection.transaction():
        if where == "management":
            await connection.fetch("SELECT FROM identities WHERE connector_id = $1 FOR UPDATE", mapped.connector)
        else:
            await connection.fetch("SELECT FROM roles WHERE id = $1 FOR UPDATE", mapped.roles[KEPT])
        yield connection


def signed_in(mapped: MappedGroups, url: str, groups: Collection[str]) -> str:
    """Sign in with these groups; return the access token, which has what they give."""
    mapped.groups = sorted(groups)
    token, scopes = mapped.organization_token(url)
    assert scopes == {mapped.permissions[group] for group in groups}
    return token


def refusal(api: AccessTokenVerifier, token: str) -> str | None:
    try:
        api.verify(token)
    except TokenInvalid as invalid:
        return invalid.reason
    except Unavailable:
        return "unavailable"
    return None


@pytest.mark.parametrize("point", POINTS * len(ROUNDS), ids=str)
async def test_the_last_sign_in_counts_whichever_process_is_killed_behind_the_providers_answer(
    deployment: Deployment,
    own_servers: EmbeddedServers,
    mapped: MappedGroups,
    browsers: ThreadPoolExecutor,
    api: AccessTokenVerifier,
    stores: Stores,
    point: Point,
) -> None:
    url = deployment.tokens[0].url
    token = await asyncio.to_thread(signed_in, mapped, url, {KEPT, LOST})
    await stores.require({KEPT, LOST})
    await eventually_here(lambda: refusal(api, token) is None)
    mapped.groups = [KEPT]
    victim = {
        "management": deployment.management,
        "token": deployment.tokens[0],
        "template": deployment.template,
    }[point.victim]
    async with holding(stores, mapped, point.held) as connection:
        browsers.submit(mapped.sign_in, url)
        await until_waited_for(connection)
        if point.is_committed:
            own_servers.nats.kill()
        else:
            victim.kill()
    if point.is_committed:
        stored = stores.said if point.held == "management" else stores.held
        async with asyncio.timeout(WAIT_S):
            while await stored() != {KEPT}:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)
        victim.kill()
        own_servers.nats.start()
    victim.start()
    await asyncio.to_thread(victim.wait_until_ready)
    await stores.require({KEPT, LOST} if point.is_lost else {KEPT})
    if not point.is_lost:
        await eventually_here(lambda: refusal(api, token) == "stale_permissions")


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_last_sign_in_counts_while_everything_is_killed_at_random(
    deployment: Deployment, own_servers: EmbeddedServers, mapped: MappedGroups, stores: Stores, seed: int
) -> None:
    chance = random.Random(seed)

    def sign_in_repeatedly() -> None:
        for _ in range(SIGN_INS):
            with contextlib.suppress(NotSignedIn):
                mapped.groups = [group for group in (KEPT, LOST) if chance.random() < 0.5]
                mapped.sign_in(chance.choice(deployment.tokens).url)

    with killing([*deployment.processes, own_servers.nats], seed=seed):
        await asyncio.to_thread(sign_in_repeatedly)
    for process in deployment.processes:
        await asyncio.to_thread(process.wait_until_ready)
    await stores.require(await stores.said())
    await asyncio.to_thread(signed_in, mapped, deployment.tokens[0].url, {LOST})
    await stores.require({LOST})
