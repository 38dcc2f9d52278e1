"""Entries as a table (RFC 4180), for people and spreadsheets; it has no leaves and verifies nothing. Pure."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from identity_common.wire.audit import AuditContext, AuditEntry

_COLUMNS: Final = (
    *("time", "key", "outcome", "reason", "user", "userId", "actor", "actorId", "requester", "requestedBy"),
    *("application", "applicationId", "organizationId", "subjectTokenId", "contextReason", "ticketId", "operation"),
    *("ids", "given", "members", "aggregates", "aggregateCount", "resource", "scope", "address", "userAgent"),
    *("requestId", "count", "id", "log", "sequence"),
)
_FORMULA: Final = re.compile(r"^(?=[=+\-@\t\r\n])|(?<=[;\t\r\n])(?=[=+\-@])")
"""Where a formula would begin: in the cell, or in what a spreadsheet with other separators takes for one."""

_decode: Final = msgspec.json.Decoder(AuditEntry).decode


def table_head() -> bytes:
    """Return the row with the names of the columns."""
    return _rows([_COLUMNS])


def table_rows(entries: Iterable[str], names: Iterable[dict[str, str]]) -> bytes:
    """Return a row for the JSON of each entry, with the names beside it."""
    return _rows(_cells(_decode(entry), named) for entry, named in zip(entries, names, strict=True))


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


def _rows(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([*map(_not_a_formula, row)] for row in rows)
    return text.getvalue().encode()


def _not_a_formula(cell: str) -> str:
    """Return text that a spreadsheet does not take for a formula: an apostrophe before it makes it text."""
    return _FORMULA.sub("'", cell)
