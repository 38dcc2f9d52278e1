"""The backlog of the fan-out, as a metric."""

from typing import Final

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.telemetry.metrics import Samples, gauge

_WAITING: Final = text("SELECT count(*) FROM fan_outs WHERE tenant_id = :tenant")


def measure_fan_out(registry: CollectorRegistry, samples: Samples, reader: AsyncEngine, *, tenant_id: str) -> None:
    """Add the backlog of the fan-out to the metrics of the service."""
    backlog = gauge(registry, "fan_out_backlog", "Number of changes whose effect on members is not published yet.")

    async def read() -> list[float]:
        async with reader.connect() as connection:
            return [float((await connection.execute(_WAITING, {"tenant": tenant_id})).scalar_one())]

    samples.add([backlog], read)
