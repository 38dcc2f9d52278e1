"""Authenticator apps in PostgreSQL: their secrets are sealed."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import and_, bindparam, column, delete, select, table, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.schema import authenticators, users

_BATCH: Final = 1000


class Authenticator(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticator app of a user, who has at most one.

    Attributes:
        id: Of this secret: another app has another id.
        sealed: The secret, sealed for the user.
        last_step: The time step of the last code that was accepted.
        created_at: Milliseconds since the epoch.
        last_used_at: Milliseconds since the epoch; None if it was only set up.
    """

    tenant_id: str
    user_id: str
    id: str
    sealed: bytes
    last_step: int
    created_at: int
    last_used_at: int | None = None

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"Authenticator({self.id!r})"


class Verifiable(msgspec.Struct, frozen=True, kw_only=True):
    """A user whose code is verified.

    Attributes:
        tokens_valid_after: Milliseconds since the epoch.
        revision: Revision of this service that the row includes.
        authenticator: None without one.
    """

    tokens_valid_after: int
    is_suspended: bool
    revision: int
    authenticator: Authenticator | None


_COLUMNS: Final = tuple(authenticators.c[name] for name in Authenticator.__struct_fields__)
_OF_USER: Final = (authenticators.c.tenant_id == bindparam("tenant"), authenticators.c.user_id == bindparam("user"))
_REVISION: Final = table("source_revision", column("tenant_id"), column("revision"))
_FIND: Final = select(*_COLUMNS).where(*_OF_USER)
_VERIFIABLE: Final = (
    select(users.c.tokens_valid_after, users.c.is_suspended, _REVISION.c.revision, *_COLUMNS)
    .select_from(users)
    .join(_REVISION, _REVISION.c.tenant_id == users.c.tenant_id)
    .outerjoin(
        authenticators,
        and_(authenticators.c.tenant_id == users.c.tenant_id, authenticators.c.user_id == users.c.id),
    )
    .where(users.c.tenant_id == bindparam("tenant"), users.c.id == bindparam("user"))
)
_PUT: Final = insert(authenticators)
_REPLACE: Final = _PUT.on_conflict_do_update(
    constraint=authenticators.primary_key,
    set_={
        name: _PUT.excluded[name] for name in Authenticator.__struct_fields__ if name not in {"tenant_id", "user_id"}
    },
    where=authenticators.c.id != _PUT.excluded.id,
).returning(true())
_OF_ID: Final = (*_OF_USER, authenticators.c.id == bindparam("authenticator"))
_USE: Final = (
    update(authenticators)
    .where(*_OF_ID, authenticators.c.last_step < bindparam("step"))
    .values(last_step=bindparam("step"), last_used_at=bindparam("now"))
)
_RESEAL: Final = update(authenticators).where(*_OF_ID).values(sealed=bindparam("resealed"))
_DELETE: Final = delete(authenticators).where(*_OF_ID)
_BATCH_AFTER: Final = (
    select(*_COLUMNS)
    .where(authenticators.c.tenant_id == bindparam("tenant"), authenticators.c.user_id > bindparam("after"))
    .order_by(authenticators.c.user_id)
    .limit(_BATCH)
    .with_for_update()
)


async def find_authenticator(connection: AsyncConnection, tenant_id: str, user_id: str) -> Authenticator | None:
    """Return the authenticator app of a user; None without one."""
    row = (await connection.execute(_FIND, {"tenant": tenant_id, "user": user_id})).mappings().one_or_none()
    return None if row is None else Authenticator(**row)


async def find_verifiable(connection: AsyncConnection, tenant_id: str, user_id: str) -> Verifiable | None:
    """Return a user with the authenticator app; None if there is no such user."""
    row = (await connection.execute(_VERIFIABLE, {"tenant": tenant_id, "user": user_id})).mappings().one_or_none()
    if row is None:
        return None
    authenticator = {name: row[name] for name in Authenticator.__struct_fields__}
    return Verifiable(
        tokens_valid_after=row["tokens_valid_after"],
        is_suspended=row["is_suspended"],
        revision=row["revision"],
        authenticator=None if row["id"] is None else Authenticator(**authenticator),
    )


async def put_authenticator(connection: AsyncConnection, authenticator: Authenticator) -> bool:
    """Store an authenticator app in place of the user's earlier one; return whether it is another one."""
    return bool(await connection.scalar(_REPLACE, msgspec.structs.asdict(authenticator)))


async def use_step(connection: AsyncConnection, found: Authenticator, step: int, *, now: int) -> bool:
    """Mark a time step as used; return whether it and all later ones were unused."""
    values = {**_key(found), "step": step, "now": now}
    return bool((await connection.execute(_USE, values)).rowcount)


async def delete_authenticator(
    connection: AsyncConnection, tenant_id: str, user_id: str, authenticator_id: str
) -> bool:
    """Delete the authenticator app of a user; return whether it had this id."""
    values = {"tenant": tenant_id, "user": user_id, "authenticator": authenticator_id}
    return bool((await connection.execute(_DELETE, values)).rowcount)


async def lock_batch(connection: AsyncConnection, tenant_id: str, *, after: str) -> Sequence[Authenticator]:
    """Return the next authenticator apps after those of a user, locked until the transaction ends."""
    rows = await connection.execute(_BATCH_AFTER, {"tenant": tenant_id, "after": after})
    return [Authenticator(**row) for row in rows.mappings()]


async def reseal(connection: AsyncConnection, found: Authenticator, sealed: bytes) -> None:
    """Store the same secret, sealed anew."""
    await connection.execute(_RESEAL, {**_key(found), "resealed": sealed})


def _key(found: Authenticator) -> dict[str, str]:
    return {"tenant": found.tenant_id, "user": found.user_id, "authenticator": found.id}
