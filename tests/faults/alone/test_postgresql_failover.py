"""PostgreSQL fails over to a standby: what that standby had not received is noticed, and silences nothing later.

With synchronous replication nothing that was answered is lost. Without it the source jumps ahead of what it published,
as after a restoration, or refuses changes until an operator decides.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg
import httpx2 as httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from all_in_one.embedded import EmbeddedServers
from identity_common.failures import StoreUnavailable
from identity_common.stores.database import create_database_engine, database_answers
from provision import ServerAddresses
from stead import ManagementClient, NotFound, Unavailable
from tests.support.impersonation import Impersonation, cycle_works, exchange
from tests.support.lengths import length
from tests.support.mixed_load import MixedLoad
from tests.support.postgres_pair import PostgresPair
from tests.support.processes import Deployment, ServiceProcess
from tests.support.waiting import WAIT_S, eventually_here

pytestmark = pytest.mark.slow

T = TypeVar("T")

LOST = 30
"""Changes that the standby misses."""
FAILOVERS = length(short=1, long=6)
REFUSED_S = 10
"""After a failover, at most."""
FOUND = "relay.writes-lost"


@pytest_asyncio.fixture(scope="module")
async def pair(
    own_servers: EmbeddedServers, own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PostgresPair]:
    async with PostgresPair(own_servers, own_addresses, tmp_path_factory.mktemp("second")) as pair:
        yield pair


@pytest_asyncio.fixture(scope="module")
async def deployment(pair: PostgresPair, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    deployment = Deployment(pair.addresses, tmp_path_factory.mktemp("logs"))
    try:
        await asyncio.to_thread(deployment.start)
        yield deployment
    finally:
        await asyncio.to_thread(deployment.stop)


async def answered(request: Callable[[], T]) -> T:
    """Return the answer as soon as it is not 503."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await asyncio.to_thread(request)
            except Unavailable:
                await asyncio.sleep(0.1)


def found_at(process: ServiceProcess) -> float:
    text = httpx.get(f"{process.url}/metrics", timeout=30).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (sample,) = families["stead_lost_writes_timestamp_seconds"].samples
    assert sample.labels == {"source": process.package.removesuffix("_service")}
    return float(sample.value)


def found_in_log(process: ServiceProcess) -> list[str]:
    return [line for line in process.log.read_text().splitlines() if f'"{FOUND}"' in line]


class Shopper:
    """A user who may be impersonated."""

    def __init__(self, management: ManagementClient, impersonation: Impersonation, name: str) -> None:
        self._management = management
        self._impersonation = impersonation
        self.id = management.users.create(name=name).id
        management.users.assign_roles(self.id, [impersonation.role_id])

    def token(self) -> str:
        return self._management.subject_tokens.create(self.id).token

    def exchanged(self, deployment: Deployment, subject_token: str) -> int:
        """Return the status of an exchange once token-service answers."""
        while True:
            status = exchange(deployment.tokens[0].url, self._impersonation, subject_token).status_code
            if status != 503:
                return status


async def is_enforced_at_once(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> bool:
    """Create and suspend a user; return whether tokens from before the suspension are refused, and others are not."""
    shopper = await answered(lambda: Shopper(management, impersonation, "After the failover"))
    first, second = await answered(shopper.token), await answered(shopper.token)
    assert await asyncio.to_thread(shopper.exchanged, deployment, first) == 200
    await answered(lambda: management.users.suspend(shopper.id))
    # The suspension is published when it is answered, or a moment later.
    await eventually_here(lambda: is_published(deployment.management))
    return await asyncio.to_thread(shopper.exchanged, deployment, second) == 400


def is_published(process: ServiceProcess) -> bool:
    return "stead_outbox_events 0.0\n" in httpx.get(f"{process.url}/metrics", timeout=30).text


class Lost(NamedTuple):
    """The ids of what the standby does not have."""

    user_id: str
    organization_id: str


async def lose_changes(pair: PostgresPair, management: ManagementClient, deployment: Deployment) -> Lost:
    """Fail over to a standby that misses some changes which were published."""
    await pair.begin_replication()
    await pair.cut_replication()
    users = [await asyncio.to_thread(management.users.create, name=f"Lost {number}") for number in range(LOST)]
    organization = await asyncio.to_thread(management.organizations.create, "Lost")
    for process in (deployment.management, deployment.template):
        await eventually_here(lambda process=process: is_published(process))  # type: ignore[misc]
    await pair.fail_over()
    return Lost(users[0].id, organization.id)


LOCK = "SELECT pg_advisory_xact_lock(39)"
IS_FREE = "SELECT pg_try_advisory_xact_lock(39)"
WRITE = "SELECT pg_logical_emit_message(true, 'tests', '')"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


async def commit(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(LOCK))
        await connection.execute(text(WRITE))


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_no_commit_is_cancelled(pair: PostgresPair, is_cancelled: bool) -> None:
    """Neither its request nor its task ends it; its session keeps its place in the pool until the server answers."""
    url = pair.addresses.management_database_url
    administrator = await asyncpg.connect(urlsplit(pair.administrator_url)._replace(path=urlsplit(url).path).geturl())
    engine = create_database_engine(url, service="tests", pool_size=1, statement_timeout_s=1)
    async with asyncio.timeout(WAIT_S), pair.without_standby():
        committing = asyncio.create_task(commit(engine))
        while not await administrator.fetchval(WAITING):  # noqa: ASYNC110 - a database's state
            await asyncio.sleep(0.02)
        if is_cancelled:
            committing.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else StoreUnavailable) as ended, database_answers():
            await committing
        assert is_cancelled or "may or may not have been made" in str(getattr(ended.value, "message", ""))
        with pytest.raises(PoolTimeoutError):
            await engine.connect()
        assert not await administrator.fetchval(IS_FREE)
        await pair.resume_replication()
        while not await administrator.fetchval(IS_FREE):  # noqa: ASYNC110 - a database's state
            await asyncio.sleep(0.02)
        await commit(engine)
    await engine.dispose()
    await administrator.close()


async def test_without_the_standby_changes_are_refused_and_reads_go_on(
    pair: PostgresPair, deployment: Deployment, management: ManagementClient
) -> None:
    def names() -> set[str | None]:
        return {user.name for user in management.users.list()}

    def create(name: str) -> httpx.Response:
        return httpx.post(
            f"{deployment.management.url}/api/users",
            json={"name": name},
            headers={"Authorization": f"Bearer {token}"},
            timeout=WAIT_S,
        )

    unconfirmed, refused = "may or may not have been made", "Try again later"
    token = await asyncio.to_thread(deployment.management_access_token)
    async with pair.without_standby():
        for message in (unconfirmed, refused):
            answer = await asyncio.to_thread(create, message)
            assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
            assert message in answer.json()["message"]
            assert message not in await asyncio.to_thread(names)
        await pair.resume_replication()
        await answered(lambda: management.users.create(name="Later"))
        assert {unconfirmed, refused, "Later"} & await asyncio.to_thread(names) == {unconfirmed, "Later"}


async def test_a_synchronous_failover_loses_nothing_and_ends_nothing(
    pair: PostgresPair, deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    await pair.begin_replication(is_synchronous=True)
    kept = await asyncio.to_thread(management.users.create, name="Kept")
    token = await asyncio.to_thread(management.subject_tokens.create, impersonation.user_id)
    await pair.fail_over()
    assert await is_enforced_at_once(deployment, management, impersonation)
    assert (await answered(lambda: management.users.get(kept.id))).name == "Kept"
    assert (await asyncio.to_thread(exchange, deployment.tokens[0].url, impersonation, token.token)).status_code == 200
    for process in (deployment.management, deployment.template):
        assert (found_in_log(process), found_at(process)) == ([], 0)


@pytest.mark.skipif(length(short=1, long=0) == 1, reason="fails over twice under load: TEST_LENGTH=long")
async def test_two_synchronous_failovers_under_load_lose_nothing(
    pair: PostgresPair, deployment: Deployment, impersonation: Impersonation
) -> None:
    """During a third one services start."""
    starting = (deployment.management, deployment.tokens[0])
    with await asyncio.to_thread(MixedLoad, deployment, lambda: pair.addresses, impersonation) as load:
        with load.running():
            for _ in range(2):
                await pair.begin_replication(is_synchronous=True)
                began = time.monotonic()
                await pair.fail_over()
                await eventually_here(load.works)
                assert load.refused_s(began) < REFUSED_S
        await pair.begin_replication(is_synchronous=True)
        for process in starting:
            await asyncio.to_thread(process.kill)
            process.start()
        await pair.fail_over()
        for process in starting:
            await asyncio.to_thread(process.wait_until_ready)
        await asyncio.to_thread(load.require_kept)
    for process in (deployment.management, deployment.template):
        assert (found_in_log(process), found_at(process)) == ([], 0)


async def test_after_changes_were_lost_later_ones_are_enforced(
    pair: PostgresPair, deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    for failovers in range(1, FAILOVERS + 1):
        lost = await lose_changes(pair, management, deployment)
        assert await is_enforced_at_once(deployment, management, impersonation)
        with pytest.raises(NotFound):
            await answered(lambda lost=lost: management.users.get(lost.user_id))  # type: ignore[misc]
        organization = await answered(lambda: management.organizations.create("After the failover"))
        await answered(lambda made=organization: management.organizations.add_users(made.id, [impersonation.user_id]))  # type: ignore[misc]
        with pytest.raises(NotFound):
            await answered(lambda lost=lost: management.organizations.get(lost.organization_id))  # type: ignore[misc]
        await eventually_here(lambda: cycle_works(deployment, management, impersonation))
        for process, count, subject in (
            (deployment.management, LOST, f"user.{lost.user_id}"),
            (deployment.template, 1, f"organization.{lost.organization_id}"),
        ):
            lines = found_in_log(process)
            assert (len(lines), found_at(process) > 0) == (failovers, True)
            assert f'"count":{count},' in lines[-1]
            assert subject in lines[-1]


async def test_changes_are_refused_until_the_operator_decides(
    pair: PostgresPair, deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    process = deployment.management
    await asyncio.to_thread(process.stop)
    process.configure(AFTER_LOST_WRITES="refuse")
    process.start()
    await asyncio.to_thread(process.wait_until_ready)
    before = len(found_in_log(process))
    lost = await lose_changes(pair, management, deployment)
    await eventually_here(lambda: len(found_in_log(process)) == before + 1)
    for _ in range(2):  # also after a restart
        with pytest.raises(Unavailable) as refused:
            await asyncio.to_thread(management.users.create, name="Refused")
        assert refused.value.retry_after is not None
        with pytest.raises(NotFound):
            await answered(lambda: management.users.get(lost.user_id))
        await asyncio.to_thread(process.kill)
        process.start()
        await asyncio.to_thread(process.wait_until_ready)
    await eventually_here(lambda: found_at(process) > 0)
    await asyncio.to_thread(process.stop)
    await asyncio.to_thread(process.command, "restored")
    process.start()
    await asyncio.to_thread(process.wait_until_ready)
    assert await is_enforced_at_once(deployment, management, impersonation)
