"""One active worker among the replicas of a service: it holds an advisory lock and is woken by notifications."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import asyncpg

from identity_common.failures import StoreUnavailable
from identity_common.stores.database_servers import database_servers

_POLL_S: Final = 1.0
_STANDBY_S: Final = 0.5
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtext($1), hashtext($2))"


class LockHolder:
    """The worker that holds the lock.

    Attributes:
        connection: The session that holds the lock; its end releases it.
    """

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self._wake = asyncio.Event()

    def wake(self, *_: object) -> None:
        """End a pause; called for every notification."""
        self._wake.set()

    async def turn(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Run ``work``; if it found nothing to do, pause until a notification arrives, for a second at most.

        The poll is a safety net for a missed notification.

        Raises:
            asyncpg.InterfaceError: The session has ended, and with it the lock: another replica may be active.
        """
        if self.connection.is_closed():  # work without the database would not notice
            raise asyncpg.InterfaceError("the session that held the lock has ended")
        self._wake.clear()
        if not await work():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._wake.wait()


class ActiveWorker:
    """Runs a piece of work on one replica of a service at a time; the others stand by.

    Args:
        work: The work; it ends only by an exception.
        database_url: ``postgresql+asyncpg://…``, the database of the lock and the notifications.
        lock: Name of the lock; each tenant has its own.
        channel: Channel of the notifications.
        tenant_id: The tenant.
        server_settings: PostgreSQL settings of the connection.
    """

    def __init__(
        self,
        work: Callable[[LockHolder], Awaitable[None]],
        database_url: str,
        *,
        lock: str,
        channel: str,
        tenant_id: str,
        server_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._work = work
        self._servers = database_servers(database_url)
        self._lock = lock
        self._channel = channel
        self._tenant_id = tenant_id
        self._server_settings = dict(server_settings or {})

    async def run(self) -> None:
        """Wait for the lock, then work until an error occurs.

        Raises:
            StoreUnavailable, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError: The database does
                not answer.
        """
        try:
            connection = await self._servers.connect(command_timeout=30, server_settings=self._server_settings)
        except (OSError, TimeoutError) as error:  # by themselves they do not say what refused
            raise StoreUnavailable("postgresql", type(error).__name__) from None
        try:
            while not await connection.fetchval(_LOCK, self._lock, self._tenant_id):  # noqa: ASYNC110 - a database lock
                await asyncio.sleep(_STANDBY_S)
            holder = LockHolder(connection)
            await connection.add_listener(self._channel, holder.wake)
            await self._work(holder)
        finally:
            # terminate() does not wait for a server that may be gone; the session ends and releases the lock
            connection.terminate()
