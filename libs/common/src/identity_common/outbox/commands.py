"""The commands of a service that publishes its changes: republication, and repair after a restoration."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.outbox.changes import Changes
from identity_common.outbox.republication import Republication, Step
from identity_common.outbox.restoration import Mend, Restoration, connected
from identity_common.revisions import Source


class SourceCommands:
    """The commands of one service. Each closes the database connections when it ends, so only one can be run.

    Args:
        engine: The connections.
        changes: Opens transactions on them.
        steps: One step for each kind of aggregate.
        source: The source.
        tenant_id: The tenant.
    """

    def __init__(
        self, engine: AsyncEngine, changes: Changes, *, steps: Sequence[Step], source: Source, tenant_id: str
    ) -> None:
        self._engine = engine
        self._changes = changes
        self._source: Source = source
        self._tenant_id = tenant_id
        self._republication = Republication(changes, tenant_id=tenant_id, steps=steps)

    async def republish(self) -> None:
        """Ask the active relay of the running service to publish the whole state again."""
        try:
            await self._republication.request()
        finally:
            await self._engine.dispose()

    async def restore(self, bus: Bus, mend: Mend) -> None:
        """Make a database that was restored to an earlier point safe to start with.

        Raises:
            StillRunningError: The service is running.
            nats.errors.Error: NATS does not answer.
        """
        try:
            async with connected(bus):
                await Restoration(
                    self._changes, self._republication, bus, mend, source=self._source, tenant_id=self._tenant_id
                ).restore()
        finally:
            await self._engine.dispose()
