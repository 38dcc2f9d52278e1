"""Connections to the primary of several Redis servers, which sentinels name."""

import asyncio
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.exceptions import RedisError

from identity_common.redis_address import SentinelAddress

_SENTINEL_TIMEOUT_S: Final = 0.5
_KEPT_S: Final = 5.0
_DOUBTED_S: Final = 1.0


def primary_pool(address: SentinelAddress, *, wait_s: float | None, **options: Any) -> ConnectionPool:
    """Return a pool whose connections lead to the primary that the sentinels name when they connect.

    Args:
        address: The sentinels, and the login at the primary.
        wait_s: How long a command waits for a free connection, in seconds; None if it fails without one.
        options: Of redis-py's connections, also those to the sentinels.
    """
    login = {"username": address.sentinel_user or None, "password": address.sentinel_password or None}
    timeouts = {"socket_timeout": _SENTINEL_TIMEOUT_S, "socket_connect_timeout": _SENTINEL_TIMEOUT_S}
    sentinels = _Sentinels(  # type: ignore[no-untyped-call]
        address.sentinels, sentinel_kwargs={**options, **timeouts, **login, "ssl": address.is_encrypted}
    )
    pool = _Pool if wait_s is None else _BlockingPool
    return pool(  # type: ignore[no-untyped-call]
        address.master,
        sentinels,
        connection_class=_EncryptedConnection if address.is_encrypted else _Connection,
        username=address.user or None,
        password=address.password or None,
        db=address.database,
        **options,
        **({} if wait_s is None else {"timeout": wait_s}),
    )


class _Sentinels(Sentinel):
    """Asks all sentinels at once, and believes the one that knows of the latest failover, once most have answered.

    One that is cut off from the others, together with the primary that they have replaced, still names that primary.
    """

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the address of the primary.

        Raises:
            MasterNotFoundError: No sentinel names one that is up.
        """
        asking = [asyncio.ensure_future(self._state(sentinel, service_name)) for sentinel in self.sentinels]
        states: list[dict[str, Any]] = []
        try:
            for answer in asyncio.as_completed(asking):
                states += await answer
                if 2 * len(states) > len(asking):
                    break
        finally:
            for each in asking:
                each.cancel()
        if not states:
            raise MasterNotFoundError(f"no sentinel names a primary of {service_name!r}")
        latest = max(states, key=lambda state: int(state["config-epoch"]))
        return latest["ip"], latest["port"]

    async def _state(self, sentinel: "Redis", service_name: str) -> list[dict[str, Any]]:
        """Return what a sentinel knows about the primary; nothing if that is down, or the sentinel."""
        try:
            masters: Any = await sentinel.sentinel_masters()
        except (RedisError, OSError):
            return []
        state = masters.get(service_name)
        return [state] if state and self.check_master_state(state, service_name) else []


class _Connection(SentinelManagedConnection):
    """A connection that is replaced after some seconds, so that it does not stay with a demoted primary.

    Such a server may live and answer reads, and be cut off from the sentinels that demoted it.
    """

    _connected_at = _replaced_at = 0.0

    async def connect_to(self, address: tuple[str, int]) -> None:
        """Connect to the server that the sentinels name."""
        await super().connect_to(address)  # type: ignore[no-untyped-call]
        self._connected_at = asyncio.get_running_loop().time()
        self._replaced_at = self._connected_at + _KEPT_S

    def doubt(self) -> None:
        """Replace the connection when it is a second old; at once, if it is older."""
        self._replaced_at = min(self._replaced_at, self._connected_at + _DOUBTED_S)

    async def can_read(self) -> bool:
        """Return whether it must be replaced: both the pool and ``RedisCommands`` ask before they use it again."""
        return asyncio.get_running_loop().time() >= self._replaced_at or await super().can_read()


class _EncryptedConnection(_Connection, SentinelManagedSSLConnection):
    """The same with TLS."""


class _Pool(SentinelConnectionPool):
    """A pool that closes its connections to the sentinels, too."""

    def doubt(self) -> None:
        """Do so with each idle connection."""
        for connection in self._available_connections:
            doubt(connection)

    async def aclose(self) -> None:
        """Close all connections."""
        await super().aclose()
        await self.sentinel_manager.aclose()


class _BlockingPool(_Pool, BlockingConnectionPool):
    """The same, in which commands wait for a free connection."""


def doubt(connections: AbstractConnection | ConnectionPool) -> None:
    """Have the sentinels asked soon where connections should lead: their server misses replicas, and may be cut off."""
    if isinstance(connections, _Connection | _Pool):
        connections.doubt()
