"""Organizations in PostgreSQL."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import (
    JSON,
    ColumnElement,
    Integer,
    Select,
    Subquery,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.names import canonical_name
from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.stores.lookups import Lookups, key_lookup
from stead.event_types import MemberType
from template_service.schema import known_users, members, organizations

MAX_FEATURED: Final = 3


class Organization(msgspec.Struct, frozen=True):
    """An organization as stored.

    Attributes:
        custom_data: A JSON object; ``color`` and ``branding`` too.
    """

    tenant_id: str
    id: str
    name: str
    created_at: int
    description: str | None = None
    custom_data: str = "{}"
    is_mfa_required: bool = False
    color: str = "{}"
    branding: str = "{}"
    custom_css: str | None = None


class FeaturedUser(msgspec.Struct, frozen=True):
    """A user shown as an example of an organization's members.

    Attributes:
        id: Id of the user.
        name: Full name.
        avatar: URL of a picture.
    """

    id: str
    name: str | None
    avatar: str | None


class Featured(msgspec.Struct, frozen=True):
    """A summary of the users of an organization.

    Attributes:
        users_count: The number of members that are users.
        users: At most three of them, with the lowest ids.
    """

    users_count: int
    users: tuple[FeaturedUser, ...]


_COLUMNS: Final = tuple(organizations.c[name] for name in Organization.__struct_fields__)
_BY_ID: Final = (
    organizations.c.tenant_id == bindparam("tenant"),
    organizations.c.id == bindparam("organization"),
)
_FIND: Final = select(*_COLUMNS).where(*_BY_ID)
_LOOK_UP: Final = key_lookup(_FIND)
_LOCK: Final = _FIND.with_for_update(key_share=True)
_UPDATE: Final = update(organizations).where(*_BY_ID)
_DELETE: Final = delete(organizations).where(*_BY_ID)
_ALL: Final = (
    select(*_COLUMNS)
    .where(organizations.c.tenant_id == bindparam("tenant"))
    .order_by(organizations.c.sort_key, organizations.c.name, organizations.c.id)
)
_SEARCHED: Final = (organizations.c.id, organizations.c.name, organizations.c.description)
_LIST: Final = PagedList(_ALL, searched=_SEARCHED)
_CALLED: Final = (
    select(organizations.c.id, organizations.c.name)
    .where(
        organizations.c.tenant_id == bindparam("tenant"),
        or_(
            organizations.c.id == bindparam("id", type_=Text),
            (organizations.c.sort_key == func.name_sort_key(bindparam("name", type_=Text)))
            & (organizations.c.name == bindparam("name", type_=Text)),
        ),
    )
    .order_by((organizations.c.id == bindparam("id", type_=Text)).desc(), organizations.c.id)
    .limit(bindparam("most", type_=Integer))
)


def _with_featured(page: Subquery) -> Select[Any]:
    """Return a statement that selects the organizations of a page with a summary of the users of each."""
    users = (
        members.c.tenant_id == page.c.tenant_id,
        members.c.organization_id == page.c.id,
        members.c.member_type == literal("user"),
    )
    listed_in = page.c.tenant_id + "/" + page.c.id + "/user"
    count = select(func.count()).select_from(members).where(members.c.listed_in == listed_in).scalar_subquery()
    first = (
        select(known_users.c.id, known_users.c.name, known_users.c.state)
        .join(
            members,
            (members.c.tenant_id == known_users.c.tenant_id) & (members.c.member_id == known_users.c.id),
        )
        .where(*users)
        .order_by(members.c.member_id)
        .limit(MAX_FEATURED)
        .correlate(page)
        .subquery()
    )
    avatar = cast(first.c.state, JSON)["avatar"].as_string()
    featured = func.json_build_object("id", first.c.id, "name", first.c.name, "avatar", avatar)
    together = func.coalesce(cast(func.json_agg(aggregate_order_by(featured, first.c.id)), Text), "[]")
    return select(
        *(page.c[column.name] for column in _COLUMNS),
        count.label("users_count"),
        select(together).scalar_subquery().label("featured_users"),
    ).order_by(page.c.sort_key, page.c.name, page.c.id)


def _is_member(member_type: MemberType) -> ColumnElement[bool]:
    """Return the condition that the parameter named ``member_type`` is a member of the enclosing organization."""
    return (
        select(members.c.member_id)
        .where(
            members.c.tenant_id == organizations.c.tenant_id,
            members.c.organization_id == organizations.c.id,
            members.c.member_id == bindparam(member_type),
            members.c.member_type == literal(member_type),
        )
        .correlate(organizations)
        .exists()
    )


_LIST_WITH_FEATURED: Final = PagedList(
    _ALL.add_columns(organizations.c.sort_key), searched=_SEARCHED, completed=_with_featured
)
_decode_featured = msgspec.json.Decoder(tuple[FeaturedUser, ...]).decode


async def insert_organization(connection: AsyncConnection, organization: Organization) -> None:
    """Store a new organization."""
    await connection.execute(insert(organizations), msgspec.structs.asdict(organization))


async def find_organization(lookups: Lookups, tenant_id: str, organization_id: str) -> Organization | None:
    """Return an organization, or none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, organization_id)
    return Organization(*rows[0]) if rows else None


async def lock_organization(connection: AsyncConnection, tenant_id: str, organization_id: str) -> Organization | None:
    """Return an organization, locked against changes until the transaction ends; or none."""
    values = {"tenant": tenant_id, "organization": organization_id}
    row = (await connection.execute(_LOCK, values)).one_or_none()
    return None if row is None else Organization(*row)


async def update_organization(connection: AsyncConnection, organization: Organization) -> None:
    """Store a changed organization."""
    values = msgspec.structs.asdict(organization)
    by_id = {"tenant": values.pop("tenant_id"), "organization": values.pop("id")}
    await connection.execute(_UPDATE.values(values), by_id)


async def delete_organization(connection: AsyncConnection, tenant_id: str, organization_id: str) -> bool:
    """Delete an organization; return whether it existed. Its members stay, ignored, until the fan-out."""
    values = {"tenant": tenant_id, "organization": organization_id}
    return bool((await connection.execute(_DELETE, values)).rowcount)


async def list_organizations(
    connection: AsyncConnection,
    tenant_id: str,
    page: Page,
    *,
    with_featured: bool,
    without: Mapping[MemberType, str | None],
) -> tuple[list[tuple[Organization, Featured | None]], int]:
    """Return a page of the organizations, by name and then id, and their total.

    Args:
        connection: To the database.
        tenant_id: The tenant.
        page: The part to return.
        with_featured: Include a summary of the users of each.
        without: Only organizations that this user or application is not a member of; None does not filter.
    """
    parameters, conditions = {"tenant": tenant_id}, []
    for member_type, member_id in without.items():
        if member_id is not None:
            conditions.append(~_is_member(member_type))
            parameters[member_type] = member_id
    listed = _LIST_WITH_FEATURED if with_featured else _LIST
    rows, total = await listed.fetch(connection, parameters, page, where=conditions)
    found: list[tuple[Organization, Featured | None]] = []
    for row in rows:
        featured = Featured(row.users_count, _decode_featured(row.featured_users)) if with_featured else None
        found.append((Organization(*row[: len(_COLUMNS)]), featured))
    return found, total


async def ids_called(connection: AsyncConnection, tenant_id: str, text: str, *, limit: int) -> list[str]:
    """Return the organization with this id, or else those with this name."""
    values = {"tenant": tenant_id, "id": text, "name": canonical_name(text), "most": limit}
    found = [row.id for row in await connection.execute(_CALLED, values)]
    return [text] if text in found else found
