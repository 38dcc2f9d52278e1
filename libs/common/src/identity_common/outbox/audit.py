"""Audit entries of a transaction: one entry for all its changes, or for each hundred of them."""

from collections.abc import Sequence
from typing import Final

import msgspec

from identity_common.audited_request import AuditedRequest
from identity_common.identifiers import new_id
from identity_common.outbox.change import Change
from identity_common.revisions import Source
from identity_common.telemetry.logs import REQUEST_ID
from identity_common.wire.audit import MAX_AGGREGATES, AuditContext, AuditEntry, AuditLog

_VERBS: Final = {"created": "create", "updated": "update", "deleted": "delete"}


def audit_entries(
    request: AuditedRequest, changes: Sequence[Change], *, service: Source, tenant_id: str, occurred_at: int
) -> list[AuditEntry]:
    """Return the entries of a write; they get their numbers in the transaction.

    Args:
        request: The request that made the changes.
        changes: The changes; the first names the entry. Without changes there are no entries.
        service: The service that was written to.
        tenant_id: The tenant.
        occurred_at: Milliseconds since the epoch, UTC.
    """
    if not changes:
        return []
    kind, _, verb = changes[0].type.rpartition(".")
    aggregates = [f"{change.type.rpartition('.')[0]}/{change.aggregate}" for change in changes]
    return [
        msgspec.structs.replace(
            entry_of_write(
                request,
                log=service,
                key=f"{service}.{kind}.{_VERBS[verb]}",
                aggregates=aggregates[begin : begin + MAX_AGGREGATES],
                tenant_id=tenant_id,
                occurred_at=occurred_at,
            ),
            aggregate_count=len(aggregates),
        )
        for begin in range(0, len(aggregates), MAX_AGGREGATES)
    ]


def entry_of_write(
    request: AuditedRequest | None,
    *,
    log: AuditLog,
    key: str,
    aggregates: Sequence[str],
    tenant_id: str,
    occurred_at: int,
) -> AuditEntry:
    """Return the entry of a write whose key and aggregates are known.

    Args:
        request: The request to the Management API that made it; none for any other cause.
        log: The log that will number it.
        key: What happened, as source, object and verb.
        aggregates: What changed, as kind and ids; at most ``MAX_AGGREGATES``.
        tenant_id: The tenant.
        occurred_at: Milliseconds since the epoch, UTC.
    """
    entry = AuditEntry(
        id=new_id(),
        occurred_at=occurred_at,
        tenant_id=tenant_id,
        log=log,
        key=key,
        request_id=REQUEST_ID.get() or "",
        aggregates=tuple(aggregates),
        aggregate_count=len(aggregates),
    )
    if request is None:
        return entry
    return msgspec.structs.replace(
        entry,
        operation=request.operation,
        application_id=request.application_id,
        user_id=request.user_id,
        token_id=request.token_id,
        address=request.address,
        user_agent=request.user_agent,
        ids=request.ids,
        members=request.members,
        given=request.given,
        context=None if request.reason is None else AuditContext(reason=request.reason),
    )
