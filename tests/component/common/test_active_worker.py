"""The lock of an active worker: a worker stops when the session that holds it ends."""

import asyncio
import time

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from identity_common.background import end
from identity_common.identifiers import new_id
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from tests.support.management_api import Management
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.servers


async def nothing_to_do() -> bool:
    return False


async def test_a_worker_that_needs_no_database_stops_when_its_session_ends(management: Management) -> None:
    """The end of the session releases the lock: another replica may be active from then on."""
    url = management.settings.database_url
    held: asyncio.Future[LockHolder] = asyncio.get_running_loop().create_future()

    async def work(holder: LockHolder) -> None:
        held.set_result(holder)
        while True:
            await holder.turn(nothing_to_do)

    worker = ActiveWorker(work, url, lock=new_id(), channel=new_id(), tenant_id="default")
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(WAIT_S):
        process = (await held).connection.get_server_pid()
        other = await asyncpg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))
        try:
            await other.execute("SELECT pg_terminate_backend($1)", process)
        finally:
            await other.close()
        with pytest.raises(asyncpg.InterfaceError):
            await running


async def test_an_idle_worker_looks_again_when_notified_or_when_its_poll_is_due(management: Management) -> None:
    """A look is a statement or more: while nothing is announced, there is none before the next poll."""
    url, channel = management.settings.database_url, new_id()
    looks: asyncio.Queue[float] = asyncio.Queue()

    async def look() -> bool:
        looks.put_nowait(time.monotonic())
        return False

    async def work(holder: LockHolder) -> None:
        while True:
            await holder.turn(look)

    async def seconds_between_looks(poll_s: float, *, notified: bool) -> float:
        worker = ActiveWorker(work, url, lock=new_id(), channel=channel, tenant_id="default", poll_s=poll_s)
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(WAIT_S):
                first = await looks.get()
                if notified:
                    await management.database.execute("SELECT pg_notify($1, '')", channel)
                return await looks.get() - first
        finally:
            await end(running)

    assert await seconds_between_looks(2 * WAIT_S, notified=True) < WAIT_S
    assert await seconds_between_looks(0.3, notified=False) >= 0.29  # timers may fire a little early
