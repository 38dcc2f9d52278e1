"""How many events wait in the outbox, and for how long."""

from typing import Final

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.telemetry.metrics import Samples, gauge

MOST_COUNTED: Final = 100_000
"""A table that has grown for hours must not take longer to count than a scrape may take."""
_WAITING: Final = text("""
    SELECT
        (SELECT count(*) FROM (SELECT FROM outbox WHERE tenant_id = :tenant LIMIT :most) AS counted),
        (SELECT occurred_at FROM outbox WHERE tenant_id = :tenant ORDER BY revision LIMIT 1)
""")


def measure_outbox(
    registry: CollectorRegistry, samples: Samples, reader: AsyncEngine, *, tenant_id: str, clock: Clock = now_ms
) -> None:
    """Add the depth of the outbox and the age of its oldest event to the metrics of a service."""
    depth = gauge(
        registry, "outbox_events", f"Number of events that are not published yet; {MOST_COUNTED} at most are counted."
    )
    age = gauge(registry, "outbox_oldest_seconds", "Age of the oldest event that is not published yet, in seconds.")

    async def read() -> list[float]:
        async with reader.connect() as connection:
            waiting, oldest = (await connection.execute(_WAITING, {"tenant": tenant_id, "most": MOST_COUNTED})).one()
        return [float(waiting), 0.0 if oldest is None else max(0.0, (clock() - oldest) / 1000)]

    samples.add([depth, age], read)
