"""The roles of users and machine-to-machine applications, in PostgreSQL."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import insert as insert_or_ignore
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.wire.events import HolderKind, RoleType
from management_service.applications import store as application_store
from management_service.applications.store import Application
from management_service.roles import store as role_store
from management_service.roles.store import ROLE_COLUMNS, Role
from management_service.schema import application_roles, applications, roles, user_roles, users
from management_service.users import store as user_store
from management_service.users.store import User


class _Kind(NamedTuple):
    """The tables of one kind of holder."""

    holders: Table
    relation: Table
    holder_id: Column[str]


_KINDS: Final[dict[HolderKind, _Kind]] = {
    "user": _Kind(users, user_roles, user_roles.c.user_id),
    "application": _Kind(applications, application_roles, application_roles.c.application_id),
}
_TENANT: Final = bindparam("tenant", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))


async def lock_holders(
    connection: AsyncConnection, tenant_id: str, kind: HolderKind, holder_ids: Collection[str]
) -> list[str]:
    """Return the holders that exist, locked against changes of their roles until the transaction ends.

    Locked in the order of ids, and always before roles, so that two transactions cannot deadlock.
    """
    table = _KINDS[kind].holders
    statement = (
        select(table.c.id)
        .where(table.c.tenant_id == _TENANT, table.c.id == any_(_IDS))
        .order_by(table.c.id)
        .with_for_update(key_share=True)
    )
    return list(await connection.scalars(statement, {"tenant": tenant_id, "ids": list(holder_ids)}))


async def count_machine_to_machine(
    connection: AsyncConnection, tenant_id: str, application_ids: Collection[str]
) -> int:
    """Return how many of these applications are of the type ``MachineToMachine``."""
    statement = (
        select(func.count())
        .select_from(applications)
        .where(
            applications.c.tenant_id == _TENANT,
            applications.c.id == any_(_IDS),
            applications.c.type == literal("MachineToMachine"),
        )
    )
    return await connection.scalar(statement, {"tenant": tenant_id, "ids": list(application_ids)}) or 0


async def lock_roles(connection: AsyncConnection, tenant_id: str, role_ids: Collection[str]) -> dict[str, RoleType]:
    """Return the types of these roles by id, locked against deletion until the transaction ends."""
    statement = (
        select(roles.c.id, roles.c.type)
        .where(roles.c.tenant_id == _TENANT, roles.c.id == any_(_IDS))
        .order_by(roles.c.id)
        .with_for_update(read=True, key_share=True)
    )
    rows = await connection.execute(statement, {"tenant": tenant_id, "ids": list(role_ids)})
    return {row.id: row.type for row in rows}


async def role_ids_of(
    connection: AsyncConnection, tenant_id: str, kind: HolderKind, holder_ids: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the sorted role ids of each of these holders; empty for a holder without roles."""
    _, relation, holder_id = _KINDS[kind]
    statement = (
        select(holder_id, relation.c.role_id)
        .where(relation.c.tenant_id == _TENANT, holder_id == any_(_IDS))
        .order_by(holder_id, relation.c.role_id)
    )
    found: dict[str, list[str]] = {holder: [] for holder in holder_ids}
    for holder, role_id in await connection.execute(statement, {"tenant": tenant_id, "ids": list(holder_ids)}):
        found[holder].append(role_id)
    return {holder: tuple(role_ids) for holder, role_ids in found.items()}


async def add(
    connection: AsyncConnection, tenant_id: str, kind: HolderKind, holder_ids: Sequence[str], role_ids: Sequence[str]
) -> None:
    """Give each of these holders each of these roles."""
    _, relation, holder_id = _KINDS[kind]
    rows = [
        {"tenant_id": tenant_id, holder_id.name: holder, "role_id": role_id}
        for holder in holder_ids
        for role_id in role_ids
    ]
    if rows:
        await connection.execute(insert_or_ignore(relation).on_conflict_do_nothing(), rows)


async def remove(
    connection: AsyncConnection,
    tenant_id: str,
    kind: HolderKind,
    holder_ids: Collection[str],
    role_ids: Collection[str],
) -> None:
    """Take each of these roles from each of these holders."""
    _, relation, holder_id = _KINDS[kind]
    statement = delete(relation).where(
        relation.c.tenant_id == _TENANT,
        holder_id == any_(bindparam("holders", type_=ARRAY(Text))),
        relation.c.role_id == any_(bindparam("roles", type_=ARRAY(Text))),
    )
    await connection.execute(statement, {"tenant": tenant_id, "holders": list(holder_ids), "roles": list(role_ids)})


async def holder_ids_of(connection: AsyncConnection, tenant_id: str, kind: HolderKind, role_id: str) -> set[str]:
    """Return the ids of the holders of a role."""
    _, relation, holder_id = _KINDS[kind]
    statement = select(holder_id).where(relation.c.tenant_id == _TENANT, relation.c.role_id == bindparam("role"))
    return set(await connection.scalars(statement, {"tenant": tenant_id, "role": role_id}))


async def list_roles_of(
    connection: AsyncConnection, tenant_id: str, kind: HolderKind, holder: str, page: Page
) -> tuple[list[Role], int]:
    """Return a page of a holder's roles, by name, and their total."""
    rows, total = await _ROLES_OF[kind].fetch(connection, {"tenant": tenant_id, "holder": holder}, page)
    return [Role(*row) for row in rows], total


def _roles_of(kind: HolderKind) -> Select[Any]:
    _, relation, holder_id = _KINDS[kind]
    return (
        select(*ROLE_COLUMNS)
        .join(relation, (relation.c.tenant_id == roles.c.tenant_id) & (relation.c.role_id == roles.c.id))
        .where(relation.c.tenant_id == _TENANT, holder_id == bindparam("holder"))
        .order_by(roles.c.sort_key, roles.c.name, roles.c.id)
    )


_ROLES_OF: Final = {kind: PagedList(_roles_of(kind), searched=role_store.SEARCHED) for kind in _KINDS}


def _holders_of(kind: HolderKind, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    holders, relation, holder_id = _KINDS[kind]
    return (
        select(*columns)
        .join(relation, (relation.c.tenant_id == holders.c.tenant_id) & (holder_id == holders.c.id))
        .where(relation.c.tenant_id == _TENANT, relation.c.role_id == bindparam("role"))
        .order_by(holders.c.sort_key, holders.c.name, holders.c.id)
    )


_USERS_OF: Final = PagedList(_holders_of("user", user_store.COLUMNS))
_APPLICATIONS_OF: Final = PagedList(
    _holders_of("application", application_store.COLUMNS), searched=application_store.SEARCHED
)


async def list_users_of(
    connection: AsyncConnection, tenant_id: str, role_id: str, page: Page
) -> tuple[list[User], int]:
    """Return a page of the users that hold a role, by name and then id, and their total."""
    conditions = user_store.conditions_of(page.search)
    rows, total = await _USERS_OF.fetch(connection, {"tenant": tenant_id, "role": role_id}, page, where=conditions)
    return [user_store.user_from(row) for row in rows], total


async def list_applications_of(
    connection: AsyncConnection, tenant_id: str, role_id: str, page: Page
) -> tuple[list[Application], int]:
    """Return a page of the applications that hold a role, by name and then id, and their total."""
    rows, total = await _APPLICATIONS_OF.fetch(connection, {"tenant": tenant_id, "role": role_id}, page)
    return [application_store.application_from(row) for row in rows], total
