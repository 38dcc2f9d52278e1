"""Revocations in PostgreSQL, numbered in the order of their commits.

The counter's row stays locked until the transaction ends, so that a copy up to a number misses nothing below it. On a
server that did not give the last number, such as a promoted standby, the count jumps: a standby that lacks the last
numbers would give them again, and the copy would take these revocations for copied.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import ARRAY, BigInteger, Text, any_, bindparam, case, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.clock import now_ms
from identity_common.stores.database import server_of
from token_service.schema import revocation_counts, revocations

NOTIFY_CHANNEL: Final = "revocations"
"""Notified of every revocation when its transaction commits, for the not-valid feed."""


class Revocation(msgspec.Struct, frozen=True):
    """A revoked token or authorization, an ended impersonation, a cutoff, or a retired signing key.

    Attributes:
        id: ``jti`` of an access token, the id of an authorization or impersonation, ``cutoff_id`` or
            ``retired_key_id``.
        expires_at: Milliseconds; every token that it covers has expired by then.
        begun_until: Of a cutoff, milliseconds: it covers impersonations that began until then.
    """

    id: str
    expires_at: int
    begun_until: int | None = None


class NumberedRevocation(msgspec.Struct, frozen=True):
    """A stored revocation with its place in the order."""

    id: str
    expires_at: int
    number: int
    begun_until: int | None = None


_last = revocation_counts.c.number
_added = insert(revocation_counts).values(
    tenant_id=bindparam("tenant"), number=bindparam("count"), server=bindparam("server")
)
_is_new_server = revocation_counts.c.server.is_distinct_from(_added.excluded.server)
_COUNT: Final = _added.on_conflict_do_update(
    index_elements=["tenant_id"],
    set_={
        "number": case((_is_new_server, func.greatest(_last, bindparam("least", type_=BigInteger))), else_=_last)
        + _added.excluded.number,
        "server": _added.excluded.server,
    },
).returning(_last)
_raised = insert(revocation_counts).values(tenant_id=bindparam("tenant"), number=bindparam("count"))
_RAISE: Final = _raised.on_conflict_do_update(
    index_elements=["tenant_id"], set_={"number": func.greatest(_last, _raised.excluded.number)}
)
_new = insert(revocations)
_INSERT: Final = _new.on_conflict_do_update(
    index_elements=["tenant_id", "id"],
    set_={
        "number": _new.excluded.number,
        "expires_at": func.greatest(revocations.c.expires_at, _new.excluded.expires_at),
        "begun_until": func.greatest(revocations.c.begun_until, _new.excluded.begun_until),
    },
)
_NOTIFY: Final = select(func.pg_notify(NOTIFY_CHANNEL, ""))
_HEAD: Final = select(revocation_counts.c.number).where(revocation_counts.c.tenant_id == bindparam("tenant"))
_AFTER: Final = (
    select(revocations.c.id, revocations.c.expires_at, revocations.c.number, revocations.c.begun_until)
    .where(
        revocations.c.tenant_id == bindparam("tenant"),
        revocations.c.number > bindparam("after"),
        revocations.c.expires_at > bindparam("now"),
    )
    .order_by(revocations.c.number)
    .limit(bindparam("count"))
)
_KNOWN: Final = select(revocations.c.id, revocations.c.expires_at, revocations.c.begun_until).where(
    revocations.c.tenant_id == bindparam("tenant"), revocations.c.id == any_(bindparam("ids", type_=ARRAY(Text)))
)
_DELETE_EXPIRED: Final = delete(revocations).where(
    revocations.c.tenant_id == bindparam("tenant"), revocations.c.expires_at <= bindparam("now")
)


async def insert_revocations(connection: AsyncConnection, tenant_id: str, revoked: Sequence[Revocation]) -> None:
    """Store revocations; one that exists already keeps the later expiry.

    Must be the last statements of a transaction: they block every other revocation of the tenant until it ends.
    """
    ordered = sorted(revoked, key=lambda each: each.id)
    numbers = {"count": len(ordered), "server": server_of(connection), "least": now_ms()}
    last: int = await connection.scalar(_COUNT, {"tenant": tenant_id, **numbers})
    first = last - len(ordered) + 1
    rows = [
        {
            "tenant_id": tenant_id,
            "id": each.id,
            "number": first + place,
            "expires_at": each.expires_at,
            "begun_until": each.begun_until,
        }
        for place, each in enumerate(ordered)
    ]
    await connection.execute(_INSERT, rows)
    await connection.execute(_NOTIFY)


async def find_head(connection: AsyncConnection, tenant_id: str) -> int:
    """Return the number of the last revocation; 0 before the first."""
    return await connection.scalar(_HEAD, {"tenant": tenant_id}) or 0


async def raise_head(connection: AsyncConnection, tenant_id: str, *, to: int) -> None:
    """Raise the counter to at least this number."""
    await connection.execute(_RAISE, {"tenant": tenant_id, "count": to})


async def list_revocations(
    connection: AsyncConnection, tenant_id: str, *, after: int, now: int, count: int
) -> list[NumberedRevocation]:
    """Return the first ``count`` live revocations with a number above ``after``."""
    values = {"tenant": tenant_id, "after": after, "now": now, "count": count}
    rows = (await connection.execute(_AFTER, values)).all()
    return [NumberedRevocation(row.id, row.expires_at, row.number, row.begun_until) for row in rows]


async def find_known(connection: AsyncConnection, tenant_id: str, ids: Sequence[str]) -> frozenset[Revocation]:
    """Return the stored revocations with these ids."""
    rows = (await connection.execute(_KNOWN, {"tenant": tenant_id, "ids": list(ids)})).all()
    return frozenset(Revocation(row.id, row.expires_at, row.begun_until) for row in rows)


async def delete_expired_revocations(connection: AsyncConnection, tenant_id: str, *, now: int) -> None:
    """Delete expired revocations."""
    await connection.execute(_DELETE_EXPIRED, {"tenant": tenant_id, "now": now})
