"""Redis as the services use it: commands are never repeated; those of one turn of the event loop travel together."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from identity_common.stores.coalescing import Coalescer

_TIMEOUT_S: Final = 1.0
_POOL: Final = 64
_MAX_CONCURRENT: Final = 2  # exchanges; commands submitted meanwhile travel in the next one
Argument = str | bytes | int


class StoreUnavailable(Exception):  # noqa: N818 - the name is what happened
    """Redis did not answer; a command that was sent may or may not have been carried out."""


def connect_redis(url: str) -> "Redis":
    """Return a client that never repeats a command: a take that is repeated would look like a second use."""
    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        max_connections=_POOL,
        health_check_interval=0,
    )


class RedisCommands:
    """Sends single commands, coalesced: many requests at once cost one round trip and one system call.

    Speaks through redis-py's connections directly: its pipelines cost a multiple of the command, most of it for the
    repetitions that are not wanted here and for a timer around every read and write.
    """

    def __init__(self, redis: "Redis") -> None:
        self._pool = redis.connection_pool
        self._idle: list[AbstractConnection] = []
        self._coalescer: Coalescer[bytes, Any] = Coalescer(self._send, max_concurrent=_MAX_CONCURRENT)

    def execute(self, *command: Argument) -> "asyncio.Future[Any]":
        """Send one command and return its answer; it is on its way from now on, whoever awaits it and when.

        Raises:
            StoreUnavailable: Redis did not answer or refused; the command may or may not have been carried out.
        """
        return self._coalescer.submit(pack_command(command))  # type: ignore[arg-type]  # its stub knows tuples of one only

    async def _send(self, commands: Sequence[bytes]) -> Sequence[Any]:
        """Return the answer to each command, an exception for one that got none."""
        answers: list[Any] = []
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._converse(commands, answers)
        except (RedisError, OSError, TimeoutError) as error:
            answers += [StoreUnavailable(type(error).__name__) for _ in commands[len(answers) :]]
        return answers

    async def _converse(self, commands: Sequence[bytes], answers: list[Any]) -> None:
        """Append the answers as they come, on a connection that nobody else uses meanwhile."""
        connection = self._idle.pop() if self._idle else self._new_connection()
        try:
            await _connect(connection)
            await connection.send_packed_command(b"".join(commands), check_health=False)
            for _ in commands:
                answers.append(await _read_answer(connection))  # noqa: PERF401 - those read before a failure count
        except BaseException:
            await connection.disconnect(nowait=True)  # an answer still to come would be taken for the next command's
            raise
        finally:
            self._idle.append(connection)

    def _new_connection(self) -> AbstractConnection:
        """Return a connection that the pool closes in the end, and gives to nobody else."""
        connection: AbstractConnection = self._pool.get_available_connection()  # type: ignore[no-untyped-call]
        connection.socket_timeout = None  # there is one for everything that travels together instead
        return connection


async def _connect(connection: AbstractConnection) -> None:
    """Connect; anew if there is something to read already, which is that the server has closed the connection."""
    if connection.is_connected and await connection.can_read():
        await connection.disconnect(nowait=True)
    if not connection.is_connected:
        await connection.connect()  # type: ignore[no-untyped-call]


async def _read_answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return StoreUnavailable(type(error).__name__)
