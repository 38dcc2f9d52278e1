"""How many mails wait, and for how long: in the outbox of a service, and in the stream."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

from nats.js.errors import NotFoundError
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.streams import stream_info
from identity_common.clock import Clock, now_ms
from identity_common.outbox.backlog import MOST_COUNTED
from identity_common.telemetry.metrics import Samples, gauge
from identity_common.wire.mail import MAIL_PREFIX, STREAM_MAIL

_WAITING: Final = text("""
    SELECT
        (SELECT count(*) FROM (SELECT FROM mail_outbox WHERE tenant_id = :tenant LIMIT :most) AS counted),
        (SELECT created_at FROM mail_outbox WHERE tenant_id = :tenant ORDER BY created_at LIMIT 1)
""")


class MailBacklog:
    """The metrics of waiting mail.

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
        self._waiting = gauge(
            registry,
            "mail_waiting",
            f"Mails that wait in the outbox of the service, {MOST_COUNTED} at most, or in the stream for the sender.",
            "place",
        )
        self._oldest = gauge(registry, "mail_oldest_seconds", "Age of the oldest of them, in seconds.", "place")

    def measure_outbox(self, reader: AsyncEngine) -> None:
        """Measure the mail that is not published yet."""

        async def read() -> tuple[int, int | None]:
            async with reader.connect() as connection:
                found = await connection.execute(_WAITING, {"tenant": self._tenant_id, "most": MOST_COUNTED})
                waiting, oldest = found.one()
            return waiting, oldest

        self._measure("outbox", read)

    def measure_stream(self, bus: Bus) -> None:
        """Measure the mail that is not sent yet."""
        subjects = f"{MAIL_PREFIX}.{self._tenant_id}.>"

        async def read() -> tuple[int, int | None]:
            info = await stream_info(bus, STREAM_MAIL, b'{"subjects_filter":"%s"}' % subjects.encode(), timeout_s=1)
            waiting = sum((info["state"].get("subjects") or {}).values())
            try:
                first = await bus.jetstream().get_msg(STREAM_MAIL, 1, subject=subjects, next=True, direct=True)
            except NotFoundError:
                return waiting, None
            return waiting, None if first.time is None else int(first.time.timestamp() * 1000)

        self._measure("stream", read)

    def _measure(
        self, place: Literal["outbox", "stream"], read: Callable[[], Awaitable[tuple[int, int | None]]]
    ) -> None:
        async def values() -> Sequence[float]:
            waiting, oldest = await read()
            return float(waiting), 0.0 if oldest is None else max(0.0, (self._clock() - oldest) / 1000)

        self._samples.add([self._waiting.labels(place), self._oldest.labels(place)], values)
