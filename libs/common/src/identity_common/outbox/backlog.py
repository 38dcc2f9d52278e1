"""How many events wait in the outbox, and for how long."""

from typing import Final

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.telemetry.metrics import Samples, gauge

_WAITING: Final = text("SELECT count(*), min(occurred_at) FROM outbox WHERE tenant_id = :tenant")


def measure_outbox(
    registry: CollectorRegistry, samples: Samples, reader: AsyncEngine, *, tenant_id: str, clock: Clock = now_ms
) -> None:
    """Add the depth of the outbox and the age of its oldest event to the metrics of a service."""
    depth = gauge(registry, "outbox_events", "Number of events that are not published yet.")
    age = gauge(registry, "outbox_oldest_seconds", "Age of the oldest event that is not published yet, in seconds.")

    async def read() -> list[float]:
        async with reader.connect() as connection:
            waiting, oldest = (await connection.execute(_WAITING, {"tenant": tenant_id})).one()
        return [float(waiting), 0.0 if oldest is None else max(0.0, (clock() - oldest) / 1000)]

    samples.add([depth, age], read)
