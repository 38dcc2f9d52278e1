"""What a transaction tells the audit trail: one entry for all its changes."""

from collections.abc import Sequence
from typing import Final

from identity_common.http.audited_request import AuditedRequest
from identity_common.identifiers import new_id
from identity_common.outbox.change import Change
from identity_common.revisions import Source
from identity_common.telemetry.logs import REQUEST_ID
from identity_common.wire.audit import MAX_AGGREGATES, AuditEntry

_VERBS: Final = {"created": "create", "updated": "update", "deleted": "delete"}


def audit_entry(
    request: AuditedRequest, changes: Sequence[Change], *, service: Source, tenant_id: str, occurred_at: int
) -> AuditEntry:
    """Return the entry of a write; it gets its numbers in the transaction.

    Args:
        request: The request that made the changes.
        changes: The changes, at least one; the first names the entry.
        service: The service that was written to.
        tenant_id: The tenant.
        occurred_at: Milliseconds since the epoch, UTC.
    """
    kind, _, verb = changes[0].type.rpartition(".")
    return AuditEntry(
        id=new_id(),
        occurred_at=occurred_at,
        tenant_id=tenant_id,
        log=service,
        key=f"{service}.{kind}.{_VERBS[verb]}",
        operation=request.operation,
        application_id=request.application_id,
        user_id=request.user_id,
        token_id=request.token_id,
        request_id=REQUEST_ID.get() or "",
        address=request.address,
        user_agent=request.user_agent,
        ids=request.ids,
        members=request.members,
        aggregates=tuple(f"{change.type.rpartition('.')[0]}/{change.aggregate}" for change in changes[:MAX_AGGREGATES]),
        aggregate_count=len(changes),
    )
