"""Detects that a source's database lacks changes that were published, before anything commits on its server.

A standby that missed the last changes was promoted, or the database was restored to an earlier point. The revisions
that follow would repeat published ones, and consumers would drop them. Does not repair: ``Restoration`` does
(docs/decisions/0042).
"""

from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg
from msgspec import json
from nats.js.errors import NotFoundError
from prometheus_client import CollectorRegistry, Gauge

from identity_common.bus.connection import Bus
from identity_common.bus.streams import STREAM_OF, LastPublished, last_published
from identity_common.revisions import Source
from identity_common.stores.database import database_answers
from identity_common.stores.database_servers import THIS_SERVER
from identity_common.telemetry.logs import get_logger
from identity_common.telemetry.metrics import gauge
from identity_common.wire.events import WATERMARK_TYPE
from stead.event_types import CloudEvent

_log = get_logger(__name__)

_MESSAGES_READ: Final = 1000
_SUBJECTS_LOGGED: Final = 100

_REVISION: Final = "SELECT revision FROM source_revision WHERE tenant_id = $1"
_CHECKED: Final = f"""
    UPDATE source_revision SET checked_server = this.server FROM (SELECT {THIS_SERVER} AS server) AS this
    WHERE tenant_id = $1 AND checked_server IS DISTINCT FROM this.server
"""  # noqa: S608 - of constants
_UNCHECKED: Final = "UPDATE source_revision SET checked_server = NULL WHERE tenant_id = $1"


def lost_writes_gauge(registry: CollectorRegistry, source: str) -> Gauge:
    """Return the metric of what ``source`` lost: a time, because a counter that begins with its only event is lost."""
    return gauge(
        registry,
        "lost_writes_timestamp_seconds",
        "When this process last found that its database lacks published changes, in seconds since 1970; or 0.",
        "source",
    ).labels(source)


class LostWrites:
    """Compares the database with the stream; the active relay calls it whenever it begins.

    Args:
        bus: The bus.
        repair: Repairs the database; None if changes are refused until an operator does.
        registry: Gets the metric.
        source: The source.
        tenant_id: The tenant.
    """

    def __init__(
        self,
        bus: Bus,
        repair: Callable[[], Awaitable[None]] | None,
        registry: CollectorRegistry,
        *,
        source: Source,
        tenant_id: str,
    ) -> None:
        self._bus = bus
        self._repair = repair
        self._source: Source = source
        self._tenant_id = tenant_id
        self._found_at = lost_writes_gauge(registry, source)

    async def check(self, connection: asyncpg.Connection) -> bool:
        """Let changes commit on the server of this connection if its database has all that was published.

        Otherwise repair it, or refuse changes.

        Returns:
            Whether changes may commit.

        Raises:
            StoreUnavailable, asyncpg.PostgresError: The database does not answer.
            nats.errors.Error: NATS does not answer.
        """
        published = await last_published(self._bus, self._source, self._tenant_id)
        revision: int | None = await connection.fetchval(_REVISION, self._tenant_id)
        if revision is None or published.revision <= revision:
            await connection.execute(_CHECKED, self._tenant_id)
            return True
        await connection.execute(_UNCHECKED, self._tenant_id)  # the server may be the one that was checked before
        self.note()
        _log.error(
            "relay.writes-lost",
            source=self._source,
            revision=revision,
            published=published.revision,
            count=published.revision - revision,
            ids=" ".join(await self._published_after(revision, published)),
            reason="changes are refused" if self._repair is None else "the database is repaired",
        )
        if self._repair is None:
            return False
        with database_answers():
            await self._repair()
        _log.warning("relay.writes-lost-repaired", source=self._source)
        return True

    def note(self) -> None:
        """Set the metric to now."""
        self._found_at.set_to_current_time()

    async def _published_after(self, revision: int, last: LastPublished) -> list[str]:
        """Return what the last events above a revision are about, newest first: ``user.<id>``."""
        found: list[str] = []
        for sequence in range(last.sequence, max(0, last.sequence - _MESSAGES_READ), -1):
            try:
                message = await self._bus.jetstream().get_msg(STREAM_OF[self._source], sequence, direct=True)
            except NotFoundError:
                continue  # a newer message of its subject replaced it
            event = json.decode(message.data or b"", type=CloudEvent)
            if event.tenantid != self._tenant_id or event.type == WATERMARK_TYPE:
                continue
            if event.revision <= revision or len(found) == _SUBJECTS_LOGGED:
                break
            found.append(".".join((message.subject or "").split(".")[2:]))
        return found
