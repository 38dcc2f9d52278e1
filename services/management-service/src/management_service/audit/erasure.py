"""Erases the personal part of a deleted user's entries. Their leaves stay as they are."""

from collections.abc import Sequence
from typing import Final

import asyncpg
import msgspec

from identity_common.wire.audit import AuditEntry
from stead.audit.leaves import PERSONAL_MEMBERS, personal_hash

_DELETION: Final = "management.user.delete"

_REQUEST: Final = """
    INSERT INTO audit_erasures (tenant_id, user_id, is_pending)
    SELECT $1, user_id, true FROM unnest($2::text[]) AS user_id
    ON CONFLICT (tenant_id, user_id) DO UPDATE SET is_pending = true
"""
_REQUEST_AGAIN: Final = """
    UPDATE audit_erasures SET is_pending = true WHERE tenant_id = $1 AND user_id = ANY($2::text[]) AND NOT is_pending
"""
_PENDING: Final = "SELECT user_id FROM audit_erasures WHERE tenant_id = $1 AND is_pending LIMIT 1"
_COMPLETE: Final = "UPDATE audit_erasures SET is_pending = false WHERE tenant_id = $1 AND user_id = $2"
_ENTRIES: Final = """
    SELECT occurred_at, number, entry, salt FROM audit_entries
    WHERE tenant_id = $1 AND user_id = $2 AND salt IS NOT NULL
    UNION
    SELECT occurred_at, number, entry, salt FROM audit_entries
    WHERE tenant_id = $1 AND actor_id = $2 AND salt IS NOT NULL
    LIMIT $3
"""
_ERASE: Final = """
    UPDATE audit_entries SET entry = $4, personal_hash = $5, salt = NULL
    WHERE tenant_id = $1 AND occurred_at = $2 AND number = $3
"""
_AT_ONCE: Final = 500


async def note_erasures(connection: asyncpg.Connection, tenant_id: str, entries: Sequence[AuditEntry]) -> None:
    """Note the users whose deletion is among these entries, and those deleted before, of whom an entry arrives late."""
    people = {each for entry in entries for each in (entry.user_id, entry.actor_id) if each is not None}
    if people:
        await connection.execute(_REQUEST_AGAIN, tenant_id, [*people])
    deleted = {
        entry.ids["user_id"]
        for entry in entries
        if entry.log == "management" and entry.key == _DELETION and "user_id" in entry.ids
    }
    if deleted:
        await connection.execute(_REQUEST, tenant_id, [*deleted])


async def erase_some(connection: asyncpg.Connection, tenant_id: str) -> None:
    """Erase the personal part of some entries about a deleted user: as the subject, or as the actor."""
    async with connection.transaction():
        user_id = await connection.fetchval(_PENDING, tenant_id)
        if user_id is None:
            return
        rows = await connection.fetch(_ENTRIES, tenant_id, user_id, _AT_ONCE)
        erased = []
        for row in rows:
            entry = msgspec.json.decode(row["entry"])
            hashed = personal_hash(entry, row["salt"])
            rest = {name: value for name, value in entry.items() if name not in PERSONAL_MEMBERS}
            text = msgspec.json.encode(rest).decode()
            erased.append((tenant_id, row["occurred_at"], row["number"], text, hashed))
        await connection.executemany(_ERASE, erased)
        if len(rows) < _AT_ONCE:
            await connection.execute(_COMPLETE, tenant_id, user_id)
