"""Entries of the audit trail in messages of the bus."""

import msgspec

from identity_common.wire.audit import AuditEntry


def entries_in(message: bytes | None) -> list[AuditEntry]:
    """Return the entries of a message, which has one or several."""
    data = message or b""
    if data.startswith(b"["):
        return msgspec.json.decode(data, type=list[AuditEntry], strict=True)
    return [msgspec.json.decode(data, type=AuditEntry, strict=True)]
