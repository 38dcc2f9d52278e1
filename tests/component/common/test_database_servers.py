"""Several servers of a database: a connection is to the one that answers and accepts writes."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import event, text

from identity_common.database_address import DatabaseAddress
from identity_common.failures import StoreUnavailable
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from identity_common.stores.database import create_database_engine, database_answers
from identity_common.stores.database_servers import DatabaseServers, database_servers
from identity_common.stores.lookups import KeyLookup, Lookups
from tests.support.databases import new_database
from tests.support.management_api import Management
from tests.support.processes import free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.servers


@pytest.fixture
async def talking(management: Management) -> AsyncIterator[TcpProxy]:
    """A server that a test may silence."""
    async with TcpProxy(management.settings.database_url) as proxy:
        yield proxy


@pytest.fixture
async def silent(management: Management) -> AsyncIterator[TcpProxy]:
    """A server that accepts connections and says nothing, as a frozen one does."""
    proxy = TcpProxy(management.settings.database_url)
    await proxy.mend()
    proxy.swallow()
    yield proxy
    await proxy.cut()


def with_hosts(url: str, *hosts: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{','.join(hosts)}").geturl()


def host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


async def test_every_kind_of_connection_passes_over_servers_that_do_not_answer(
    management: Management, silent: TcpProxy
) -> None:
    """A pool, lookups and a worker, one after the other: only the first of them waits for the silent server."""
    url = management.settings.database_url
    several = with_hosts(url, host(silent.url), f"127.0.0.1:{free_port()}", host(url))
    async with asyncio.timeout(WAIT_S):
        engine = create_database_engine(several, service="tests", pool_size=2)
        async with engine.connect() as one, engine.connect() as other:
            assert [await each.scalar(text("SELECT 1")) for each in (one, other)] == [1, 1]
        await engine.dispose()
        lookups = Lookups(several, service="tests")
        assert (await lookups.fetch(KeyLookup("SELECT 2 AS two")))[0]["two"] == 2
        lookups.stop()
        holders: list[LockHolder] = []

        async def work(holder: LockHolder) -> None:
            holders.append(holder)

        await ActiveWorker(work, several, lock="tests", channel="tests", tenant_id="tests").run()
    assert (len(holders), silent.accepted) == (1, 1)


async def test_a_cancelled_attempt_does_not_wait_for_the_same_server_again(
    management: Management, silent: TcpProxy
) -> None:
    """A request gives up before the server's own time is over; the next request must not give up as well."""
    url = management.settings.database_url
    servers = DatabaseServers(DatabaseAddress.parse(with_hosts(url, host(silent.url), host(url))))
    attempt = asyncio.create_task(servers.connect())
    async with asyncio.timeout(WAIT_S):
        while not silent.accepted:  # noqa: ASYNC110 - the proxy has no event
            await asyncio.sleep(0.01)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await (await servers.connect()).close()
    assert silent.accepted == 1


@pytest.mark.heavy
async def test_each_attempt_tries_every_server(management: Management, silent: TcpProxy) -> None:
    """Also when another one begins meanwhile, and leaves the first server to the attempt after it."""
    url = management.settings.database_url
    servers = DatabaseServers(DatabaseAddress.parse(with_hosts(url, host(silent.url), host(url))))
    async with asyncio.timeout(WAIT_S):
        attempt = asyncio.create_task(servers.connect())
        while not silent.accepted:  # noqa: ASYNC110 - the proxy has no event
            await asyncio.sleep(0.01)
        other = asyncio.create_task(servers.connect())
        await asyncio.sleep(0)
        other.cancel()
        await (await attempt).close()
    assert silent.accepted == 1


async def test_a_server_that_accepts_no_writes_is_not_used(management: Management) -> None:
    async with new_database(management.addresses, management.settings.database_url) as url:
        name = urlsplit(url).path[1:]
        administrator = await asyncpg.connect(management.addresses.admin_postgres_url)
        await administrator.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        servers = DatabaseServers(DatabaseAddress.parse(with_hosts(url, host(url), f"127.0.0.1:{free_port()}")))
        with pytest.raises(OSError, match="Connect"):
            await servers.connect()
        with pytest.raises(ConnectionRefusedError, match="does not accept writes"):
            await DatabaseServers(DatabaseAddress.parse(url)).connect()
        await administrator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await administrator.close()
        await (await servers.connect()).close()


async def test_a_session_that_finds_itself_on_a_standby_leaves_it(management: Management) -> None:
    """A primary may be demoted without ending its sessions: each of them would be refused its writes for ever."""
    engine = create_database_engine(management.settings.database_url, service="tests", pool_size=1)
    pids = []
    async with asyncio.timeout(WAIT_S):
        for _ in range(2):
            async with engine.connect() as connection:
                pids.append(await connection.scalar(text("SELECT pg_backend_pid()")))
                await connection.execute(text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
                await connection.commit()
                with pytest.raises(Exception, match="read-only"):
                    await connection.execute(text("DELETE FROM users WHERE false"))
        await engine.dispose()
    assert len(set(pids)) == 2


@pytest.mark.heavy
async def test_a_session_that_the_server_ends_at_any_moment_is_a_failure_of_the_store(management: Management) -> None:
    """Also while it is being opened, or between its last message and the end of its connection."""
    name = f"ended-{secrets.token_hex(4)}"
    engine = create_database_engine(management.settings.database_url, service=name, pool_size=4)
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
    causes: set[str] = set()

    async def read() -> None:
        for _ in range(30):
            try:
                with database_answers():
                    async with engine.begin() as connection:
                        await connection.execute(text("SELECT 1"))
                        await connection.execute(text("SELECT 2"))
            except StoreUnavailable as unavailable:
                causes.add(unavailable.cause)

    async def end_sessions() -> None:
        while True:
            await administrator.execute(end)

    administrator = await asyncpg.connect(management.addresses.admin_postgres_url)
    ending = asyncio.create_task(end_sessions())
    await asyncio.gather(*(read() for _ in range(4)))
    ending.cancel()
    await asyncio.wait((ending,))
    await administrator.close()
    await engine.dispose()
    assert causes


async def test_a_server_that_ends_every_session_is_a_failure_of_the_store(management: Management) -> None:
    engine = create_database_engine(management.settings.database_url, service="tests", pool_size=1)

    def end(connection: Any, _: object) -> None:
        connection.driver_connection.terminate()

    event.listen(engine.sync_engine, "connect", end)
    for _ in range(2):
        with pytest.raises(StoreUnavailable), database_answers():
            await engine.connect()
    event.remove(engine.sync_engine, "connect", end)
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1
    await engine.dispose()


@pytest.mark.heavy
async def test_sessions_leave_a_server_that_falls_silent(management: Management, talking: TcpProxy) -> None:
    """One waits for the answer to a statement, one for that to a COMMIT, and an idle one for notifications.

    The first one that finds another server takes all others along.
    """
    url = management.settings.database_url
    several = with_hosts(url, host(talking.url), host(url))
    reading, writing = (
        create_database_engine(several, service="tests", pool_size=1, statement_timeout_s=0.1) for _ in range(2)
    )
    holds = asyncio.Event()

    async def work(holder: LockHolder) -> None:
        while True:
            holds.set()
            await holder.turn(nothing_to_do)

    async def nothing_to_do() -> bool:
        return False

    idle = asyncio.create_task(ActiveWorker(work, several, lock="silent", channel="tests", tenant_id="tests").run())
    async with asyncio.timeout(WAIT_S):
        await holds.wait()
        kept = await database_servers(several).connect()
        async with reading.connect() as one:
            await one.execute(text("SELECT 1"))
        with pytest.raises(StoreUnavailable) as unanswered, database_answers():
            async with writing.begin() as one:
                await one.execute(text("SELECT 1"))
                talking.swallow()
        assert unanswered.value.cause == "UnansweredCommitError"
        with pytest.raises(StoreUnavailable), database_answers():
            async with reading.connect() as one:
                await one.execute(text("SELECT 1"))
        with pytest.raises(TimeoutError):
            await idle
        assert not kept.is_closed()
        for engine in (reading, writing):
            async with engine.connect() as one:
                assert await one.scalar(text("SELECT 1")) == 1
            await engine.dispose()
        assert kept.is_closed()


async def test_a_wrong_password_is_not_tried_at_every_server(management: Management) -> None:
    parts = urlsplit(management.settings.database_url)
    proxy = TcpProxy(management.settings.database_url)
    await proxy.mend()
    wrong = parts._replace(netloc=f"{parts.username}:wrong@{host(proxy.url)},{host(proxy.url)}").geturl()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await DatabaseServers(DatabaseAddress.parse(wrong)).connect()
    assert proxy.accepted == 1
    await proxy.cut()
