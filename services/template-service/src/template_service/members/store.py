"""Members and their roles, in PostgreSQL. Every write is one statement, however many rows it has.

Members of a deleted organization and assignments of a deleted role stay in the tables until the fan-out deletes them;
every read joins the organizations and roles, and so ignores them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    Subquery,
    Table,
    Text,
    TextClause,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.selectable import LateralFromClause

from identity_common.names import canonical_name
from identity_common.paging import Page
from identity_common.search import search_term
from identity_common.stores.database import PagedList
from identity_common.stores.lookups import KeyLookup
from identity_common.wire.events import ApplicationState, UserState
from stead.event_types import MemberType, OrganizationRoleType
from template_service.organizations.store import Organization
from template_service.roles.store import Named, OrganizationRole
from template_service.schema import known_applications, known_users, member_roles, members, organizations, roles


class HeldRole(Named, frozen=True):
    """A role that a member holds, in short.

    Attributes:
        origins: Why, sorted: ``manual`` if an administrator or an invitation gave it, ``jit`` if joining just in time
            did, and the id of each connector whose groups give it.
    """

    origins: tuple[str, ...]


class Member(NamedTuple):
    """A member with its roles.

    Attributes:
        state: A UserState or ApplicationState as JSON.
        roles: By name.
    """

    state: str
    roles: tuple[HeldRole, ...]


class HeldRoles(NamedTuple):
    """A member with the ids of its roles, sorted.

    Attributes:
        joined_at: See ``MemberState``.
        rejoined: See ``MemberState``.
    """

    member_id: str
    joined_at: int
    rejoined: bool
    role_ids: tuple[str, ...]


class RoleOfMember(NamedTuple):
    """A role that a member holds.

    Attributes:
        origins: Why, sorted: ``manual``, ``jit``, ids of connectors.
    """

    role: OrganizationRole
    origins: tuple[str, ...]


class Membership(NamedTuple):
    """An organization, and the roles that a member holds in it, by name."""

    organization: Organization
    roles: tuple[HeldRole, ...]


class LockedRoles(NamedTuple):
    """Roles that are locked against deletion until the transaction ends."""

    ids: frozenset[str]
    names: frozenset[str]
    types: frozenset[OrganizationRoleType]


_TENANT: Final = bindparam("tenant", type_=Text)
_ORGANIZATION: Final = bindparam("organization", type_=Text)
_TYPE: Final = bindparam("type", type_=Text)
_MEMBER: Final = bindparam("member", type_=Text)
_ROLE: Final = bindparam("role", type_=Text)
_OTHER_ROLE: Final = bindparam("other_role", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))
_ROLES: Final = bindparam("roles", type_=ARRAY(Text))

_LOCK_ORGANIZATION: Final = (
    select(organizations.c.id)
    .where(organizations.c.tenant_id == _TENANT, organizations.c.id == _ORGANIZATION)
    .with_for_update(read=True, key_share=True)
)
_CLAIM_ORGANIZATION: Final = _LOCK_ORGANIZATION.with_for_update(key_share=True)

# A LATERAL subquery with a lock or OFFSET 0 is not flattened: each row is looked up by its key. While the statistics
# predate the growth of an organization, the planner expects one row on each side of a join, and would compare every
# member with every user. An added member copies the name of its user or application: FOR SHARE delays a change of the
# name until the new member is visible to the trigger that copies it.
_LOCK_KNOWN: Final[Mapping[MemberType, TextClause]] = {
    "user": text(
        """
        SELECT known.id, true AS fits FROM unnest(:ids) AS requested (id), LATERAL (
            SELECT id FROM known_users WHERE tenant_id = :tenant AND id = requested.id FOR SHARE
        ) AS known
        """
    ).bindparams(_TENANT, _IDS),
    "application": text(
        """
        SELECT known.id, known.type = 'MachineToMachine' AS fits FROM unnest(:ids) AS requested (id), LATERAL (
            SELECT id, type FROM known_applications WHERE tenant_id = :tenant AND id = requested.id FOR SHARE
        ) AS known
        """
    ).bindparams(_TENANT, _IDS),
}
_ADD: Final = text(
    """
    INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at)
    SELECT :tenant, :organization, id, :type, :now FROM unnest(:ids) AS id
    ON CONFLICT DO NOTHING RETURNING member_id
    """
).bindparams(_TENANT, _ORGANIZATION, _TYPE, _IDS, bindparam("now", type_=BigInteger))
_STAY: Final = text(
    """
    UPDATE members SET by_groups = false WHERE ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest(:ids) AS requested (id), LATERAL (
            SELECT ctid FROM members WHERE tenant_id = :tenant AND organization_id = :organization
                AND member_id = requested.id AND member_type = :type AND by_groups FOR NO KEY UPDATE
        ) AS found
    ))
    """
).bindparams(_TENANT, _ORGANIZATION, _TYPE, _IDS)
_MARK_REJOINED: Final = text(
    """
    UPDATE members SET rejoined = true
    WHERE tenant_id = :tenant AND organization_id = :organization AND member_id = ANY(:ids)
    """
).bindparams(_TENANT, _ORGANIZATION, _IDS)
_ALL: Final = text(
    """
    SELECT member_id FROM members
    WHERE tenant_id = :tenant AND organization_id = :organization AND member_type = :type
    """
).bindparams(_TENANT, _ORGANIZATION, _TYPE)
_NEXT_IDS: Final = text(
    """
    SELECT member_id FROM members
    WHERE tenant_id = :tenant AND organization_id = :organization AND member_type = :type AND member_id > :after
        AND EXISTS (SELECT FROM organizations WHERE tenant_id = :tenant AND id = :organization OFFSET 0)
    ORDER BY member_id LIMIT :limit
    """
).bindparams(_TENANT, _ORGANIZATION, _TYPE, bindparam("after", type_=Text), bindparam("limit", type_=BigInteger))
_REMOVE: Final = text(
    """
    DELETE FROM members WHERE ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest(:ids) AS requested (id), LATERAL (
            SELECT ctid FROM members WHERE tenant_id = :tenant AND organization_id = :organization
                AND member_id = requested.id AND member_type = :type FOR UPDATE
        ) AS found
    )) RETURNING member_id
    """
).bindparams(_TENANT, _ORGANIZATION, _TYPE, _IDS)
_LOCK: Final = text(
    """
    SELECT found.member_id FROM unnest(:ids) AS requested (id), LATERAL (
        SELECT member_id FROM members WHERE tenant_id = :tenant AND organization_id = :organization
            AND member_id = requested.id AND member_type = :type FOR NO KEY UPDATE
    ) AS found
    """
).bindparams(_TENANT, _ORGANIZATION, _TYPE, _IDS)
_LOCK_ROLES: Final = text(
    """
    SELECT found.id, found.name, found.type FROM (
        SELECT id COLLATE "C" FROM unnest(:ids) AS id
        UNION
        SELECT coalesce(
            (SELECT id FROM roles WHERE tenant_id = :tenant AND name = requested.name),
            (SELECT id FROM roles WHERE tenant_id = :tenant AND name = requested.canonical)
        ) FROM unnest(:names, :canonical) AS requested (name, canonical)
        ORDER BY 1
    ) AS requested (id), LATERAL (
        SELECT id, name, type FROM roles WHERE tenant_id = :tenant AND id = requested.id FOR KEY SHARE
    ) AS found
    """
).bindparams(_TENANT, _IDS, bindparam("names", type_=ARRAY(Text)), bindparam("canonical", type_=ARRAY(Text)))
_ASSIGN: Final = text(
    """
    WITH added AS (
        INSERT INTO member_roles AS held (tenant_id, organization_id, member_id, role_id, origins)
        SELECT :tenant, :organization, member_id, role_id, ARRAY['manual']
        FROM unnest(:ids) AS member_id, unnest(:roles) AS role_id
        ON CONFLICT (tenant_id, organization_id, member_id, role_id)
            DO UPDATE SET origins = held.origins || excluded.origins WHERE NOT 'manual' = ANY(held.origins)
        RETURNING member_id
    )
    SELECT DISTINCT member_id FROM added
    """
).bindparams(_TENANT, _ORGANIZATION, _IDS, _ROLES)
# What administrators gave, and what joining gave once.
_GIVEN: Final = "origins && ARRAY['manual', 'jit']"
_ASSIGNED: Final = text(
    f"""
    SELECT role_id FROM member_roles
    WHERE tenant_id = :tenant AND organization_id = :organization AND member_id = :member AND {_GIVEN}
    """  # noqa: S608 - a constant
).bindparams(_TENANT, _ORGANIZATION, _MEMBER)
_UNASSIGN: Final = text(
    f"""
    WITH found AS (
        SELECT held.ctid, held.by_connectors FROM unnest(:roles) AS requested (id), LATERAL (
            SELECT ctid, array_remove(array_remove(origins, 'manual'), 'jit') AS by_connectors FROM member_roles
            WHERE tenant_id = :tenant AND organization_id = :organization AND member_id = :member
                AND role_id = requested.id AND {_GIVEN} FOR UPDATE
        ) AS held
    ), kept AS (
        UPDATE member_roles SET origins = found.by_connectors
        FROM found WHERE member_roles.ctid = found.ctid AND found.by_connectors <> '{{}}'
    )
    DELETE FROM member_roles USING found WHERE member_roles.ctid = found.ctid AND found.by_connectors = '{{}}'
    """  # noqa: S608 - a constant
).bindparams(_TENANT, _ORGANIZATION, _MEMBER, _ROLES)
_HELD_ROLES: Final = text(
    """
    SELECT member.member_id, member.joined_at, member.rejoined, ARRAY(
        SELECT role_id FROM member_roles AS held
        WHERE held.tenant_id = :tenant AND held.organization_id = :organization AND held.member_id = requested.member_id
            AND EXISTS (SELECT FROM roles WHERE roles.tenant_id = :tenant AND roles.id = held.role_id OFFSET 0)
        ORDER BY role_id
    ) AS role_ids
    FROM unnest(:ids) AS requested (member_id), LATERAL (
        SELECT member_id, joined_at, rejoined FROM members
        WHERE tenant_id = :tenant AND organization_id = :organization AND member_id = requested.member_id OFFSET 0
    ) AS member
    """
).bindparams(_TENANT, _ORGANIZATION, _IDS)
IS_MEMBER: Final = KeyLookup("""
    SELECT FROM members JOIN organizations ON organizations.tenant_id = $1 AND organizations.id = $2
    WHERE members.tenant_id = $1 AND organization_id = $2 AND member_type = $3 AND member_id = $4
""")


async def next_member_ids(
    connection: AsyncConnection,
    tenant_id: str,
    organization_id: str,
    member_type: MemberType,
    *,
    after: str,
    limit: int,
) -> list[str]:
    """Return the ids of members after an id, sorted; none if the organization does not exist."""
    values = {"tenant": tenant_id, "organization": organization_id, "type": member_type}
    return list(await connection.scalars(_NEXT_IDS, {**values, "after": after, "limit": limit}))


async def lock_organization(
    connection: AsyncConnection, tenant_id: str, organization_id: str, *, for_all_members: bool = False
) -> bool:
    """Lock an organization against deletion until the transaction ends; return whether it exists.

    Args:
        connection: Of the transaction.
        tenant_id: The tenant.
        organization_id: The organization.
        for_all_members: Also lock it against concurrent replacements of all its members.
    """
    statement = _CLAIM_ORGANIZATION if for_all_members else _LOCK_ORGANIZATION
    found = await connection.scalar(statement, {"tenant": tenant_id, "organization": organization_id})
    return found is not None


async def lock_known(
    connection: AsyncConnection, tenant_id: str, member_type: MemberType, ids: Collection[str]
) -> dict[str, bool]:
    """Return which of these users or applications exist, and whether each can be a member.

    They are locked against changes until the transaction ends.
    """
    rows = await connection.execute(_LOCK_KNOWN[member_type], {"tenant": tenant_id, "ids": sorted(ids)})
    return {row.id: row.fits for row in rows}


class Members:
    """The members of one organization that are of one kind, within one transaction.

    Rows are locked, added and removed in the order of the ids, so that transactions do not deadlock.
    """

    def __init__(
        self, connection: AsyncConnection, tenant_id: str, organization_id: str, member_type: MemberType
    ) -> None:
        self._connection = connection
        self._values = {"tenant": tenant_id, "organization": organization_id, "type": member_type}

    async def all(self) -> set[str]:
        """Return the ids of all members of this kind."""
        return set(await self._connection.scalars(_ALL, self._values))

    async def add(self, ids: Collection[str], *, now: int) -> list[str]:
        """Add members; return the new ones."""
        return list(await self._connection.scalars(_ADD, {**self._values, "ids": sorted(ids), "now": now}))

    async def stay(self, ids: Collection[str]) -> None:
        """Let members stay that were in the organization for their groups at a provider alone."""
        await self._connection.execute(_STAY, {**self._values, "ids": sorted(ids)})

    async def mark_rejoined(self, ids: Collection[str]) -> None:
        """Store that these members were members before."""
        await self._connection.execute(_MARK_REJOINED, {**self._values, "ids": sorted(ids)})

    async def remove(self, ids: Collection[str]) -> list[str]:
        """Remove members and their roles; return those that were members."""
        return list(await self._connection.scalars(_REMOVE, {**self._values, "ids": sorted(ids)}))

    async def lock(self, ids: Collection[str]) -> list[str]:
        """Lock the roles of these members until the transaction ends; return which of them are members."""
        return list(await self._connection.scalars(_LOCK, {**self._values, "ids": sorted(ids)}))

    async def assign(self, ids: Collection[str], role_ids: Collection[str]) -> list[str]:
        """Assign each of these roles to each of these members; return those that administrators had not given all."""
        values = {**self._values, "ids": sorted(ids), "roles": sorted(role_ids)}
        return list(await self._connection.scalars(_ASSIGN, values))

    async def assigned(self, member_id: str) -> set[str]:
        """Return the ids of the roles that a member holds otherwise than by groups alone, deleted roles included."""
        return set(await self._connection.scalars(_ASSIGNED, {**self._values, "member": member_id}))

    async def unassign(self, member_id: str, role_ids: Collection[str]) -> None:
        """Remove roles from a member; it keeps those that a connector gives it."""
        await self._connection.execute(_UNASSIGN, {**self._values, "member": member_id, "roles": sorted(role_ids)})

    async def held_roles(self, ids: Collection[str]) -> list[HeldRoles]:
        """Return each of these members with its roles."""
        rows = await self._connection.execute(_HELD_ROLES, {**self._values, "ids": sorted(ids)})
        return [HeldRoles(row.member_id, row.joined_at, row.rejoined, tuple(row.role_ids)) for row in rows]


async def lock_roles(
    connection: AsyncConnection, tenant_id: str, ids: Collection[str], names: Collection[str]
) -> LockedRoles:
    """Return the roles with one of these ids or names, locked against deletion until the transaction ends.

    A name is that of a role as it is stored, or else its canonical form is.
    """
    canonical = [canonical_name(name) for name in names]
    values = {"tenant": tenant_id, "ids": list(ids), "names": list(names), "canonical": canonical}
    rows = (await connection.execute(_LOCK_ROLES, values)).all()
    return LockedRoles(
        ids=frozenset(row.id for row in rows),
        names=frozenset(row.name for row in rows),
        types=frozenset(row.type for row in rows),
    )


def _by_key(table: Table, name: str, key: ColumnElement[str]) -> LateralFromClause:
    """Return a lateral subquery for the row of a table with this key, a column of the enclosing statement."""
    return (
        select(table).where(table.c.tenant_id == _TENANT, table.c.id == key).offset(literal_column("0")).lateral(name)
    )


def _roles_of(member: FromClause) -> ScalarSelect[str]:
    """Return a subquery for the roles, as JSON, by name, of a member of the enclosing statement."""
    role = _by_key(roles, "role", member_roles.c.role_id)
    held = func.json_build_object("id", role.c.id, "name", role.c.name, "origins", member_roles.c.origins)
    together = func.json_agg(aggregate_order_by(held, role.c.sort_key, role.c.name, role.c.id))
    return (
        select(func.coalesce(cast(together, Text), "[]"))
        .select_from(member_roles.join(role, true()))
        .where(
            member_roles.c.tenant_id == _TENANT,
            member_roles.c.organization_id == member.c.organization_id,
            member_roles.c.member_id == member.c.member_id,
        )
        .correlate(member)
        .scalar_subquery()
    )


_KNOWN: Final[Mapping[MemberType, Table]] = {"user": known_users, "application": known_applications}
_SEARCHED: Final[Mapping[MemberType, Sequence[ColumnElement[Any]]]] = {
    "user": (),  # their search_key is searched instead
    "application": (members.c.name, members.c.member_id),
}
_ORGANIZATION_EXISTS: Final = (
    select(organizations.c.id)
    .where(organizations.c.tenant_id == _TENANT, organizations.c.id == _ORGANIZATION)
    .offset(literal_column("0"))
    .exists()
)
_MEMBERS: Final = (
    select(_ORGANIZATION.label("organization_id"), members.c.member_id, members.c.name, members.c.sort_key)
    .where(members.c.listed_in == _TENANT + "/" + _ORGANIZATION + "/" + _TYPE, _ORGANIZATION_EXISTS)
    .order_by(members.c.sort_key, members.c.name, members.c.member_id)
)
_MATCHES: Final = func.strpos(members.c.search_key, bindparam("term", type_=Text)) > 0
_ROLE_OF_MEMBER: Final = _by_key(roles, "role", member_roles.c.role_id)
_LIST_ROLES: Final = PagedList(
    select(*(_ROLE_OF_MEMBER.c[name] for name in OrganizationRole.__struct_fields__), member_roles.c.origins)
    .select_from(member_roles.join(_ROLE_OF_MEMBER, true()))
    .where(
        member_roles.c.tenant_id == _TENANT,
        member_roles.c.organization_id == _ORGANIZATION,
        member_roles.c.member_id == _MEMBER,
    )
    .order_by(_ROLE_OF_MEMBER.c.sort_key, _ROLE_OF_MEMBER.c.name, _ROLE_OF_MEMBER.c.id),
    searched=(_ROLE_OF_MEMBER.c.name, _ROLE_OF_MEMBER.c.description),
)
_OF_MEMBER: Final = _by_key(organizations, "organization", members.c.organization_id)
_LIST_ORGANIZATIONS: Final = PagedList(
    select(*(_OF_MEMBER.c[name] for name in Organization.__struct_fields__), _roles_of(members).label("roles"))
    .select_from(members.join(_OF_MEMBER, true()))
    .where(members.c.tenant_id == _TENANT, members.c.member_id == _MEMBER, members.c.member_type == _TYPE)
    .order_by(_OF_MEMBER.c.sort_key, _OF_MEMBER.c.name, _OF_MEMBER.c.id),
    searched=(_OF_MEMBER.c.id, _OF_MEMBER.c.name, _OF_MEMBER.c.description),
)


def _holds(role: BindParameter[str]) -> ColumnElement[bool]:
    """Return the condition that the member of the enclosing statement holds a role.

    The holders are read once into a hash table, however many they are: the planner expects an array to have few
    elements, and ``IS TRUE`` prevents a join.
    """
    holders = select(member_roles.c.member_id).where(
        member_roles.c.tenant_id == _TENANT,
        member_roles.c.organization_id == _ORGANIZATION,
        member_roles.c.role_id == role,
        select(roles.c.id).where(roles.c.tenant_id == _TENANT, roles.c.id == role).exists(),
    )
    each = func.unnest(func.array(holders.scalar_subquery(), type_=ARRAY(Text))).column_valued("holder")
    return members.c.member_id.in_(select(each)).is_(true())


def _with_roles(member_type: MemberType) -> Callable[[Subquery], Select[Any]]:
    """Return a function that selects the members of a page with their states and roles."""

    def completed(page: Subquery) -> Select[Any]:
        known = _by_key(_KNOWN[member_type], "known", page.c.member_id)
        return (
            select(known.c.state, _roles_of(page).label("roles"))
            .select_from(page.join(known, true()))
            .order_by(page.c.sort_key, page.c.name, page.c.member_id)
        )

    return completed


_LIST: Final = {
    member_type: PagedList(_MEMBERS, searched=searched, completed=_with_roles(member_type))
    for member_type, searched in _SEARCHED.items()
}


async def list_members(
    connection: AsyncConnection,
    tenant_id: str,
    organization_id: str,
    member_type: MemberType,
    page: Page,
    *,
    role_id: str | None,
    without_role_id: str | None,
) -> tuple[list[Member], int]:
    """Return a page of an organization's members by name and then id, and their total.

    Args:
        connection: To the database.
        tenant_id: The tenant.
        organization_id: The organization.
        member_type: The kind of members.
        page: The part to return.
        role_id: Only members that hold this role; None for all members.
        without_role_id: Only members that do not hold this role; None for all members.
    """
    values = {"tenant": tenant_id, "organization": organization_id, "type": member_type}
    conditions = []
    if role_id is not None:
        conditions.append(_holds(_ROLE))
        values["role"] = role_id
    if without_role_id is not None:
        conditions.append(~_holds(_OTHER_ROLE))
        values["other_role"] = without_role_id
    if page.search and member_type == "user":
        conditions.append(_MATCHES)
        values["term"] = search_term(page.search)
    rows, total = await _LIST[member_type].fetch(connection, values, page, where=conditions)
    return [Member(row.state, _decode_roles(row.roles)) for row in rows], total


async def list_roles(
    connection: AsyncConnection, tenant_id: str, organization_id: str, member_id: str, page: Page
) -> tuple[list[RoleOfMember], int]:
    """Return a page of a member's roles by name, and their total."""
    values = {"tenant": tenant_id, "organization": organization_id, "member": member_id}
    rows, total = await _LIST_ROLES.fetch(connection, values, page)
    return [RoleOfMember(OrganizationRole(*columns), tuple(sorted(origins))) for *columns, origins in rows], total


async def list_memberships(
    connection: AsyncConnection, tenant_id: str, member_type: MemberType, member_id: str, page: Page
) -> tuple[list[Membership], int]:
    """Return a page of the organizations of a user or application by name and then id, and their total."""
    values = {"tenant": tenant_id, "member": member_id, "type": member_type}
    rows, total = await _LIST_ORGANIZATIONS.fetch(connection, values, page)
    return [Membership(Organization(*columns), _decode_roles(held)) for *columns, held in rows], total


decode_user = msgspec.json.Decoder(UserState).decode
decode_application = msgspec.json.Decoder(ApplicationState).decode
_decode_held = msgspec.json.Decoder(tuple[HeldRole, ...]).decode


def _decode_roles(text: str) -> tuple[HeldRole, ...]:
    return tuple(
        msgspec.structs.replace(each, origins=tuple(sorted(each.origins))) if len(each.origins) > 1 else each
        for each in _decode_held(text)
    )
