"""Recovery codes in PostgreSQL: only their hashes are stored."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.schema import recovery_codes

_OF_USER: Final = (recovery_codes.c.tenant_id == bindparam("tenant"), recovery_codes.c.user_id == bindparam("user"))
_OF_HASH: Final = (*_OF_USER, recovery_codes.c.sha256 == bindparam("hash"))
_EXISTS: Final = select(true()).where(*_OF_HASH)
_TAKE: Final = delete(recovery_codes).where(*_OF_HASH)
_COUNT: Final = select(func.count()).select_from(recovery_codes).where(*_OF_USER)
_DELETE: Final = delete(recovery_codes).where(*_OF_USER)
_INSERT: Final = insert(recovery_codes)


async def replace_codes(
    connection: AsyncConnection, tenant_id: str, user_id: str, hashes: Iterable[str], *, now: int
) -> None:
    """Store codes in place of the earlier ones."""
    await connection.execute(_DELETE, {"tenant": tenant_id, "user": user_id})
    rows = [{"tenant_id": tenant_id, "user_id": user_id, "sha256": each, "created_at": now} for each in hashes]
    if rows:
        await connection.execute(_INSERT, rows)


async def is_code(connection: AsyncConnection, tenant_id: str, user_id: str, sha256: str) -> bool:
    """Return whether a user has a code with this hash."""
    return bool(await connection.scalar(_EXISTS, {"tenant": tenant_id, "user": user_id, "hash": sha256}))


async def take_code(connection: AsyncConnection, tenant_id: str, user_id: str, sha256: str) -> int | None:
    """Delete a code and return how many are left; None if there is none with this hash."""
    values = {"tenant": tenant_id, "user": user_id, "hash": sha256}
    if not (await connection.execute(_TAKE, values)).rowcount:
        return None
    return int((await connection.execute(_COUNT, {"tenant": tenant_id, "user": user_id})).scalar_one())
