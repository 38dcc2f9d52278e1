"""Invitations in PostgreSQL: only a hash of the value is stored."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs
from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from management_service.invitations.rules import InvitationStatus, StoredInvitation
from management_service.schema import invitations, users
from management_service.users.store import conditions_of

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
_OPEN: Final = PagedList(
    select(*_COLUMNS)
    .join(users, (users.c.tenant_id == invitations.c.tenant_id) & (users.c.id == invitations.c.user_id))
    .where(
        invitations.c.tenant_id == bindparam("tenant"), invitations.c.tokens_valid_after == users.c.tokens_valid_after
    )
    .order_by(invitations.c.expires_at, invitations.c.user_id)
)


async def find_invitation(connection: AsyncConnection, tenant_id: str, sha256: str) -> StoredInvitation | None:
    """Return the invitation with this hash; None if there is none."""
    row = (await connection.execute(_BY_SHA256, {"tenant": tenant_id, "hash": sha256})).one_or_none()
    return None if row is None else StoredInvitation(*row)


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
    conditions = [*conditions_of(page.search)]
    if user_id is not None:
        conditions.append(invitations.c.user_id == user_id)
    if status is not None:
        is_pending = invitations.c.expires_at > now
        conditions.append(is_pending if status == "Pending" else ~is_pending)
    rows, total = await _OPEN.fetch(connection, {"tenant": tenant_id}, page, where=conditions)
    return [StoredInvitation(*row) for row in rows], total
