"""Repairs the state after the database was restored to an earlier point: see docs/operations/backup-and-restore.md."""

from typing import Final

from sqlalchemy import text

from identity_common.bus.connection import Bus
from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes
from identity_common.outbox.republication import Republication
from identity_common.outbox.restoration import raise_revision, unknown_aggregates

# As users.rules.next_tokens_valid_after.
_END_TOKENS: Final = text(
    """
    UPDATE users SET tokens_valid_after = GREATEST(:now, tokens_valid_after) + 1
    WHERE tenant_id = :tenant
    """
)
# Later entries are ingested again, with new salts, so the tree diverges from the heads that were published.
_BEGIN_LOG: Final = text("UPDATE audit_trees SET log_id = :log WHERE tenant_id = :tenant")


async def restore(changes: Changes, republication: Republication, bus: Bus, *, tenant_id: str) -> None:
    """Raise the revision, invalidate all users' tokens, begin a new audit log, delete unknown aggregates on the bus.

    The service publishes all of it when it starts.

    Raises:
        StillRunningError: The service is running.
        nats.errors.Error: NATS does not answer.
    """
    await changes.prepare()
    unknown = await unknown_aggregates(bus, republication, source="management", tenant_id=tenant_id)
    async with changes.transaction(await_publication=False) as transaction:
        await raise_revision(transaction, bus, source="management", tenant_id=tenant_id)
        await transaction.connection.execute(_END_TOKENS, {"tenant": tenant_id, "now": now_ms()})
        await transaction.connection.execute(_BEGIN_LOG, {"tenant": tenant_id, "log": new_id()})
        transaction.changes += [published.deletion for published in unknown]
