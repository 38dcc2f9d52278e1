"""Sending the whole state again: when the stream is found empty or behind, or when an operator asks for it.

Every aggregate, deletions included, goes through the outbox with a fresh revision, in batches; each batch locks what
it reads, so that no event with an older state can follow one with a newer. While it is under way no watermark is
published: a replica that starts meanwhile does not take half of the state for all of it. A row in the database says
that it is under way; whoever becomes the active relay after a crash begins again, which repeats and loses nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sqlalchemy import text

from identity_common.outbox.changes import NOTIFY_CHANNEL, Change, Changes, Transaction
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

BATCH: Final = 500

Step = Callable[[Transaction, str], Awaitable[str | None]]
"""Records one batch of aggregates behind an id, the rows locked; returns the last id, or none when that was all."""

_REQUEST = text(
    """
    WITH requested AS (
        INSERT INTO republication (tenant_id) VALUES (:tenant_id)
        ON CONFLICT (tenant_id) DO UPDATE SET last_revision = NULL
    )
    SELECT pg_notify(:channel, '')
    """
)
_SENT = text("UPDATE republication SET last_revision = :revision WHERE tenant_id = :tenant_id")
_DELETED = text(
    """
    SELECT subject, type, aggregate, data FROM deleted_aggregate
    WHERE tenant_id = :tenant_id AND subject > :after ORDER BY subject LIMIT :limit FOR SHARE
    """
)


async def request_republication(transaction: Transaction, tenant_id: str) -> None:
    """Ask the active relay to send the whole state again."""
    await transaction.connection.execute(_REQUEST, {"tenant_id": tenant_id, "channel": NOTIFY_CHANNEL})


class Republication:
    """Puts the whole state into the outbox.

    Args:
        changes: Where it goes through.
        tenant_id: Whose state.
        steps: One for each kind of aggregate.
    """

    def __init__(self, changes: Changes, *, tenant_id: str, steps: Sequence[Step]) -> None:
        self._changes = changes
        self._tenant_id = tenant_id
        self._steps = (*steps, self._record_deletions)

    async def request(self) -> None:
        """Ask for it, in a transaction of its own."""
        async with self._changes.transaction(await_publication=False) as transaction:
            await request_republication(transaction, self._tenant_id)

    async def run(self) -> int:
        """Record everything; return the revision up to which the relay must come before the state is whole."""
        count = 0
        for step in self._steps:
            after: str | None = ""
            while after is not None:
                after, recorded = await self._batch(step, after)
                count += recorded
        async with self._changes.transaction(await_publication=False) as transaction:
            revision = await self._changes.current_revision(transaction)
            await transaction.connection.execute(_SENT, {"tenant_id": self._tenant_id, "revision": revision})
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
