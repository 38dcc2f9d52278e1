"""The whole template in PostgreSQL. Every read, count and write is one statement, however many rows it has.

Locks are taken in the same order as everywhere: the template, roles, permissions, scopes, each by id.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import ARRAY, BindParameter, Boolean, Integer, Text, TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from stead.event_types import GrantedPermission
from template_service.document.rules import Grants, Reach, Role, Template
from template_service.role_contents.store import Content
from template_service.role_contents.template_lock import hold_template

_TENANT: Final = bindparam("tenant", type_=Text)


def _texts(*names: str) -> list[BindParameter[Any]]:
    return [bindparam(name, type_=ARRAY(Text)) for name in names]


# A plan that was cached for a small document would take minutes for a large one. But the foreign key checks, one per
# grant, must use cached plans: planning would take longer than checking.
_PLAN_ANEW: Final = text("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
_CACHE_PLANS: Final = text("SELECT set_config('plan_cache_mode', 'auto', true)")
_LOCK_ROLES: Final = text(
    "SELECT count(*) FROM (SELECT FROM roles WHERE tenant_id = :tenant ORDER BY id FOR NO KEY UPDATE) AS locked"
).bindparams(_TENANT)
_LOCK_PERMISSIONS: Final = text(
    "SELECT count(*) FROM (SELECT FROM permissions WHERE tenant_id = :tenant ORDER BY id FOR UPDATE) AS locked"
).bindparams(_TENANT)
_READ: Final = text(
    """
    WITH granted AS (
        SELECT role_id, permission_id AS id FROM role_permissions WHERE tenant_id = :tenant
        UNION ALL
        SELECT role_id, scope_id FROM role_scopes WHERE tenant_id = :tenant
    ), of_role AS (SELECT role_id, array_agg(id) AS ids FROM granted GROUP BY role_id)
    SELECT id, name, description, NULL AS resource, NULL AS type, CAST(NULL AS text[]) AS ids
    FROM permissions WHERE tenant_id = :tenant
    UNION ALL
    SELECT known_scopes.id, known_scopes.name, NULL, known_resources.indicator, NULL, NULL
    FROM known_scopes
    JOIN known_resources ON known_resources.tenant_id = :tenant AND known_resources.id = known_scopes.resource_id
    WHERE known_scopes.tenant_id = :tenant
        AND known_scopes.id IN (SELECT scope_id FROM role_scopes WHERE tenant_id = :tenant)
    UNION ALL
    SELECT id, name, description, NULL, type, ids
    FROM roles LEFT JOIN of_role ON of_role.role_id = roles.id WHERE tenant_id = :tenant
    """
).bindparams(_TENANT)
_LOCK_SCOPES: Final = text(
    """
    SELECT known_scopes.id, known_scopes.name, known_resources.indicator
    FROM known_resources JOIN known_scopes
        ON known_scopes.tenant_id = :tenant AND known_scopes.resource_id = known_resources.id
    WHERE known_resources.tenant_id = :tenant
        AND (known_resources.indicator, known_scopes.name) IN (SELECT * FROM unnest(:resources, :names))
    ORDER BY known_scopes.id FOR KEY SHARE OF known_scopes
    """
).bindparams(_TENANT, *_texts("resources", "names"))
_LOCK_EXCLUSIVELY: Final = text(
    """
    SELECT count(*) FROM (
        SELECT FROM roles WHERE tenant_id = :tenant AND id = ANY(:ids) ORDER BY id FOR UPDATE
    ) AS locked
    """
).bindparams(_TENANT, *_texts("ids"))
# Assignments in a deleted organization are ignored, here and below; an assignment always has its member.
_ASSIGNED: Final = text(
    """
    SELECT requested.role_id FROM unnest(:ids) AS requested (role_id) WHERE EXISTS (
        SELECT FROM member_roles AS held
        JOIN organizations ON organizations.tenant_id = :tenant AND organizations.id = held.organization_id
        WHERE held.tenant_id = :tenant AND held.role_id = requested.role_id
    )
    """
).bindparams(_TENANT, *_texts("ids"))
_COUNT: Final = text(
    """
    SELECT ordinal,
        count(*) FILTER (WHERE after) AS gaining, count(DISTINCT organization_id) FILTER (WHERE after) AS gaining_in,
        count(*) FILTER (WHERE before) AS losing, count(DISTINCT organization_id) FILTER (WHERE before) AS losing_in
    FROM (
        SELECT ordinal, held.organization_id, held.member_id, bool_or(before) AS before, bool_or(after) AS after
        FROM unnest(:ordinals, :roles, :before, :after) AS granted (ordinal, role_id, before, after)
        JOIN member_roles AS held ON held.tenant_id = :tenant AND held.role_id = granted.role_id
        JOIN organizations ON organizations.tenant_id = :tenant AND organizations.id = held.organization_id
        GROUP BY ordinal, held.organization_id, held.member_id
    ) AS holding
    WHERE before <> after GROUP BY ordinal
    """
).bindparams(
    _TENANT,
    *_texts("roles"),
    bindparam("ordinals", type_=ARRAY(Integer)),
    bindparam("before", type_=ARRAY(Boolean)),
    bindparam("after", type_=ARRAY(Boolean)),
)
_DELETE_ROLES: Final = text("DELETE FROM roles WHERE tenant_id = :tenant AND id = ANY(:ids)").bindparams(
    _TENANT, *_texts("ids")
)
_DELETE_PERMISSIONS: Final = text("DELETE FROM permissions WHERE tenant_id = :tenant AND id = ANY(:ids)").bindparams(
    _TENANT, *_texts("ids")
)
_INSERT_PERMISSIONS: Final = text(
    """
    INSERT INTO permissions (tenant_id, id, name, description, version)
    SELECT :tenant, id, name, description, 1 FROM unnest(:ids, :names, :descriptions) AS new (id, name, description)
    """
).bindparams(_TENANT, *_texts("ids", "names", "descriptions"))
_DESCRIBE_PERMISSIONS: Final = text(
    """
    UPDATE permissions SET description = new.description, version = version + 1
    FROM unnest(:ids, :descriptions) AS new (id, description) WHERE tenant_id = :tenant AND permissions.id = new.id
    """
).bindparams(_TENANT, *_texts("ids", "descriptions"))
_INSERT_ROLES: Final = text(
    """
    INSERT INTO roles (tenant_id, id, name, description, type, version)
    SELECT :tenant, id, name, description, type, 1
    FROM unnest(:ids, :names, :descriptions, :types) AS new (id, name, description, type)
    """
).bindparams(_TENANT, *_texts("ids", "names", "descriptions", "types"))
_CHANGE_ROLES: Final = text(
    """
    UPDATE roles SET description = new.description, type = new.type
    FROM unnest(:ids, :descriptions, :types) AS new (id, description, type)
    WHERE tenant_id = :tenant AND roles.id = new.id
    """
).bindparams(_TENANT, *_texts("ids", "descriptions", "types"))
_GRANT: Final[Mapping[Content, TextClause]] = {
    "permission": text(
        """
        INSERT INTO role_permissions (tenant_id, role_id, permission_id)
        SELECT :tenant, * FROM unnest(:roles, :contents)
        """
    ).bindparams(_TENANT, *_texts("roles", "contents")),
    "scope": text(
        """
        INSERT INTO role_scopes (tenant_id, role_id, scope_id) SELECT :tenant, * FROM unnest(:roles, :contents)
        """
    ).bindparams(_TENANT, *_texts("roles", "contents")),
}
_REVOKE: Final[Mapping[Content, TextClause]] = {
    "permission": text(
        """
        DELETE FROM role_permissions WHERE tenant_id = :tenant
            AND (role_id, permission_id) IN (SELECT * FROM unnest(:roles, :contents))
        """
    ).bindparams(_TENANT, *_texts("roles", "contents")),
    "scope": text(
        """
        DELETE FROM role_scopes WHERE tenant_id = :tenant
            AND (role_id, scope_id) IN (SELECT * FROM unnest(:roles, :contents))
        """
    ).bindparams(_TENANT, *_texts("roles", "contents")),
}


class StoredTemplate(NamedTuple):
    """The template as it is stored.

    Attributes:
        role_ids: Ids of the roles, by name.
        content_ids: Ids of the organization permissions, and of the scopes that roles grant.
    """

    template: Template
    role_ids: dict[str, str]
    content_ids: dict[GrantedPermission, str]


async def lock_template(connection: AsyncConnection, tenant_id: str) -> None:
    """Lock the whole template against changes until the transaction ends."""
    await connection.execute(_PLAN_ANEW)
    await hold_template(connection, tenant_id)
    await connection.execute(_LOCK_ROLES, {"tenant": tenant_id})
    await connection.execute(_LOCK_PERMISSIONS, {"tenant": tenant_id})


async def read_template(connection: AsyncConnection, tenant_id: str) -> StoredTemplate:
    """Return the whole template, from one snapshot."""
    rows = (await connection.execute(_READ, {"tenant": tenant_id})).all()
    permissions: dict[str, str | None] = {}
    contents: dict[str, GrantedPermission] = {}
    for row in rows:
        if row.type is None:
            contents[row.id] = GrantedPermission(row.name, row.resource)
            if row.resource is None:
                permissions[row.name] = row.description
    roles: dict[str, Role] = {}
    role_ids: dict[str, str] = {}
    for row in rows:
        if row.type is not None:
            grants = frozenset(contents[each] for each in row.ids or () if each in contents)
            roles[row.name] = Role(row.description, row.type, grants)
            role_ids[row.name] = row.id
    return StoredTemplate(Template(permissions, roles), role_ids, {each: id_ for id_, each in contents.items()})


async def lock_scopes(
    connection: AsyncConnection, tenant_id: str, scopes: Collection[GrantedPermission]
) -> dict[GrantedPermission, str]:
    """Return the ids of the known ones of these scopes, locked against deletion until the transaction ends."""
    values = {
        "tenant": tenant_id,
        "resources": [scope.resource for scope in scopes],
        "names": [scope.name for scope in scopes],
    }
    rows = await connection.execute(_LOCK_SCOPES, values)
    return {GrantedPermission(row.name, row.indicator): row.id for row in rows}


async def lock_roles_exclusively(connection: AsyncConnection, tenant_id: str, role_ids: Collection[str]) -> None:
    """Lock these roles against changes and new assignments until the transaction ends."""
    await connection.execute(_LOCK_EXCLUSIVELY, {"tenant": tenant_id, "ids": list(role_ids)})


async def assigned(connection: AsyncConnection, tenant_id: str, role_ids: Collection[str]) -> set[str]:
    """Return which of these roles are assigned to a member."""
    return set(await connection.scalars(_ASSIGNED, {"tenant": tenant_id, "ids": list(role_ids)}))


async def count_members(
    connection: AsyncConnection, tenant_id: str, role_ids: Mapping[str, str], grants: Iterable[Grants]
) -> dict[int, tuple[Reach, Reach]]:
    """Return how many members gain and lose each group's permissions, by its position; without any, it is left out."""
    rows = [
        (ordinal, role_ids[grant.role], grant.before, grant.after)
        for ordinal, of_permission in enumerate(grants)
        for grant in of_permission
    ]
    if not rows:
        return {}
    ordinals, roles, before, after = (list(column) for column in zip(*rows, strict=True))
    values = {"tenant": tenant_id, "ordinals": ordinals, "roles": roles, "before": before, "after": after}
    return {
        row.ordinal: (
            Reach(members=row.gaining, organizations=row.gaining_in),
            Reach(members=row.losing, organizations=row.losing_in),
        )
        for row in await connection.execute(_COUNT, values)
    }


async def delete_permissions(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> None:
    """Delete permissions and their grants."""
    if ids:
        await connection.execute(_DELETE_PERMISSIONS, {"tenant": tenant_id, "ids": list(ids)})


async def delete_roles(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> None:
    """Delete roles with their grants, locked by ``lock_roles_exclusively``; their assignments stay, ignored."""
    if ids:
        await connection.execute(_DELETE_ROLES, {"tenant": tenant_id, "ids": list(ids)})


async def insert_permissions(
    connection: AsyncConnection, tenant_id: str, permissions: Collection[tuple[str, str, str | None]]
) -> None:
    """Store new permissions: id, name and description of each."""
    if permissions:
        ids, names, descriptions = (list(column) for column in zip(*permissions, strict=True))
        values = {"tenant": tenant_id, "ids": ids, "names": names, "descriptions": descriptions}
        await connection.execute(_INSERT_PERMISSIONS, values)


async def describe_permissions(
    connection: AsyncConnection, tenant_id: str, permissions: Collection[tuple[str, str | None]]
) -> None:
    """Store changed descriptions of permissions, by id; increment their versions."""
    if permissions:
        ids, descriptions = (list(column) for column in zip(*permissions, strict=True))
        await connection.execute(_DESCRIBE_PERMISSIONS, {"tenant": tenant_id, "ids": ids, "descriptions": descriptions})


async def insert_roles(
    connection: AsyncConnection, tenant_id: str, roles: Collection[tuple[str, str, str | None, str]]
) -> None:
    """Store new roles: id, name, description and type of each."""
    if roles:
        ids, names, descriptions, types = (list(column) for column in zip(*roles, strict=True))
        values = {"tenant": tenant_id, "ids": ids, "names": names, "descriptions": descriptions, "types": types}
        await connection.execute(_INSERT_ROLES, values)


async def change_roles(
    connection: AsyncConnection, tenant_id: str, roles: Collection[tuple[str, str | None, str]]
) -> None:
    """Store descriptions and types of roles, by id; the caller increments their versions."""
    if roles:
        ids, descriptions, types = (list(column) for column in zip(*roles, strict=True))
        values = {"tenant": tenant_id, "ids": ids, "descriptions": descriptions, "types": types}
        await connection.execute(_CHANGE_ROLES, values)


async def grant(
    connection: AsyncConnection, tenant_id: str, content: Content, pairs: Collection[tuple[str, str]]
) -> None:
    """Add grants: pairs of the ids of a role and its content."""
    if pairs:
        await connection.execute(_CACHE_PLANS)
        await _change_grants(connection, _GRANT[content], tenant_id, pairs)
        await connection.execute(_PLAN_ANEW)


async def revoke(
    connection: AsyncConnection, tenant_id: str, content: Content, pairs: Collection[tuple[str, str]]
) -> None:
    """Remove grants: pairs of the ids of a role and its content."""
    await _change_grants(connection, _REVOKE[content], tenant_id, pairs)


async def _change_grants(
    connection: AsyncConnection, statement: TextClause, tenant_id: str, pairs: Collection[tuple[str, str]]
) -> None:
    if pairs:
        roles, contents = (list(column) for column in zip(*pairs, strict=True))
        await connection.execute(statement, {"tenant": tenant_id, "roles": roles, "contents": contents})
