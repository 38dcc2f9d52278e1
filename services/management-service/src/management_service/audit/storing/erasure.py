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
    ON CONFLICT (tenant_id, user_id) DO UPDATE SET is_pending = true, after_time = 0, after_number = 0
"""
_REQUEST_AGAIN: Final = """
    UPDATE audit_erasures SET
        after_time = CASE WHEN is_pending THEN least(after_time, $3) ELSE $3 END,
        after_number = CASE WHEN is_pending AND after_time < $3 THEN after_number ELSE 0 END,
        is_pending = true
    WHERE tenant_id = $1 AND user_id = ANY($2::text[])
"""
_PENDING: Final = """
    SELECT user_id, after_time, after_number FROM audit_erasures WHERE tenant_id = $1 AND is_pending LIMIT 1
"""
_ADVANCE: Final = """
    UPDATE audit_erasures SET is_pending = $3, after_time = $4, after_number = $5
    WHERE tenant_id = $1 AND user_id = $2
"""
# As in the walks of reading: an index has the hash of a user, and the order of times.
_HASH: Final = "hashtextextended($2, hashtextextended($1, 0))"
_IS_NEXT: Final = "occurred_at >= $3 AND (occurred_at, number) > ($3, $4)"
_ENTRIES: Final = f"""
    (
        SELECT occurred_at, number, entry, salt FROM audit_entries
        WHERE {_IS_NEXT}
            AND hashtextextended(user_id, hashtextextended(tenant_id, 0)) = {_HASH}
            AND coalesce(tenant_id = $1 AND user_id = $2, false)
        ORDER BY occurred_at FETCH FIRST $5 ROWS WITH TIES
    ) UNION ALL (
        SELECT occurred_at, number, entry, salt FROM audit_entries
        WHERE {_IS_NEXT}
            AND hashtextextended(actor_id, hashtextextended(tenant_id, 0)) = {_HASH}
            AND coalesce(tenant_id = $1 AND actor_id = $2, false)
        ORDER BY occurred_at FETCH FIRST $5 ROWS WITH TIES
    ) UNION ALL (
        SELECT occurred_at, number, entry, salt FROM audit_entries
        WHERE {_IS_NEXT}
            AND hashtextextended(requested_by, hashtextextended(tenant_id, 0)) = {_HASH}
            AND coalesce(tenant_id = $1 AND requested_by = $2, false)
        ORDER BY occurred_at FETCH FIRST $5 ROWS WITH TIES
    ) ORDER BY occurred_at, number LIMIT $5
"""  # noqa: S608 - of constants
_ERASE: Final = """
    UPDATE audit_entries SET entry = $4, personal_hash = $5, salt = NULL
    WHERE tenant_id = $1 AND occurred_at = $2 AND number = $3
"""
_AT_ONCE: Final = 500


async def schedule_erasures(connection: asyncpg.Connection, tenant_id: str, entries: Sequence[AuditEntry]) -> None:
    """Schedule the erasure of users that these entries delete, and again of deleted users that late entries name."""
    named = (each for entry in entries for each in (entry.user_id, entry.actor_id, entry.requested_by))
    user_ids = {each for each in named if each is not None}
    if user_ids:
        oldest = min(entry.occurred_at for entry in entries)
        await connection.execute(_REQUEST_AGAIN, tenant_id, [*user_ids], oldest)
    deleted = {
        entry.ids["user_id"]
        for entry in entries
        if entry.log == "management" and entry.key == _DELETION and "user_id" in entry.ids
    }
    if deleted:
        await connection.execute(_REQUEST, tenant_id, [*deleted])


async def erase_some(connection: asyncpg.Connection, tenant_id: str) -> bool:
    """Erase the personal part of the next entries about a deleted user: as the subject, the actor, or the requester.

    Return whether there was such a user; if not, there is none before ``schedule_erasures`` is called again.

    The work of a call is bounded, however many entries the user has: entries are stored and signed between calls.
    """
    pending = await connection.fetchrow(_PENDING, tenant_id)
    if pending is None:
        return False
    user_id, *position = pending
    async with connection.transaction():
        rows = await connection.fetch(_ENTRIES, tenant_id, user_id, *position, _AT_ONCE)
        await connection.executemany(_ERASE, [(tenant_id, *_erased(row)) for row in rows if row["salt"] is not None])
        is_pending = len(rows) == _AT_ONCE
        following = (rows[-1]["occurred_at"], rows[-1]["number"]) if is_pending else (0, 0)
        await connection.execute(_ADVANCE, tenant_id, user_id, is_pending, *following)
    return True


def _erased(row: asyncpg.Record) -> tuple[int, int, str, bytes]:
    """Return the time and number of an entry, the entry without its personal part, and the hash of that part."""
    entry = msgspec.json.decode(row["entry"])
    rest = {name: value for name, value in entry.items() if name not in PERSONAL_MEMBERS}
    text = msgspec.json.encode(rest).decode()
    return row["occurred_at"], row["number"], text, personal_hash(entry, row["salt"])
