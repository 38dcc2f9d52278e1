"""A connection whose COMMIT is never cancelled, whatever ends the wait for it.

With synchronous replication a COMMIT waits for the standby. PostgreSQL answers a request to cancel that wait with
success: the transaction is then committed on this server only, visible to all, and lost in a failover.
"""

import asyncio
from typing import Any, Final

import asyncpg

_COMMIT: Final = "COMMIT;"
_CLOSE_S: Final = 0.5
_LOST: Final = (
    OSError,  # TimeoutError as well
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresConnectionError,
)


class UnansweredCommitError(asyncpg.InterfaceError):  # type: ignore[misc]
    """The server has not answered a COMMIT: the transaction may or may not be committed."""


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection to PostgreSQL. While a COMMIT is unanswered it can be terminated, but not closed.

    Attributes:
        answer: Of the server to a COMMIT that no caller waits for any more; done also when the connection is lost.
    """

    answer: "asyncio.Future[None] | None"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answer = None
        self._is_committing = False

    @property
    def is_set_aside(self) -> bool:
        """Whether it waits for the answer to a COMMIT that no caller waits for any more."""
        return self.answer is not None and not self.answer.done()

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run a statement; the timeout and a cancellation end the wait for a COMMIT, and not the COMMIT.

        Raises:
            UnansweredCommitError: There is no answer to a COMMIT in time, or the connection was lost.
        """
        if query != _COMMIT:
            return str(await super().execute(query, *args, timeout=timeout))
        self._is_committing = True
        try:
            return str(await super().execute(query, timeout=timeout))
        except _LOST as error:
            raise UnansweredCommitError(type(error).__name__) from error
        finally:
            self._is_committing = False

    async def set_type_codec(self, *args: Any, **kwargs: Any) -> None:
        """Do as the driver does; SQLAlchemy calls this on a new connection, and translates no error of it.

        Raises:
            ConnectionResetError: The connection was lost.
        """
        try:
            await super().set_type_codec(*args, **kwargs)
        except _LOST as error:
            raise ConnectionResetError(type(error).__name__) from error

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the connection, unless it is set aside. A silent server is not waited for."""
        if self.is_set_aside:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await super().close(timeout=timeout)
        except TimeoutError:
            self.terminate()

    def _cancel_current_command(self, sent: "asyncio.Future[None]", answer: "asyncio.Future[None]") -> None:
        """Send a request to cancel, as the driver does after a timeout or a cancellation; but not for a COMMIT."""
        if not self._is_committing:
            super()._cancel_current_command(sent, answer)
            return
        sent.set_result(None)
        self.answer = answer
        answer.add_done_callback(lambda _: self.terminate())
