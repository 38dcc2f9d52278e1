"""The longest lifetime that an access token for a user may have had: after that time, no earlier token is valid.

It never decreases: tokens issued before a resource was deleted, or before its lifetime was lowered, stay valid.
"""

from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.schema import longest_lifetimes

_WITHOUT_RESOURCE_S: Final = 3600
"""Lifetime of userinfo tokens and organization tokens."""

_new = insert(longest_lifetimes)
_NOTE: Final = _new.on_conflict_do_update(
    index_elements=["tenant_id"],
    set_={"lifetime_s": _new.excluded.lifetime_s},
    where=longest_lifetimes.c.lifetime_s < _new.excluded.lifetime_s,
)
_FIND: Final = select(longest_lifetimes.c.lifetime_s).where(longest_lifetimes.c.tenant_id == bindparam("tenant"))


async def note_lifetime(connection: AsyncConnection, tenant_id: str, lifetime_s: int) -> None:
    """Note the lifetime of a resource's access tokens, in the transaction that sets it."""
    await connection.execute(_NOTE, {"tenant_id": tenant_id, "lifetime_s": lifetime_s})


async def longest_lifetime_ms(connection: AsyncConnection, tenant_id: str) -> int:
    """Return the longest lifetime so far, in milliseconds."""
    found: int | None = (await connection.execute(_FIND, {"tenant": tenant_id})).scalar_one_or_none()
    return max(found or 0, _WITHOUT_RESOURCE_S) * 1000
