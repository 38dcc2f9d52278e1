"""Entries of the audit trail in messages of the bus."""

import msgspec
from nats.js import JetStreamContext

from identity_common.wire.audit import STREAM_AUDIT, AuditEntry
from tests.support.streams import messages_of


def entries_in(message: bytes | None) -> list[AuditEntry]:
    """Return the entries of a message, which has one or several."""
    data = message or b""
    if data.startswith(b"["):
        return msgspec.json.decode(data, type=list[AuditEntry], strict=True)
    return [msgspec.json.decode(data, type=AuditEntry, strict=True)]


async def entries_on_the_bus(jetstream: JetStreamContext, subject: str) -> list[AuditEntry]:
    """Return the entries of a subject that the stream has now, repeats included; management-service may read it."""
    return [
        entry for message in await messages_of(jetstream, STREAM_AUDIT, subject) for entry in entries_in(message.data)
    ]
