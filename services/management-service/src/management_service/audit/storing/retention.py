"""The retention of the trail: partitions are created ahead, and what is too old is dropped, once an hour."""

from typing import Final

import asyncpg

from identity_common.clock import Clock
from identity_common.telemetry.logs import get_logger
from management_service.audit.storing.figures import drop_figures
from management_service.audit.storing.partitions import Month, create_partitions, drop_partitions, months_ahead
from management_service.party_ends import forget_party_ends

_log = get_logger(__name__)

_DAY_MS: Final = 86_400_000
_MONTH_MS: Final = 31 * _DAY_MS
MAX_AHEAD_MS: Final = _DAY_MS
"""How far the clock of a service may be ahead; a later entry would need a partition of its own."""
_UPKEEP_MS: Final = 3_600_000


class Retention:
    """Which times the trail covers.

    Args:
        tenant_id: The tenant.
        days: Age at which entries are dropped, a month at a time.
        clock: Clock.
    """

    def __init__(self, *, tenant_id: str, days: int, clock: Clock) -> None:
        self._tenant_id = tenant_id
        self._kept_ms = days * _DAY_MS
        self._clock = clock
        self._applied_at = 0
        self._months: set[Month] = set()  # known to have a partition; cleared when partitions are dropped

    @property
    def oldest(self) -> int:
        """The time before which entries are not stored, in milliseconds since the epoch."""
        return self._clock() - self._kept_ms

    def forget(self) -> None:
        """Forget which partitions exist: another replica may have changed them."""
        self._applied_at = 0

    async def apply(self, connection: asyncpg.Connection) -> None:
        """Create partitions ahead and drop what is too old, once an hour."""
        now = self._clock()
        if now - self._applied_at < _UPKEEP_MS:
            return
        await create_partitions(connection, months_ahead(now))
        dropped = await drop_partitions(connection, before_ms=now - self._kept_ms)
        await drop_figures(connection, self._tenant_id, before_ms=now - self._kept_ms)
        await forget_party_ends(
            connection, self._tenant_id, now=now, trail_kept_ms=self._kept_ms + _MONTH_MS + MAX_AHEAD_MS
        )
        if dropped:
            _log.info("audit.partitions-dropped", count=len(dropped))
        self._months.clear()
        self._applied_at = now

    async def require_partitions(self, connection: asyncpg.Connection, months: set[Month]) -> None:
        """Create the partitions that entries of these months need."""
        if missing := months - self._months:
            await create_partitions(connection, missing)
            self._months |= missing
