"""Republication of the whole state: when the stream is empty or behind, or when an operator requests it.

Every aggregate, deletions included, goes through the outbox with a new revision, in batches. A batch locks the rows
that it reads, so that no event with an older state can follow one with a newer state. No watermark is published before
the end: a replica that starts meanwhile must not mistake half of the state for all of it. A row in the database marks a
republication in progress; after a crash the next active relay starts it again, which repeats events and loses none.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sqlalchemy import text

from identity_common.outbox.change import Change
from identity_common.outbox.changes import NOTIFY_CHANNEL, Changes, Transaction
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

BATCH: Final = 500

Step = Callable[[Transaction, str], Awaitable[str | None]]
"""Records one batch of aggregates after an id and locks their rows; returns the last id, or None after the last."""

_REQUEST = text(
    """
    WITH requested AS (
        INSERT INTO republication (tenant_id) VALUES (:tenant_id)
        ON CONFLICT (tenant_id) DO UPDATE SET last_revision = NULL
    )
    SELECT pg_notify(:channel, '')
    """
)
_RECORDED = text("UPDATE republication SET last_revision = :revision WHERE tenant_id = :tenant_id")
_DELETED = text(
    """
    SELECT subject, type, aggregate, data FROM deleted_aggregate
    WHERE tenant_id = :tenant_id AND subject > :after ORDER BY subject LIMIT :limit FOR SHARE
    """
)


async def request_republication(transaction: Transaction, tenant_id: str) -> None:
    """Request a republication from the active relay."""
    await transaction.connection.execute(_REQUEST, {"tenant_id": tenant_id, "channel": NOTIFY_CHANNEL})


class Republication:
    """Writes the whole state to the outbox.

    Args:
        changes: Opens the transactions.
        tenant_id: The tenant.
        steps: One step for each kind of aggregate.
    """

    def __init__(self, changes: Changes, *, tenant_id: str, steps: Sequence[Step]) -> None:
        self._changes = changes
        self._tenant_id = tenant_id
        # Deletions first: a new object may have the name of a deleted one, and must be applied after it.
        self._steps = (self._record_deletions, *steps)

    async def request(self) -> None:
        """Request a republication in a separate transaction."""
        async with self._changes.transaction(await_publication=False) as transaction:
            await request_republication(transaction, self._tenant_id)

    async def subjects(self) -> set[str]:
        """Return the subject of every aggregate, deleted ones included; record nothing."""
        found: set[str] = set()
        for step in self._steps:
            after: str | None = ""
            while after is not None:
                async with self._changes.transaction(await_publication=False) as transaction:
                    after = await step(transaction, after)
                    found.update(change.subject for change in transaction.changes)
                    transaction.changes.clear()
        return found

    async def run(self) -> int:
        """Record every aggregate; return the revision that the relay must publish before the state is complete."""
        count = 0
        for step in self._steps:
            after: str | None = ""
            while after is not None:
                after, recorded = await self._batch(step, after)
                count += recorded
        async with self._changes.transaction(await_publication=False) as transaction:
            revision = await self._changes.current_revision(transaction)
            await transaction.connection.execute(_RECORDED, {"tenant_id": self._tenant_id, "revision": revision})
        _log.info("republication.recorded", count=count, revision=revision)
        return revision

    @retry_on_conflict
    async def _batch(self, step: Step, after: str) -> tuple[str | None, int]:
        async with self._changes.transaction(await_publication=False) as transaction:
            last = await step(transaction, after)
        return last, len(transaction.changes)

    async def _record_deletions(self, transaction: Transaction, after: str) -> str | None:
        values = {"tenant_id": self._tenant_id, "after": after, "limit": BATCH}
        rows = (await transaction.connection.execute(_DELETED, values)).all()
        for row in rows:
            transaction.changes.append(
                Change(subject=row.subject, type=row.type, aggregate=row.aggregate, data=row.data, deleted=True)
            )
        return rows[-1].subject if rows else None
