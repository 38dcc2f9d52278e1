"""Passkeys in PostgreSQL, and the handles by which authenticators know users."""

import secrets
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, column, delete, select, table, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.stores.lookups import Lookups, key_lookup
from management_service.schema import passkeys, user_handles, users

_HANDLE_BYTES: Final = 32


class Passkey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey as stored.

    Attributes:
        credential_id: What the authenticator calls it.
        public_key: COSE key.
        sign_count: The authenticator's counter at its last use.
        aaguid: Its make.
        name: How its owner calls it; may be empty.
        is_backup_eligible: Whether it may be synced between devices.
        is_backed_up: Whether it is.
        created_at: Milliseconds since the epoch.
        last_used_at: Likewise; None: not since it was created.
    """

    tenant_id: str
    id: str
    user_id: str
    credential_id: bytes
    public_key: bytes
    sign_count: int
    aaguid: str
    name: str
    transports: list[str]
    is_backup_eligible: bool
    is_backed_up: bool
    created_at: int
    last_used_at: int | None = None


class OwnedPasskey(msgspec.Struct, frozen=True):
    """A passkey, and what is known of its owner.

    Attributes:
        handle: The owner's user handle.
        revision: Revision of this service that the row includes.
    """

    passkey: Passkey
    handle: bytes
    is_suspended: bool
    tokens_valid_after: int
    revision: int


_FIELDS: Final = Passkey.__struct_fields__
_COLUMNS: Final = tuple(passkeys.c[name] for name in _FIELDS)
_REVISION: Final = table("source_revision", column("tenant_id"), column("revision"))
_OF_USER: Final = (passkeys.c.tenant_id == bindparam("tenant"), passkeys.c.user_id == bindparam("user"))
_BY_ID: Final = (*_OF_USER, passkeys.c.id == bindparam("passkey"))
_LIST: Final = select(*_COLUMNS).where(*_OF_USER).order_by(passkeys.c.created_at, passkeys.c.id)
_OF_OWNER: Final = (users.c.tenant_id == passkeys.c.tenant_id, users.c.id == passkeys.c.user_id)
_LOOK_UP: Final = key_lookup(
    select(
        *_COLUMNS,
        select(user_handles.c.handle)
        .where(user_handles.c.tenant_id == passkeys.c.tenant_id, user_handles.c.user_id == passkeys.c.user_id)
        .scalar_subquery(),
        select(users.c.is_suspended).where(*_OF_OWNER).scalar_subquery(),
        select(users.c.tokens_valid_after).where(*_OF_OWNER).scalar_subquery(),
        select(_REVISION.c.revision).where(_REVISION.c.tenant_id == passkeys.c.tenant_id).scalar_subquery(),
    ).where(passkeys.c.tenant_id == bindparam("tenant"), passkeys.c.credential_id == bindparam("credential"))
)
_INSERT: Final = insert(passkeys).on_conflict_do_nothing(constraint="passkeys_credential_unique")
_USED: Final = (
    update(passkeys)
    .where(
        passkeys.c.tenant_id == bindparam("tenant"),
        passkeys.c.id == bindparam("passkey"),
        passkeys.c.sign_count == bindparam("earlier_count"),
    )
    .values(sign_count=bindparam("count"), is_backed_up=bindparam("backed_up"), last_used_at=bindparam("now"))
)
_RENAME: Final = update(passkeys).where(*_BY_ID).values(name=bindparam("new_name"))
_DELETE: Final = delete(passkeys).where(*_BY_ID)
_FIND_HANDLE: Final = select(user_handles.c.handle).where(
    user_handles.c.tenant_id == bindparam("tenant"), user_handles.c.user_id == bindparam("user")
)
_PUT_HANDLE: Final = insert(user_handles).on_conflict_do_nothing()


async def find_passkeys(connection: AsyncConnection, tenant_id: str, user_id: str) -> list[Passkey]:
    """Return a user's passkeys, oldest first."""
    rows = await connection.execute(_LIST, {"tenant": tenant_id, "user": user_id})
    return [_passkey(row) for row in rows]


async def look_up_passkey(lookups: Lookups, tenant_id: str, credential_id: bytes) -> OwnedPasskey | None:
    """Return the passkey with this credential id; None if there is none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, credential_id)
    if not rows:
        return None
    row = tuple(rows[0])
    return OwnedPasskey(_passkey(row), *row[len(_FIELDS) :])


async def insert_passkey(connection: AsyncConnection, passkey: Passkey) -> bool:
    """Store a new passkey; return False if its credential id is known."""
    return bool((await connection.execute(_INSERT, msgspec.structs.asdict(passkey))).rowcount)


async def note_use(connection: AsyncConnection, used: Passkey, *, earlier_count: int) -> bool:
    """Store the counter, the state of backup and the time of a use.

    Args:
        connection: In a transaction.
        used: The passkey as of its use.
        earlier_count: The counter that the use was judged by.

    Returns:
        Whether the passkey still has that counter; nothing is stored otherwise.
    """
    values = {
        "tenant": used.tenant_id,
        "passkey": used.id,
        "earlier_count": earlier_count,
        "count": used.sign_count,
        "backed_up": used.is_backed_up,
        "now": used.last_used_at,
    }
    return bool((await connection.execute(_USED, values)).rowcount)


async def rename_passkey(connection: AsyncConnection, tenant_id: str, user_id: str, passkey_id: str, name: str) -> bool:
    """Store another name of a user's passkey; return whether there is one."""
    values = {"tenant": tenant_id, "user": user_id, "passkey": passkey_id, "new_name": name}
    return bool((await connection.execute(_RENAME, values)).rowcount)


async def delete_passkey(connection: AsyncConnection, tenant_id: str, user_id: str, passkey_id: str) -> bool:
    """Delete a user's passkey; return whether there was one."""
    values = {"tenant": tenant_id, "user": user_id, "passkey": passkey_id}
    return bool((await connection.execute(_DELETE, values)).rowcount)


async def user_handle(connection: AsyncConnection, tenant_id: str, user_id: str) -> bytes:
    """Return the random handle by which authenticators know a user; made at first use, and never changed."""
    found = await find_user_handle(connection, tenant_id, user_id)
    if found is not None:
        return found
    made = {"tenant_id": tenant_id, "user_id": user_id, "handle": secrets.token_bytes(_HANDLE_BYTES)}
    await connection.execute(_PUT_HANDLE, made)
    values = {"tenant": tenant_id, "user": user_id}  # a concurrent request's handle, if that was first
    return bytes((await connection.execute(_FIND_HANDLE, values)).scalar_one())


async def find_user_handle(connection: AsyncConnection, tenant_id: str, user_id: str) -> bytes | None:
    """Return a user's handle; None before its first use."""
    values = {"tenant": tenant_id, "user": user_id}
    return (await connection.execute(_FIND_HANDLE, values)).scalar_one_or_none()


def _passkey(row: Iterable[Any]) -> Passkey:
    return Passkey(**dict(zip(_FIELDS, row, strict=False)))
