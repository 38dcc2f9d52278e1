"""Entries as a table (RFC 4180), for people and spreadsheets; it has no leaves and verifies nothing. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from identity_common.spreadsheets import csv_rows
from identity_common.wire.audit import AuditContext, AuditEntry

_COLUMNS: Final = (
    *("time", "key", "outcome", "reason", "user", "userId", "actor", "actorId", "requester", "requestedBy"),
    *("application", "applicationId", "organizationId", "subjectTokenId", "contextReason", "ticketId", "operation"),
    *("ids", "given", "members", "aggregates", "aggregateCount", "resource", "scope", "address", "userAgent"),
    *("requestId", "count", "id", "log", "sequence"),
)

_decode: Final = msgspec.json.Decoder(AuditEntry).decode


def table_head() -> bytes:
    """Return the row with the names of the columns."""
    return csv_rows([_COLUMNS])


def table_rows(entries: Iterable[str], names: Iterable[dict[str, str]]) -> bytes:
    """Return a row for the JSON of each entry, with the names beside it."""
    return csv_rows(_cells(_decode(entry), named) for entry, named in zip(entries, names, strict=True))


def _cells(entry: AuditEntry, names: dict[str, str]) -> Sequence[str]:
    context = entry.context or AuditContext()
    time = datetime.fromtimestamp(entry.occurred_at / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        *(time, entry.key, entry.outcome, entry.reason or ""),
        *(names.get(entry.user_id or "", ""), entry.user_id or ""),
        *(names.get(entry.actor_id or "", ""), entry.actor_id or ""),
        *(names.get(entry.requested_by or "", ""), entry.requested_by or ""),
        *(names.get(entry.application_id or "", ""), entry.application_id or ""),
        *(entry.organization_id or "", entry.subject_token_id or ""),
        *(context.reason or "", context.ticket_id or "", entry.operation or ""),
        " ".join(f"{name}={value}" for name, value in entry.ids.items()),
        " ".join(f"{name}={value}" for name, values in entry.given.items() for value in values),
        *(" ".join(entry.members), " ".join(entry.aggregates), str(entry.aggregate_count)),
        *(entry.resource or "", entry.scope or "", entry.address, entry.user_agent, entry.request_id),
        *(str(entry.count), entry.id, entry.log, str(entry.sequence)),
    )
