"""Invitations to organizations in PostgreSQL: of a link only the hash is stored."""

import hashlib
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Text,
    any_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.email_addresses import is_same_mailbox
from identity_common.failures import duplicate
from identity_common.paging import Page
from identity_common.search import identity_key
from identity_common.stores.database import PagedList, refusals
from identity_common.wire.events import UserState
from template_service.organization_invitations.rules import Invitation, InvitationStatus
from template_service.roles.store import Named
from template_service.schema import known_users, organization_invitations, organizations, roles

_REFUSALS: Final = {
    "organization_invitations_pending_unique": lambda: duplicate(
        message="This e-mail address has a pending invitation to the organization."
    )
}


class InvitationWithRoles(NamedTuple):
    """An invitation, and those of its roles that users can still get, by name."""

    invitation: Invitation
    roles: tuple[Named, ...]


class OpenedInvitation(NamedTuple):
    """An invitation as its link shows it.

    Attributes:
        organization: Name of the organization.
        inviter: Name of the user who invites; None if none does, or has no name.
    """

    invitation: Invitation
    organization: str
    inviter: str | None


_INVITATIONS: Final = organization_invitations.c
_TENANT: Final = bindparam("tenant", type_=Text)
_ID: Final = bindparam("of", type_=Text)
_NOW: Final = bindparam("now", type_=BigInteger)
_COLUMNS: Final = tuple(_INVITATIONS[name] for name in Invitation.__struct_fields__)
_BY_ID: Final = (_INVITATIONS.tenant_id == _TENANT, _INVITATIONS.id == _ID)

# A role that was deleted, or is for applications by now, is not given to anyone.
_GIVEN: Final = (roles.c.tenant_id == _INVITATIONS.tenant_id, roles.c.type == "User")
_NAMED: Final = func.json_build_object("id", roles.c.id, "name", roles.c.name)
_ROLES: Final = (
    select(
        func.coalesce(
            cast(func.json_agg(aggregate_order_by(_NAMED, roles.c.sort_key, roles.c.name, roles.c.id)), Text), "[]"
        )
    )
    .where(*_GIVEN, roles.c.id == any_(_INVITATIONS.role_ids))
    .correlate(organization_invitations)
    .scalar_subquery()
)
_FIND: Final = select(*_COLUMNS, _ROLES.label("roles")).where(*_BY_ID)
_LIST: Final = PagedList(
    select(*_COLUMNS, _ROLES.label("roles"))
    .where(_INVITATIONS.tenant_id == _TENANT)
    .order_by(_INVITATIONS.invitee_key, _INVITATIONS.id),
    searched=(_INVITATIONS.invitee,),
)
_LOCK: Final = select(*_COLUMNS).where(*_BY_ID).with_for_update()
_OF_LINK: Final = (
    select(*_COLUMNS, organizations.c.name, known_users.c.name)
    .join(
        organizations,
        (organizations.c.tenant_id == _INVITATIONS.tenant_id) & (organizations.c.id == _INVITATIONS.organization_id),
    )
    .outerjoin(
        known_users,
        (known_users.c.tenant_id == _INVITATIONS.tenant_id) & (known_users.c.id == _INVITATIONS.inviter_id),
    )
    .where(_INVITATIONS.tenant_id == _TENANT, _INVITATIONS.link_sha256 == bindparam("sha256", type_=Text))
)
_IS_OF_LINK: Final = select(_INVITATIONS.id).where(*_BY_ID, _INVITATIONS.link_sha256 == bindparam("sha256", type_=Text))
_EXPIRE: Final = (
    update(organization_invitations)
    .where(
        _INVITATIONS.tenant_id == _TENANT,
        _INVITATIONS.organization_id == bindparam("organization", type_=Text),
        _INVITATIONS.invitee_key == bindparam("key", type_=Text),
        _INVITATIONS.status == "Pending",
        _INVITATIONS.expires_at <= _NOW,
    )
    .values(status="Expired", link_sha256=None)
)
_PENDING_INVITEES: Final = (
    select(_INVITATIONS.invitee)
    .distinct()
    .where(
        _INVITATIONS.tenant_id == _TENANT,
        _INVITATIONS.invitee_key == bindparam("key", type_=Text),
        _INVITATIONS.status == "Pending",
        _INVITATIONS.expires_at > _NOW,
    )
)
_INSERT: Final = insert(organization_invitations)
_DECIDE: Final = (
    update(organization_invitations)
    .where(*_BY_ID)
    .values(
        status=bindparam("new_status", type_=Text),
        accepted_user_id=bindparam("user", type_=Text),
        updated_at=_NOW,
        link_sha256=None,
    )
)
_RENEW: Final = text(
    """
    UPDATE organization_invitations SET link_sha256 = :sha256, updated_at = :now,
        sent_at = ARRAY[:now]
    WHERE tenant_id = :tenant AND id = :of
    """
).bindparams(_TENANT, _ID, _NOW, bindparam("sha256", type_=Text))
_DELETE: Final = delete(organization_invitations).where(*_BY_ID)
_ERASE: Final = delete(organization_invitations).where(
    _INVITATIONS.tenant_id == _TENANT, _INVITATIONS.accepted_user_id == any_(bindparam("ids", type_=ARRAY(Text)))
)
_SINCE: Final = bindparam("since", type_=BigInteger)
_UNTIL: Final = bindparam("until", type_=BigInteger)
_COUNT_MAIL: Final = text(
    """
    INSERT INTO mailed_invitees AS mailed (tenant_id, sha256, sent_at, expires_at)
    VALUES (:tenant, :sha256, ARRAY[:now], :until)
    ON CONFLICT (tenant_id, sha256) DO UPDATE SET expires_at = excluded.expires_at,
        sent_at = ARRAY(SELECT sent FROM unnest(mailed.sent_at) AS sent WHERE sent > :since) || excluded.sent_at
    RETURNING cardinality(sent_at)
    """
).bindparams(_TENANT, _NOW, _SINCE, _UNTIL, bindparam("sha256", type_=Text))
_FORGET_MAILED: Final = text(
    """
    DELETE FROM mailed_invitees WHERE tenant_id = :tenant AND sha256 IN (
        SELECT sha256 FROM mailed_invitees WHERE tenant_id = :tenant AND expires_at <= :now FOR UPDATE SKIP LOCKED
    )
    """
).bindparams(_TENANT, _NOW)
_LOCK_GIVEN: Final = text(
    """
    SELECT found.id FROM (SELECT id COLLATE "C" FROM unnest(:ids) AS id ORDER BY 1) AS requested (id), LATERAL (
        SELECT id FROM roles WHERE tenant_id = :tenant AND id = requested.id AND type = 'User' FOR KEY SHARE
    ) AS found
    """
).bindparams(_TENANT, bindparam("ids", type_=ARRAY(Text)))
_LOCK_USER: Final = (
    select(known_users.c.state)
    .where(known_users.c.tenant_id == _TENANT, known_users.c.id == _ID)
    .with_for_update(read=True)
)
_decode_roles: Final = msgspec.json.Decoder(tuple[Named, ...]).decode
_decode_user: Final = msgspec.json.Decoder(UserState).decode


def _with_roles(row: Any) -> InvitationWithRoles:
    *columns, held = row
    return InvitationWithRoles(_invitation(columns), _decode_roles(held))


def _opened(row: Any) -> OpenedInvitation:
    *columns, organization, inviter = row
    return OpenedInvitation(_invitation(columns), organization, inviter)


def _invitation(columns: Collection[Any]) -> Invitation:
    return Invitation(**dict(zip(Invitation.__struct_fields__, columns, strict=True)))


async def insert_invitation(connection: AsyncConnection, invitation: Invitation) -> None:
    """Store a new invitation; earlier ones of the address to the organization that have expired make room.

    Raises:
        Conflict: The address has a pending invitation to the organization.
    """
    key = identity_key(invitation.invitee)
    values = {"tenant": invitation.tenant_id, "organization": invitation.organization_id, "key": key}
    await connection.execute(_EXPIRE, {**values, "now": invitation.created_at})
    with refusals(_REFUSALS):
        await connection.execute(_INSERT, structs.asdict(invitation) | {"invitee_key": key})


async def find_invitation(
    connection: AsyncConnection, tenant_id: str, invitation_id: str
) -> InvitationWithRoles | None:
    """Return an invitation; None if there is none."""
    row = (await connection.execute(_FIND, {"tenant": tenant_id, "of": invitation_id})).one_or_none()
    return None if row is None else _with_roles(row)


async def lock_invitation(connection: AsyncConnection, tenant_id: str, invitation_id: str) -> Invitation | None:
    """Return an invitation, locked until the transaction ends; None if there is none."""
    row = (await connection.execute(_LOCK, {"tenant": tenant_id, "of": invitation_id})).one_or_none()
    return None if row is None else _invitation(row)


async def find_by_link(connection: AsyncConnection, tenant_id: str, sha256: str) -> OpenedInvitation | None:
    """Return the invitation with this link; None if there is none."""
    row = (await connection.execute(_OF_LINK, {"tenant": tenant_id, "sha256": sha256})).one_or_none()
    return None if row is None else _opened(row)


async def has_link(connection: AsyncConnection, tenant_id: str, invitation_id: str, sha256: str) -> bool:
    """Return whether this is the link of an invitation."""
    values = {"tenant": tenant_id, "of": invitation_id, "sha256": sha256}
    return await connection.scalar(_IS_OF_LINK, values) is not None


async def store_decision(
    connection: AsyncConnection,
    tenant_id: str,
    invitation_id: str,
    status: InvitationStatus,
    *,
    user_id: str | None,
    now: int,
) -> None:
    """Store a new status, which ends the link."""
    values = {"tenant": tenant_id, "of": invitation_id, "new_status": status, "user": user_id, "now": now}
    await connection.execute(_DECIDE, values)


async def store_link(
    connection: AsyncConnection, tenant_id: str, invitation_id: str, sha256: str, *, now: int
) -> OpenedInvitation:
    """Store a new link in place of the earlier one; return what it opens."""
    values = {"tenant": tenant_id, "sha256": sha256}
    await connection.execute(_RENEW, {**values, "of": invitation_id, "now": now})
    return _opened((await connection.execute(_OF_LINK, values)).one())


async def is_invited(connection: AsyncConnection, tenant_id: str, address: str, *, now: int) -> bool:
    """Return whether an e-mail address has a pending invitation."""
    values = {"tenant": tenant_id, "key": identity_key(address), "now": now}
    invitees = await connection.scalars(_PENDING_INVITEES, values)
    return any(is_same_mailbox(invitee, address) for invitee in invitees)


async def delete_invitation(connection: AsyncConnection, tenant_id: str, invitation_id: str) -> bool:
    """Delete an invitation; return whether it existed."""
    return bool((await connection.execute(_DELETE, {"tenant": tenant_id, "of": invitation_id})).rowcount)


async def erase_accepted(connection: AsyncConnection, tenant_id: str, user_ids: Collection[str]) -> None:
    """Delete the invitations that deleted users had accepted: they hold their addresses."""
    await connection.execute(_ERASE, {"tenant": tenant_id, "ids": list(user_ids)})


async def count_mail(connection: AsyncConnection, tenant_id: str, invitee: str, *, now: int, window_ms: int) -> int:
    """Count a mail to an address; return how many it has had in the window, with this one.

    The address stays locked until the transaction ends, so that concurrent requests count each other's mail. Deleted
    invitations count, too: addresses are kept apart from them, as hashes, and for the length of the window.
    """
    sha256 = hashlib.sha256(identity_key(invitee).encode()).hexdigest()
    values = {"tenant": tenant_id, "sha256": sha256, "now": now, "since": now - window_ms, "until": now + window_ms}
    counted = int((await connection.execute(_COUNT_MAIL, values)).scalar_one())
    await connection.execute(_FORGET_MAILED, {"tenant": tenant_id, "now": now})  # last: nothing is waited for after it
    return counted


async def lock_given_roles(connection: AsyncConnection, tenant_id: str, role_ids: Collection[str]) -> list[str]:
    """Return which of these roles users can still get, locked against deletion until the transaction ends."""
    return list(await connection.scalars(_LOCK_GIVEN, {"tenant": tenant_id, "ids": list(role_ids)}))


async def lock_user(connection: AsyncConnection, tenant_id: str, user_id: str) -> UserState | None:
    """Return a user, locked against changes until the transaction ends; None if it is unknown."""
    state = await connection.scalar(_LOCK_USER, {"tenant": tenant_id, "of": user_id})
    return None if state is None else _decode_user(state)


async def list_invitations(
    connection: AsyncConnection,
    tenant_id: str,
    page: Page,
    *,
    organization_id: str | None,
    invitee: str | None,
    inviter_id: str | None,
    status: InvitationStatus | None,
    now: int,
) -> tuple[list[InvitationWithRoles], int]:
    """Return a page of the invitations by address and then id, and their total; None does not filter."""
    values: dict[str, object] = {"tenant": tenant_id}
    conditions: list[ColumnElement[bool]] = []
    if organization_id is not None:
        conditions.append(_INVITATIONS.organization_id == organization_id)
    if invitee is not None:
        conditions.append(_INVITATIONS.invitee_key == identity_key(invitee))
    if inviter_id is not None:
        conditions.append(_INVITATIONS.inviter_id == inviter_id)
    if status is not None:
        conditions.append(_has_status(status, now))
    rows, total = await _LIST.fetch(connection, values, page, where=conditions)
    return [_with_roles(row) for row in rows], total


def _has_status(status: InvitationStatus, now: int) -> ColumnElement[bool]:
    """Return the condition that an invitation has this status at a time."""
    is_pending = (_INVITATIONS.status == "Pending") & (_INVITATIONS.expires_at > now)
    if status == "Pending":
        return is_pending
    if status == "Expired":
        return _INVITATIONS.status.in_(["Pending", "Expired"]) & ~is_pending
    return _INVITATIONS.status == status
