"""How many entries of the audit trail wait for the bus, by log, and for how long."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.outbox.backlog import MOST_COUNTED
from identity_common.stores.audit_streams import COUNT_WAITING, AuditStreamKeys
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.metrics import Samples, gauge
from identity_common.wire.audit import AuditLog

_WAITING: Final = text("""
    SELECT
        (SELECT count(*) FROM (SELECT FROM audit_outbox WHERE tenant_id = :tenant LIMIT :most) AS counted),
        (SELECT (entry::json ->> 'occurredAt')::bigint FROM audit_outbox
            WHERE tenant_id = :tenant ORDER BY sequence LIMIT 1)
""")


class AuditBacklog:
    """The metrics of a service's logs.

    Args:
        registry: The registry that they are added to.
        samples: The samples of that registry.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, registry: CollectorRegistry, samples: Samples, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._samples = samples
        self._tenant_id = tenant_id
        self._clock = clock
        prefix = "audit_backlog"
        self._entries = gauge(
            registry,
            f"{prefix}_entries",
            f"Entries of the audit trail that wait for the bus; in a database, {MOST_COUNTED} at most are counted.",
            "log",
        )
        self._oldest = gauge(registry, f"{prefix}_oldest_seconds", "Age of the oldest of them, in seconds.", "log")
        self._limit = gauge(registry, f"{prefix}_limit_entries", "How many may wait in Redis.", "log")

    def measure_outbox(self, log: AuditLog, reader: AsyncEngine) -> None:
        """Measure a log whose entries wait in a database."""

        async def read() -> tuple[int, int | None]:
            async with reader.connect() as connection:
                found = await connection.execute(_WAITING, {"tenant": self._tenant_id, "most": MOST_COUNTED})
                waiting, oldest = found.one()
            return waiting, oldest

        self._measure(log, read)

    def measure_stream(self, log: AuditLog, commands: RedisCommands, *, limit: int) -> None:
        """Measure a log whose entries wait in Redis.

        Args:
            log: The log.
            commands: To Redis.
            limit: Number of entries at which the log is full.
        """
        keys = AuditStreamKeys.of(log, self._tenant_id)
        self._limit.labels(log).set(limit)

        async def read() -> tuple[int, int | None]:
            waiting, first = await asyncio.gather(
                commands.execute("EVAL", COUNT_WAITING, 2, *keys),
                commands.execute("XRANGE", keys.stream, "-", "+", "COUNT", 1),
            )
            return waiting, int(first[0][0].partition(b"-")[0]) if first else None

        self._measure(log, read)

    def _measure(self, log: AuditLog, read: Callable[[], Awaitable[tuple[int, int | None]]]) -> None:
        """Measure a log; ``read`` returns its number of entries and the time of the oldest one in milliseconds."""

        async def values() -> Sequence[float]:
            waiting, oldest = await read()
            return float(waiting), 0.0 if oldest is None else max(0.0, (self._clock() - oldest) / 1000)

        self._samples.add([self._entries.labels(log), self._oldest.labels(log)], values)
