"""The configuration of membership just in time, in PostgreSQL. Every write is one statement, however many rows."""

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import ARRAY, BindParameter, Table, Text, any_, bindparam, cast, delete, func, select, text, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from template_service.roles.store import Named, OrganizationRole
from template_service.schema import (
    jit_email_domains,
    jit_groups,
    jit_roles,
    jit_sso_connectors,
    known_connectors,
    roles,
)

Relation = Literal["email-domain", "role", "connector"]
"""What an organization has a set of."""


class Connector(msgspec.Struct, frozen=True):
    """A connector as it is known here."""

    id: str
    name: str


class Group(msgspec.Struct, frozen=True):
    """A group at a provider, and the roles that it gives.

    Attributes:
        roles: By name; those that users can get.
    """

    id: str
    connector_id: str
    group: str
    roles: tuple[Named, ...]


class NewGroup(NamedTuple):
    """A group to store.

    Attributes:
        id: Its id, unless the organization has the group of the connector already.
    """

    id: str
    connector_id: str
    group: str
    role_ids: tuple[str, ...]


def _texts(*names: str) -> list[BindParameter[Sequence[str]]]:
    return [bindparam(name, type_=ARRAY(Text)) for name in names]


_TENANT: Final = bindparam("tenant", type_=Text)
_ORGANIZATION: Final = bindparam("organization", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))
_TABLES: Final[dict[Relation, tuple[Table, str]]] = {
    "email-domain": (jit_email_domains, "email_domain"),
    "role": (jit_roles, "role_id"),
    "connector": (jit_sso_connectors, "connector_id"),
}
_ADD: Final = {
    relation: text(
        f"INSERT INTO {table.name} (tenant_id, organization_id, {column}) "
        f"SELECT :tenant, :organization, unnest(:ids) ON CONFLICT DO NOTHING RETURNING {column}"
    ).bindparams(_TENANT, _ORGANIZATION, _IDS)
    for relation, (table, column) in _TABLES.items()
}
_OF_ORGANIZATION: Final = {
    relation: (table.c.tenant_id == _TENANT, table.c.organization_id == _ORGANIZATION)
    for relation, (table, _) in _TABLES.items()
}
_REMOVE: Final = {
    relation: delete(table).where(*_OF_ORGANIZATION[relation], table.c[column] == any_(_IDS))
    for relation, (table, column) in _TABLES.items()
}
_KEEP: Final = {
    relation: delete(table).where(*_OF_ORGANIZATION[relation], ~(table.c[column] == any_(_IDS)))
    for relation, (table, column) in _TABLES.items()
}
_COUNT: Final = {
    relation: select(func.count()).select_from(table).where(*_OF_ORGANIZATION[relation])
    for relation, (table, _) in _TABLES.items()
}
_LOCK_CONNECTORS: Final = text(
    """
    SELECT found.id FROM (
        SELECT DISTINCT id COLLATE "C" FROM unnest(:ids) AS id ORDER BY 1
    ) AS requested (id), LATERAL (
        SELECT id FROM known_connectors WHERE tenant_id = :tenant AND id = requested.id FOR KEY SHARE
    ) AS found
    """
).bindparams(_TENANT, _IDS)
_PUT_GROUPS: Final = text(
    """
    INSERT INTO jit_groups (tenant_id, organization_id, id, connector_id, group_value, role_ids)
    SELECT :tenant, :organization, id, connector_id, group_value, string_to_array(role_ids, ' ')
    FROM unnest(:ids, :connectors, :groups, :roles) AS given (id, connector_id, group_value, role_ids)
    ON CONFLICT ON CONSTRAINT jit_groups_group_unique DO UPDATE SET role_ids = excluded.role_ids
    """
).bindparams(_TENANT, _ORGANIZATION, *_texts("ids", "connectors", "groups", "roles"))
_HAS_GROUP: Final = text(
    """
    SELECT EXISTS (SELECT FROM jit_groups WHERE tenant_id = :tenant AND organization_id = :organization
        AND connector_id = :connector AND group_value = :group)
    """
).bindparams(_TENANT, _ORGANIZATION, bindparam("connector", type_=Text), bindparam("group", type_=Text))
_KEEP_GROUPS: Final = text(
    """
    DELETE FROM jit_groups WHERE tenant_id = :tenant AND organization_id = :organization
        AND (connector_id, group_value) NOT IN (SELECT * FROM unnest(:connectors, :groups))
    """
).bindparams(_TENANT, _ORGANIZATION, *_texts("connectors", "groups"))
_GROUPS_OF_ORGANIZATION: Final = (jit_groups.c.tenant_id == _TENANT, jit_groups.c.organization_id == _ORGANIZATION)
_REMOVE_GROUP: Final = delete(jit_groups).where(*_GROUPS_OF_ORGANIZATION, jit_groups.c.id == bindparam("of"))
_COUNT_GROUPS: Final = select(func.count()).select_from(jit_groups).where(*_GROUPS_OF_ORGANIZATION)

_ROLE: Final = (
    select(roles)
    .where(roles.c.tenant_id == _TENANT, roles.c.id == jit_roles.c.role_id, roles.c.type == "User")
    .lateral("role")
)
_NAMED: Final = func.json_build_object("id", roles.c.id, "name", roles.c.name)
_ROLES_OF_GROUP: Final = (
    select(
        func.coalesce(
            cast(func.json_agg(aggregate_order_by(_NAMED, roles.c.sort_key, roles.c.name, roles.c.id)), Text), "[]"
        )
    )
    .where(roles.c.tenant_id == _TENANT, roles.c.id == any_(jit_groups.c.role_ids), roles.c.type == "User")
    .correlate(jit_groups)
    .scalar_subquery()
)
_LIST_DOMAINS: Final = PagedList(
    select(jit_email_domains.c.email_domain)
    .where(*_OF_ORGANIZATION["email-domain"])
    .order_by(jit_email_domains.c.email_domain),
    searched=(jit_email_domains.c.email_domain,),
)
_LIST_ROLES: Final = PagedList(
    select(*(_ROLE.c[name] for name in OrganizationRole.__struct_fields__))
    .select_from(jit_roles.join(_ROLE, true()))
    .where(*_OF_ORGANIZATION["role"])
    .order_by(_ROLE.c.sort_key, _ROLE.c.name, _ROLE.c.id),
    searched=(_ROLE.c.name, _ROLE.c.description),
)
_LIST_CONNECTORS: Final = PagedList(
    select(known_connectors.c.id, known_connectors.c.name)
    .join(
        jit_sso_connectors,
        (jit_sso_connectors.c.tenant_id == known_connectors.c.tenant_id)
        & (jit_sso_connectors.c.connector_id == known_connectors.c.id),
    )
    .where(*_OF_ORGANIZATION["connector"])
    .order_by(known_connectors.c.name, known_connectors.c.id),
    searched=(known_connectors.c.name,),
)
_LIST_GROUPS: Final = PagedList(
    select(jit_groups.c.id, jit_groups.c.connector_id, jit_groups.c.group_value, _ROLES_OF_GROUP.label("roles"))
    .where(*_GROUPS_OF_ORGANIZATION)
    .order_by(jit_groups.c.group_value, jit_groups.c.id),
    searched=(jit_groups.c.group_value,),
)
_decode_roles: Final = msgspec.json.Decoder(tuple[Named, ...]).decode


async def lock_connectors(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> set[str]:
    """Lock connectors against deletion until the transaction ends; return those that are known."""
    return set(await connection.scalars(_LOCK_CONNECTORS, {"tenant": tenant_id, "ids": list(ids)}))


class Configuration:
    """What one organization has configured, within one transaction that holds the lock of the organization."""

    def __init__(self, connection: AsyncConnection, tenant_id: str, organization_id: str) -> None:
        self._connection = connection
        self._values: dict[str, Any] = {"tenant": tenant_id, "organization": organization_id}

    async def add(self, relation: Relation, ids: Collection[str]) -> list[str]:
        """Add these; return the new ones."""
        return list(await self._connection.scalars(_ADD[relation], {**self._values, "ids": sorted(ids)}))

    async def keep(self, relation: Relation, ids: Collection[str]) -> bool:
        """Remove all but these; return whether any was removed."""
        values = {**self._values, "ids": sorted(ids)}
        return bool((await self._connection.execute(_KEEP[relation], values)).rowcount)

    async def remove(self, relation: Relation, one: str) -> bool:
        """Remove one; return whether there was one."""
        return bool((await self._connection.execute(_REMOVE[relation], {**self._values, "ids": [one]})).rowcount)

    async def count(self, relation: Relation) -> int:
        """Return how many there are, deleted roles included."""
        return int(await self._connection.scalar(_COUNT[relation], self._values) or 0)

    async def has_group(self, connector_id: str, group: str) -> bool:
        """Return whether a group gives roles here."""
        values = {**self._values, "connector": connector_id, "group": group}
        return bool(await self._connection.scalar(_HAS_GROUP, values))

    async def put_groups(self, groups: Sequence[NewGroup]) -> None:
        """Store what groups give; those that are stored already keep their ids."""
        values = {
            **self._values,
            "ids": [each.id for each in groups],
            "connectors": [each.connector_id for each in groups],
            "groups": [each.group for each in groups],
            "roles": [" ".join(each.role_ids) for each in groups],
        }
        await self._connection.execute(_PUT_GROUPS, values)

    async def keep_groups(self, groups: Sequence[NewGroup]) -> None:
        """Remove all groups but these."""
        values = {
            **self._values,
            "connectors": [each.connector_id for each in groups],
            "groups": [each.group for each in groups],
        }
        await self._connection.execute(_KEEP_GROUPS, values)

    async def remove_group(self, group_id: str) -> bool:
        """Remove one group; return whether there was one."""
        return bool((await self._connection.execute(_REMOVE_GROUP, {**self._values, "of": group_id})).rowcount)

    async def count_groups(self) -> int:
        """Return how many groups there are."""
        return int(await self._connection.scalar(_COUNT_GROUPS, self._values) or 0)

    async def list_domains(self, page: Page) -> tuple[list[str], int]:
        """Return a page of the domains, sorted, and their total."""
        rows, total = await _LIST_DOMAINS.fetch(self._connection, self._values, page)
        return [row.email_domain for row in rows], total

    async def list_roles(self, page: Page) -> tuple[list[OrganizationRole], int]:
        """Return a page of the roles by name, and their total."""
        rows, total = await _LIST_ROLES.fetch(self._connection, self._values, page)
        return [OrganizationRole(*row) for row in rows], total

    async def list_connectors(self, page: Page) -> tuple[list[Connector], int]:
        """Return a page of the connectors by name, and their total."""
        rows, total = await _LIST_CONNECTORS.fetch(self._connection, self._values, page)
        return [Connector(*row) for row in rows], total

    async def list_groups(self, page: Page) -> tuple[list[Group], int]:
        """Return a page of the groups by value, and their total."""
        rows, total = await _LIST_GROUPS.fetch(self._connection, self._values, page)
        return [Group(row.id, row.connector_id, row.group_value, _decode_roles(row.roles)) for row in rows], total
