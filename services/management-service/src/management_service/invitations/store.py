"""Invitations in PostgreSQL: only a hash of the value is stored."""

from typing import Final

from msgspec import structs
from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.invitations.rules import StoredInvitation
from management_service.schema import invitations

_COLUMNS: Final = tuple(invitations.c[name] for name in StoredInvitation.__struct_fields__)
_BY_SHA256: Final = select(*_COLUMNS).where(
    invitations.c.tenant_id == bindparam("tenant"), invitations.c.sha256 == bindparam("hash")
)
_PUT: Final = insert(invitations)
_REPLACE: Final = _PUT.on_conflict_do_update(
    constraint=invitations.primary_key,
    set_={name: _PUT.excluded[name] for name in ("sha256", "tokens_valid_after", "expires_at", "scopes")},
)
_DELETE: Final = delete(invitations).where(
    invitations.c.tenant_id == bindparam("tenant"), invitations.c.user_id == bindparam("user")
)


async def find_invitation(connection: AsyncConnection, tenant_id: str, sha256: str) -> StoredInvitation | None:
    """Return the invitation with this hash; None if there is none."""
    row = (await connection.execute(_BY_SHA256, {"tenant": tenant_id, "hash": sha256})).mappings().one_or_none()
    return None if row is None else StoredInvitation(**row)


async def put_invitation(connection: AsyncConnection, invitation: StoredInvitation) -> None:
    """Store an invitation in place of the user's earlier one."""
    await connection.execute(_REPLACE, structs.asdict(invitation))


async def delete_invitation(connection: AsyncConnection, tenant_id: str, user_id: str) -> None:
    """Delete the invitation of a user, if there is one."""
    await connection.execute(_DELETE, {"tenant": tenant_id, "user": user_id})
