"""Invitations in PostgreSQL: only a hash of the value is stored."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs
from sqlalchemy import Select, bindparam, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from management_service.invitations.rules import InvitationStatus, StoredInvitation
from management_service.schema import invitations, users
from management_service.users.store import matching_users

_COLUMNS: Final = tuple(invitations.c[name] for name in StoredInvitation.__struct_fields__)
_BY_SHA256: Final = select(*_COLUMNS).where(
    invitations.c.tenant_id == bindparam("tenant"), invitations.c.sha256 == bindparam("hash")
)
_PUT: Final = insert(invitations)
_REPLACE: Final = _PUT.on_conflict_do_update(
    constraint=invitations.primary_key,
    set_={
        name: _PUT.excluded[name] for name in StoredInvitation.__struct_fields__ if name not in {"tenant_id", "user_id"}
    },
)
_DELETE: Final = delete(invitations).where(
    invitations.c.tenant_id == bindparam("tenant"), invitations.c.user_id == bindparam("user")
)
# One that a new password or a suspension has ended cannot be accepted, and is not open.
_OPEN: Final = (
    select(*_COLUMNS)
    .join(users, (users.c.tenant_id == invitations.c.tenant_id) & (users.c.id == invitations.c.user_id))
    .where(
        invitations.c.tenant_id == bindparam("tenant"), invitations.c.tokens_valid_after == users.c.tokens_valid_after
    )
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


async def list_open(
    connection: AsyncConnection,
    tenant_id: str,
    page: Page,
    *,
    now: int,
    status: InvitationStatus | None,
    user_id: str | None,
) -> tuple[Sequence[StoredInvitation], int]:
    """Return a page of the open invitations, in the order in which they expire, and their total."""
    matching: Select[tuple[object, ...]] = matching_users(_OPEN, page.search)
    if user_id is not None:
        matching = matching.where(invitations.c.user_id == user_id)
    if status is not None:
        is_pending = invitations.c.expires_at > now
        matching = matching.where(is_pending if status == "Pending" else ~is_pending)
    values = {"tenant": tenant_id}
    total = await connection.scalar(select(func.count()).select_from(matching.subquery()), values)
    order = (invitations.c.expires_at, invitations.c.user_id)
    statement = matching.order_by(*order).limit(page.size).offset(page.offset)
    rows = (await connection.execute(statement, values)).mappings()
    return [StoredInvitation(**row) for row in rows], total or 0
