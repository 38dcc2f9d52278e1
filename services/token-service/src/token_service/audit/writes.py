"""The audit outbox: an entry for each change of consents and signing keys, written in the transaction of the change.

Does not publish: ``AuditRelay`` does. A change by a request to the Management API names the request; others name the
    user and the client, or neither where this service acted on its own.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import BigInteger, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.audited_request import AuditedRequest
from identity_common.outbox.audit import entry_of_write
from identity_common.outbox.changes import NOTIFY_CHANNEL
from identity_common.wire.audit import AuditLog
from identity_common.wire.audit_entries import entry_json

WRITES: Final[AuditLog] = "token"
"""The audit log of these entries."""

_APPEND: Final = text(
    """
    WITH counted AS (
        INSERT INTO audit_count AS count (tenant_id, sequence) VALUES (:tenant, 1)
        ON CONFLICT (tenant_id) DO UPDATE SET sequence = count.sequence + 1
        RETURNING sequence
    ), written AS (
        INSERT INTO audit_outbox (tenant_id, sequence, revision, entry)
        SELECT :tenant, sequence, 0, :entry FROM counted
    )
    SELECT pg_notify(:channel, '') FROM counted
    """
).bindparams(*(bindparam(name, type_=Text) for name in ("tenant", "entry", "channel")))
_RAISE: Final = text(
    """
    INSERT INTO audit_count AS count (tenant_id, sequence) VALUES (:tenant, :least)
    ON CONFLICT (tenant_id) DO UPDATE SET sequence = GREATEST(:least, count.sequence + 1)
    """
).bindparams(bindparam("tenant", type_=Text), bindparam("least", type_=BigInteger))


async def record_write(
    connection: AsyncConnection,
    tenant_id: str,
    key: str,
    *,
    aggregates: Sequence[str],
    occurred_at: int,
    request: AuditedRequest | None = None,
    user_id: str | None = None,
    application_id: str | None = None,
) -> None:
    """Number and store the entry of a change.

    The last statement of the transaction: numbers then follow the order of commits, and a transaction that waits for
        the counter cannot deadlock with the one that holds it.

    Args:
        connection: In the transaction of the change.
        tenant_id: The tenant.
        key: What happened: ``token.consent.update``.
        aggregates: What changed, as kind and ids.
        occurred_at: Milliseconds since the epoch, UTC.
        request: The request to the Management API that made the change.
        user_id: The user that a change without such a request is about.
        application_id: The client whose request led to a change without a request to the Management API.
    """
    entry = entry_of_write(
        request, log=WRITES, key=key, aggregates=aggregates, tenant_id=tenant_id, occurred_at=occurred_at
    )
    if request is None:
        entry = msgspec.structs.replace(entry, user_id=user_id, application_id=application_id)
    values = {"tenant": tenant_id, "entry": entry_json(entry).decode(), "channel": NOTIFY_CHANNEL}
    await connection.execute(_APPEND, values)


async def raise_count(connection: AsyncConnection, tenant_id: str, *, least: int) -> None:
    """Raise the counter to ``least`` after a restoration: a number published before would be dropped as a duplicate."""
    await connection.execute(_RAISE, {"tenant": tenant_id, "least": least})
