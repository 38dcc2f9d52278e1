"""Measures how far the ingestion lags behind the stream."""

from typing import Final

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.streams import incarnation
from identity_common.clock import Clock, now_ms
from identity_common.telemetry.metrics import Samples, gauge
from identity_common.wire.audit import STREAM_AUDIT
from management_service.audit.storing.stream import published_after

_POSITION: Final = text("SELECT position FROM audit_positions WHERE tenant_id = :tenant AND stream_created = :created")


def measure_lag(
    registry: CollectorRegistry,
    samples: Samples,
    reader: AsyncEngine,
    bus: Bus,
    *,
    tenant_id: str,
    clock: Clock = now_ms,
) -> None:
    """Add the lag of the ingestion to the metrics of the service; every replica reports it, whichever ingests."""
    lag = gauge(
        registry,
        "audit_ingestion_lag_seconds",
        "Time since the publication of the oldest entry that is not stored in the audit trail yet, in seconds.",
    )

    async def read() -> list[float]:
        created = await incarnation(bus, STREAM_AUDIT)
        async with reader.connect() as connection:
            position = await connection.scalar(_POSITION, {"tenant": tenant_id, "created": created})
        published = await published_after(bus, position or 0, tenant_id=tenant_id)
        return [0.0 if published is None else max(0.0, (clock() - published) / 1000)]

    samples.add([lag], read)
