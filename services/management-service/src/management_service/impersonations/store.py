"""Ends of impersonations in PostgreSQL."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.wire.impersonations import ImpersonationEnd
from management_service.schema import impersonation_ends

_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtext('impersonation-ends ' || :tenant), :slot)")
_SLOT: Final = (
    impersonation_ends.c.tenant_id == bindparam("tenant"),
    impersonation_ends.c.slot == bindparam("slot"),
)
_FORGET: Final = delete(impersonation_ends).where(*_SLOT, impersonation_ends.c.expires_at <= bindparam("now"))
_LIST: Final = (
    select(impersonation_ends.c.id, impersonation_ends.c.expires_at, impersonation_ends.c.begun_until)
    .where(*_SLOT, impersonation_ends.c.expires_at > bindparam("now"))
    .order_by(impersonation_ends.c.id)
)
_new = insert(impersonation_ends)
_PUT: Final = _new.on_conflict_do_update(
    index_elements=["tenant_id", "id"],
    set_={
        "expires_at": func.greatest(impersonation_ends.c.expires_at, _new.excluded.expires_at),
        "begun_until": func.greatest(impersonation_ends.c.begun_until, _new.excluded.begun_until),
    },
)
_SLOTS: Final = (
    select(impersonation_ends.c.slot)
    .distinct()
    .where(impersonation_ends.c.tenant_id == bindparam("tenant"), impersonation_ends.c.slot > bindparam("after"))
    .order_by(impersonation_ends.c.slot)
    .limit(bindparam("count"))
)


async def lock_slot(connection: AsyncConnection, tenant_id: str, slot: int) -> None:
    """Lock a slot against changes until the transaction ends."""
    await connection.execute(_LOCK, {"tenant": tenant_id, "slot": slot})


async def list_ends(connection: AsyncConnection, tenant_id: str, slot: int, *, now: int) -> list[ImpersonationEnd]:
    """Return the unexpired ends of a slot, in the order of their ids."""
    rows = (await connection.execute(_LIST, {"tenant": tenant_id, "slot": slot, "now": now})).all()
    return [ImpersonationEnd(row.id, row.expires_at, row.begun_until) for row in rows]


async def put_end(connection: AsyncConnection, tenant_id: str, slot: int, end: ImpersonationEnd, *, now: int) -> None:
    """Store an end, or the later times of two with the same id; delete the slot's expired ends."""
    await connection.execute(_FORGET, {"tenant": tenant_id, "slot": slot, "now": now})
    values = {"id": end.id, "expires_at": end.expires_at, "begun_until": end.begun_until}
    await connection.execute(_PUT, {"tenant_id": tenant_id, "slot": slot, **values})


async def list_slots(connection: AsyncConnection, tenant_id: str, *, after: int, count: int) -> Sequence[int]:
    """Return the next slots after one that have ends, in ascending order."""
    values = {"tenant": tenant_id, "after": after, "count": count}
    return (await connection.scalars(_SLOTS, values)).all()
