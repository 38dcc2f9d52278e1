"""One active worker among the replicas of a service: it holds an advisory lock and is woken by notifications."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import asyncpg

from identity_common.failures import StoreUnavailable
from identity_common.stores.database_servers import database_servers, require_primary

POLL_S: Final = 10.0
"""A safety net for a notification that did not arrive."""

_ANSWER_S: Final = 5.0
"""How long a statement of a worker may take; then its server is silent."""

_SILENCE_S: Final = 2.0
_IS_THERE_S: Final = 3.0
"""How long an idle session's server may take to say that it is there: changes wait for the relay to leave it."""

_STANDBY_S: Final = 0.5
_EARLY_S: Final = 0.002
"""How much too early a timer may fire: without it, the pause would end in several tiny ones."""
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtext($1), hashtext($2))"


class LockHolder:
    """The worker that holds the lock.

    Attributes:
        connection: The session that holds the lock; its end releases it.
    """

    def __init__(self, connection: asyncpg.Connection, *, poll_s: float) -> None:
        self.connection = connection
        self._poll_s = poll_s
        self._due = -math.inf
        self._check_at = time.monotonic() + _SILENCE_S
        self._wake = asyncio.Event()
        connection.add_termination_listener(self.wake)

    def wake(self, *_: object) -> None:
        """End a pause; called for every notification, and when the session ends."""
        self._wake.set()

    async def turn(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Run ``work`` if a notification has arrived, or the last run that found nothing is ``poll_s`` ago.

        Otherwise pause, for two seconds at most, after which the caller may notice that other connections have ended.
        No notification comes from a server that is frozen: after such a pause it is asked whether it is still there.

        Raises:
            asyncpg.InterfaceError: The session has ended, and with it the lock: another replica may be active. Or its
                server has become a standby.
            TimeoutError: The server does not answer.
        """
        if self.connection.is_closed():  # work without the database would not notice
            raise asyncpg.InterfaceError("the session that held the lock has ended")
        if self._wake.is_set() or time.monotonic() >= self._due - _EARLY_S:
            self._wake.clear()
            self._due = -math.inf  # also if the work fails
            if await work():
                return
            self._due = time.monotonic() + self._poll_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._check_at, self._due) - time.monotonic()):
                await self._wake.wait()
        if time.monotonic() >= self._check_at - _EARLY_S:
            await require_primary(self.connection, within_s=_IS_THERE_S)
            self._check_at = time.monotonic() + _SILENCE_S


class ActiveWorker:
    """Runs a piece of work on one replica of a service at a time; the others stand by.

    Args:
        work: The work; it ends only by an exception.
        database_url: ``postgresql+asyncpg://…``, the database of the lock and the notifications.
        lock: Name of the lock; each tenant has its own.
        channel: Channel of the notifications.
        tenant_id: The tenant.
        poll_s: Seconds until work that found nothing is tried again without a notification.
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
        poll_s: float = POLL_S,
        server_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._work = work
        self._servers = database_servers(database_url)
        self._lock = lock
        self._channel = channel
        self._tenant_id = tenant_id
        self._poll_s = poll_s
        self._server_settings = dict(server_settings or {})

    async def run(self) -> None:
        """Wait for the lock, then work until an error occurs.

        Raises:
            StoreUnavailable, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError: The database does
                not answer.
        """
        try:
            connection = await self._servers.connect(command_timeout=_ANSWER_S, server_settings=self._server_settings)
        except (OSError, TimeoutError) as error:  # by themselves they do not say what refused
            raise StoreUnavailable("postgresql", type(error).__name__) from None
        try:
            while not await connection.fetchval(_LOCK, self._lock, self._tenant_id):  # noqa: ASYNC110 - a database lock
                await asyncio.sleep(_STANDBY_S)
            holder = LockHolder(connection, poll_s=self._poll_s)
            await connection.add_listener(self._channel, holder.wake)
            await self._work(holder)
        finally:
            # terminate() does not wait for a server that may be gone; the session ends and releases the lock
            connection.terminate()
