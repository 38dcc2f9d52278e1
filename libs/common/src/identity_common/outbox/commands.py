"""The commands of a service that publishes its changes: republication, and repair after a restoration."""

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.outbox.changes import Changes
from identity_common.outbox.republication import Republication, Step
from identity_common.outbox.restoration import connected


class Restore(Protocol):
    """Makes the restored database of a service safe to start with."""

    async def __call__(self, changes: Changes, republication: Republication, bus: Bus, *, tenant_id: str) -> None:
        """Work in transactions of ``changes``; the bus is connected."""


class SourceCommands:
    """The commands of one service. Each closes the database connections when it ends, so only one can be run.

    Args:
        engine: The connections.
        changes: Opens transactions on them.
        steps: One step for each kind of aggregate.
        tenant_id: The tenant.
    """

    def __init__(self, engine: AsyncEngine, changes: Changes, *, steps: Sequence[Step], tenant_id: str) -> None:
        self._engine = engine
        self._changes = changes
        self._tenant_id = tenant_id
        self._republication = Republication(changes, tenant_id=tenant_id, steps=steps)

    async def republish(self) -> None:
        """Ask the active relay of the running service to publish the whole state again."""
        try:
            await self._republication.request()
        finally:
            await self._engine.dispose()

    async def restore(self, bus: Bus, restore: Restore) -> None:
        """Make a database that was restored to an earlier point safe to start with.

        Raises:
            StillRunningError: The service is running.
            nats.errors.Error: NATS does not answer.
        """
        try:
            async with connected(bus):
                await restore(self._changes, self._republication, bus, tenant_id=self._tenant_id)
        finally:
            await self._engine.dispose()
