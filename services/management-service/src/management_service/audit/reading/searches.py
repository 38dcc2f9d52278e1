"""Searches of the trail that may read many entries: few of them at once, and each for a limited time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.failures import Conflict
from identity_common.stores.database import cancelled, limited
from identity_common.turns import Turns

AT_ONCE: Final = 2

_WAIT_S: Final = 1.0
_TIMEOUT_S: Final = 4.0


class TrailSearches:
    """Provides connections for searches, which together leave most connections to other requests."""

    def __init__(self, reader: AsyncEngine) -> None:
        self._reader = reader
        self._turns = Turns(AT_ONCE, wait_s=_WAIT_S)

    @asynccontextmanager
    async def connection(self, *, advice: str) -> AsyncGenerator[AsyncConnection, None]:
        """Provide a connection whose statements the database cancels after a while.

        Args:
            advice: How to make the search faster.

        Raises:
            Conflict: The database has cancelled a statement of the body.
            TemporarilyUnavailable: Too many others search.
        """

        def too_slow() -> Conflict:
            return Conflict("log.too_slow", f"The search took longer than {_TIMEOUT_S:.0f} s. {advice}")

        with cancelled(too_slow):
            async with self._turns.turn(), limited(self._reader, _TIMEOUT_S) as connection:
                yield connection
