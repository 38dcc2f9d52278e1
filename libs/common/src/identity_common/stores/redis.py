"""Redis as the services use it: commands are never retried; those of one tick of the event loop share a round trip."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from hiredis import pack_command
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MasterDownError, NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from identity_common import redis_address
from identity_common.failures import StoreUnavailable
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.redis_primary import doubt, primary_pool

_TIMEOUT_S: Final = 1.0
_EXCHANGE_TIMEOUT_S: Final = 2.0  # a busy event loop may read an answer late, and must not take it for missing
_REPLICATION_MS: Final = 500
_POOL: Final = 64
_MAX_CONCURRENT: Final = 2  # exchanges; commands submitted meanwhile travel in the next one
_NOT_PRIMARY: Final = (ReadOnlyError, MasterDownError)
"""Answers of a server that was demoted. redis-py closes the connection to one that is loading its data by itself."""
_TOO_FEW_REPLICAS: Final = "too few replicas"
Argument = str | bytes | int


class Script:
    """A script of a hot path, which Redis knows by its hash once it has run it.

    Hashing a long one costs Redis more than several of its commands.

    Attributes:
        text: Lua.
        sha1: Its hash.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class _Command(NamedTuple):
    """A command to send.

    Attributes:
        packed: As it is sent.
        script: The script that it runs by its hash, if it does.
        rest: The rest of such a command, behind the hash.
    """

    packed: bytes
    script: Script | None = None
    rest: Sequence[Argument] = ()


def connect_redis(url: str, *, blocking: bool = False) -> "Redis":
    """Return a client that never retries a command: a retried take would look like a second use of the token.

    Args:
        url: Address and credentials, of one server or by sentinels.
        blocking: Whether a command waits for a free connection, up to the timeout; otherwise it fails if there is none.
    """
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _TIMEOUT_S,
        "max_connections": _POOL,
        "health_check_interval": 0,
        # Where they are on, which is the default, the pool hands out connections that the server has closed.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    if url.startswith(redis_address.SCHEMES):
        address = redis_address.SentinelAddress.parse(url)
        return Redis.from_pool(primary_pool(address, wait_s=_TIMEOUT_S if blocking else None, **options))
    if blocking:
        return Redis.from_pool(BlockingConnectionPool.from_url(url, timeout=_TIMEOUT_S, **options))
    return Redis.from_pool(ConnectionPool.from_url(url, **options))


async def execute_on_replicas(redis: "Redis", *command: Argument, replicas: int) -> Any:
    """Execute a command and return its reply once this many replicas have acknowledged it.

    On a connection of its own: ``WAIT`` covers the writes of its connection, and blocks the commands behind it.

    Raises:
        StoreUnavailable: Redis or too many of its replicas did not answer; the command may or may not have been
            executed.
    """
    try:
        async with redis.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*command)
            if replicas:
                pipeline.execute_command("WAIT", replicas, _REPLICATION_MS)
            reply, *acknowledged = await pipeline.execute()
    except (RedisError, OSError, TimeoutError) as error:
        if isinstance(error, _NOT_PRIMARY):
            with suppress(RedisError):  # a connection that closes too slowly is closed nevertheless
                await redis.connection_pool.disconnect(inuse_connections=False)
        unavailable = _unavailable(error)
    else:
        if not acknowledged or acknowledged[0] >= replicas:
            return reply
        unavailable = StoreUnavailable("redis", _TOO_FEW_REPLICAS)
    if unavailable.cause == _TOO_FEW_REPLICAS:
        doubt(redis.connection_pool)
    raise unavailable


class _ScriptMissing(StoreUnavailable):
    """Redis does not know the script of a command, which it did not run."""


class RedisCommands:
    """Sends single commands, coalesced: those of many requests share one round trip and one system call.

    Uses redis-py's connections directly: its pipelines cost a multiple of a command, most of it for retries, which are
    not wanted here, and for a timer around every read and write.
    """

    def __init__(self, redis: "Redis") -> None:
        self._pool = redis.connection_pool
        self._idle: list[AbstractConnection] = []
        self._coalescer: Coalescer[_Command, Any] = Coalescer(self._send, max_concurrent=_MAX_CONCURRENT)

    def execute(self, *command: Argument) -> "asyncio.Future[Any]":
        """Send one command and return its future reply; it is sent even if the future is never awaited.

        Raises:
            StoreUnavailable: Redis did not answer or refused; the command may or may not have been executed.
        """
        return self._coalescer.submit(_Command(_packed(*command)))

    def run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> "asyncio.Future[Any]":
        """Run a script and return its future reply; as ``execute`` does, which runs scripts by ``EVAL``."""
        rest = (len(keys), *keys, *arguments)
        return self._coalescer.submit(_Command(_packed("EVALSHA", script.sha1, *rest), script, rest))

    async def _send(self, commands: Sequence[_Command]) -> Sequence[Any]:
        """Return the reply to each command, an exception for a command without one."""
        replies: list[Any] = []
        try:
            async with asyncio.timeout(_EXCHANGE_TIMEOUT_S):
                await self._exchange(commands, replies)
        except (RedisError, OSError, TimeoutError) as error:
            replies += [_unavailable(error) for _ in commands[len(replies) :]]
        return replies

    async def _exchange(self, commands: Sequence[_Command], replies: list[Any]) -> None:
        """Append the replies as they arrive, on a separate connection."""
        connection = self._idle.pop() if self._idle else self._new_connection()
        try:
            await _connect(connection)
            await connection.send_packed_command(b"".join([command.packed for command in commands]), check_health=False)
            for _ in commands:
                replies.append(await _read_reply(connection))  # noqa: PERF401 - keeps those before a failure
            for at, (command, reply) in enumerate(zip(commands, replies, strict=True)):
                if command.script and isinstance(reply, _ScriptMissing):  # no retry: the script did not run
                    whole = _packed("EVAL", command.script.text, *command.rest)
                    await connection.send_packed_command(whole, check_health=False)
                    replies[at] = await _read_reply(connection)
        except BaseException:
            await connection.disconnect(nowait=True)  # a late reply would be taken for that of the next command
            raise
        finally:
            self._idle.append(connection)

    def _new_connection(self) -> AbstractConnection:
        """Return a connection that the pool will close but gives to no other caller."""
        connection: AbstractConnection = self._pool.get_available_connection()  # type: ignore[no-untyped-call]
        connection.socket_timeout = None  # one timeout covers the whole exchange instead
        return connection


async def _connect(connection: AbstractConnection) -> None:
    """Connect; reconnect if there is already something to read, which means that the server closed the connection."""
    if connection.is_connected and await connection.can_read():
        await connection.disconnect(nowait=True)
    if not connection.is_connected:
        await connection.connect()  # type: ignore[no-untyped-call]


def _packed(*command: Argument) -> bytes:
    packed: bytes = pack_command(command)  # type: ignore[arg-type]  # its stub allows tuples of one only
    return packed


async def _read_reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except _NOT_PRIMARY:
        raise  # the connection is closed, so that the next one leads to the primary
    except NoScriptError:
        return _ScriptMissing("redis", "NoScriptError")
    except ResponseError as error:
        unavailable = _unavailable(error)
        if unavailable.cause == _TOO_FEW_REPLICAS:
            doubt(connection)
        return unavailable


def _unavailable(error: Exception) -> StoreUnavailable:
    """Return the failure. With ``NOREPLICAS`` a write was refused before it was made (``min-replicas-to-write``)."""
    cause = _TOO_FEW_REPLICAS if "NOREPLICAS" in str(error) else type(error).__name__
    return StoreUnavailable("redis", cause)
