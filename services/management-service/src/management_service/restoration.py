"""Repairs the state after the database lost changes: see docs/operations/backup-and-restore.md."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import text

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Transaction
from identity_common.outbox.mail import drop_queued
from identity_common.outbox.restoration import Published
from management_service.factors.authenticators import last_usable_step

# As users.rules.next_tokens_valid_after.
_END_TOKENS: Final = text(
    """
    UPDATE users SET tokens_valid_after = GREATEST(:now, tokens_valid_after) + 1
    WHERE tenant_id = :tenant
    """
)
# Which links were spent after the lost changes is not known.
_END_LINKS: Final = text("DELETE FROM mailed_links WHERE tenant_id = :tenant")
# Nor which recovery codes and enrolment codes; what withholds these stays.
_END_CODES: Final = (
    text("DELETE FROM recovery_codes WHERE tenant_id = :tenant"),
    text("DELETE FROM factor_enrolments WHERE tenant_id = :tenant AND code_sha256 IS DISTINCT FROM ''"),
)
# Nor which codes of authenticator apps: all that are valid now, or with the next step, count as used.
_END_STEPS: Final = text("UPDATE authenticators SET last_step = GREATEST(last_step, :step) WHERE tenant_id = :tenant")
# Later entries are ingested again, with new salts, so the tree diverges from the heads that were published.
_BEGIN_LOG: Final = text("UPDATE audit_trees SET log_id = :log WHERE tenant_id = :tenant")


async def mend(transaction: Transaction, unknown: Sequence[Published], *, revision: int, tenant_id: str) -> None:
    """Invalidate tokens, links, codes and queued mail, begin a new audit log, delete unknown aggregates on the bus."""
    await transaction.connection.execute(_END_TOKENS, {"tenant": tenant_id, "now": now_ms()})
    await transaction.connection.execute(_END_LINKS, {"tenant": tenant_id})
    await drop_queued(transaction.connection, tenant_id)
    for statement in _END_CODES:
        await transaction.connection.execute(statement, {"tenant": tenant_id})
    await transaction.connection.execute(_END_STEPS, {"tenant": tenant_id, "step": last_usable_step(now_ms())})
    await transaction.connection.execute(_BEGIN_LOG, {"tenant": tenant_id, "log": new_id()})
    transaction.changes += [published.deletion for published in unknown]
