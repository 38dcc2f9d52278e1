"""One batch of a fan-out: compares the permissions of some members with those last published.

A batch is one transaction that holds the tenant's fan-out lock, so that batches do not overlap. Members and roles are
read by one statement, from one snapshot: it includes everything committed before, and later commits have their own rows
in ``fan_outs``.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ARRAY, BigInteger, Integer, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.outbox.changes import Transaction
from stead.event_types import GrantedPermission, MemberState, PermissionCause
from template_service.fan_out.events import (
    NOTHING,
    Difference,
    difference,
    encode_permissions,
    permissions_state,
)

BATCH: Final = 1000
"""Members of one batch, at most."""

_BATCH_BYTES: Final = 16 * 1024 * 1024

_TENANT: Final = bindparam("tenant", type_=Text)
_KEYS: Final = (bindparam("organizations", type_=ARRAY(Text)), bindparam("members", type_=ARRAY(Text)))
_AFTER: Final = (bindparam("after_organization", type_=Text), bindparam("after_member", type_=Text))
_LAST: Final = (bindparam("last_organization", type_=Text), bindparam("last_member", type_=Text))

# A formerly active worker may still have an open transaction; the lock waits for it. A cached plan may be from when the
# tables were small, and must not be used.
_BEGIN: Final = text(
    """
    SELECT pg_advisory_xact_lock(hashtext('identity-fan-out-batch'), hashtext(:tenant)),
        set_config('plan_cache_mode', 'force_custom_plan', true)
    """
).bindparams(_TENANT)
# One row more than the batch tells whether anything is left.
_NAMED: Final = text(
    """
    SELECT id, cause, organization_id, member_id COLLATE "C" AS member_id
    FROM fan_outs, unnest(member_ids) AS member_id
    WHERE tenant_id = :tenant AND member_ids IS NOT NULL AND member_id COLLATE "C" > after_member_id
    ORDER BY id, member_id COLLATE "C" LIMIT :limit
    """
).bindparams(_TENANT)
# Of several requests for the same members, one is enough if it has not begun: it sees the changes behind all of them.
# One statement is one snapshot: the request of a deletion is not dropped while the deleted row is still visible.
_REACHING_MANY: Final = text(
    """
    WITH requested AS (
        SELECT * FROM fan_outs WHERE tenant_id = :tenant AND member_ids IS NULL ORDER BY id LIMIT 1
    ), repeated AS (
        DELETE FROM fan_outs AS other USING requested
        WHERE other.tenant_id = :tenant AND other.id > requested.id AND other.member_ids IS NULL
            AND requested.after_organization_id = ''
            AND other.role_id IS NOT DISTINCT FROM requested.role_id
            AND other.organization_id IS NOT DISTINCT FROM requested.organization_id
    )
    SELECT id, cause, role_id, organization_id, after_organization_id, after_member_id,
        CASE WHEN role_id IS NOT NULL
            THEN NOT EXISTS (SELECT FROM roles WHERE roles.tenant_id = :tenant AND roles.id = role_id)
            ELSE NOT EXISTS (SELECT FROM organizations
                WHERE organizations.tenant_id = :tenant AND organizations.id = organization_id)
        END AS is_gone
    FROM requested
    """
).bindparams(_TENANT)
_HOLDERS: Final = text(
    """
    SELECT organization_id, member_id FROM member_roles WHERE tenant_id = :tenant AND role_id = :of
        AND (organization_id, member_id) > (:after_organization, :after_member)
    ORDER BY organization_id, member_id LIMIT :limit
    """
).bindparams(_TENANT, bindparam("of", type_=Text), *_AFTER)
_MEMBERS: Final = text(
    """
    SELECT organization_id, member_id FROM members WHERE tenant_id = :tenant AND organization_id = :of
        AND (organization_id, member_id) > (:after_organization, :after_member)
    ORDER BY organization_id, member_id LIMIT :limit
    """
).bindparams(_TENANT, bindparam("of", type_=Text), *_AFTER)
# From here on, LIMIT or OFFSET in a subquery make the planner look up each row by its key. Otherwise it would scan
# whole tables for each batch or, with statistics from before the tables grew, pair every row with every other.
_LOCK_MEMBERS: Final = text(
    """
    SELECT FROM unnest(:organizations, :members) AS requested (organization_id, member_id)
    CROSS JOIN LATERAL (
        SELECT FROM members WHERE members.tenant_id = :tenant
            AND members.organization_id = requested.organization_id AND members.member_id = requested.member_id
        LIMIT 1 FOR UPDATE
    ) AS locked
    """
).bindparams(_TENANT, *_KEYS)
_UNASSIGN: Final = text(
    """
    DELETE FROM member_roles WHERE tenant_id = :tenant AND role_id = :of
        AND (organization_id, member_id) > (:after_organization, :after_member)
        AND (organization_id, member_id) <= (:last_organization, :last_member)
    """
).bindparams(_TENANT, bindparam("of", type_=Text), *_AFTER, *_LAST)
_REMAINING: Final = text(
    """
    SELECT requested.organization_id, requested.member_id, member.member_type, member.joined_at, member.rejoined, ARRAY(
        SELECT role_id FROM member_roles AS held WHERE held.tenant_id = :tenant
            AND held.organization_id = requested.organization_id AND held.member_id = requested.member_id
        ORDER BY role_id
    ) AS role_ids
    FROM unnest(:organizations, :members) AS requested (organization_id, member_id)
    CROSS JOIN LATERAL (
        SELECT member_type, joined_at, rejoined FROM members WHERE members.tenant_id = :tenant
            AND members.organization_id = requested.organization_id AND members.member_id = requested.member_id
        LIMIT 1
    ) AS member
    """
).bindparams(_TENANT, *_KEYS)
_REMOVE: Final = text(
    """
    DELETE FROM members WHERE tenant_id = :tenant AND organization_id = :of
        AND member_id > :after_member AND member_id <= :last_member
    RETURNING organization_id, member_id, member_type
    """
).bindparams(_TENANT, bindparam("of", type_=Text), _AFTER[1], _LAST[1])
# The members, what their roles grant, and what was last published, each text once however many members share it; one
# statement, and so one snapshot.
_HELD: Final = text(
    """
    WITH looked_at AS MATERIALIZED (
        SELECT requested.organization_id, requested.member_id, member.member_type,
            CASE WHEN member.member_type IS NULL OR organization.id IS NULL THEN '{}' ELSE ARRAY(
                SELECT role_id FROM member_roles AS held WHERE held.tenant_id = :tenant
                    AND held.organization_id = requested.organization_id AND held.member_id = requested.member_id
                ORDER BY role_id
            ) END AS role_ids
        FROM unnest(:organizations, :members) AS requested (organization_id, member_id)
        LEFT JOIN LATERAL (
            SELECT member_type FROM members WHERE members.tenant_id = :tenant
                AND members.organization_id = requested.organization_id AND members.member_id = requested.member_id
            LIMIT 1
        ) AS member ON true
        LEFT JOIN LATERAL (
            SELECT id FROM organizations
            WHERE organizations.tenant_id = :tenant AND organizations.id = requested.organization_id LIMIT 1
        ) AS organization ON true
    ), role AS (
        SELECT DISTINCT unnest(role_ids) AS id FROM looked_at
    ), granted AS (
        SELECT role.id AS role_id, permission.name, NULL AS resource
        FROM role CROSS JOIN LATERAL (
            SELECT permission_id FROM role_permissions
            WHERE role_permissions.tenant_id = :tenant AND role_permissions.role_id = role.id OFFSET 0
        ) AS held CROSS JOIN LATERAL (
            SELECT name FROM permissions
            WHERE permissions.tenant_id = :tenant AND permissions.id = held.permission_id LIMIT 1
        ) AS permission
        UNION ALL
        SELECT role.id, scope.name, resource.indicator
        FROM role CROSS JOIN LATERAL (
            SELECT scope_id FROM role_scopes
            WHERE role_scopes.tenant_id = :tenant AND role_scopes.role_id = role.id OFFSET 0
        ) AS held CROSS JOIN LATERAL (
            SELECT name, resource_id FROM known_scopes
            WHERE known_scopes.tenant_id = :tenant AND known_scopes.id = held.scope_id LIMIT 1
        ) AS scope CROSS JOIN LATERAL (
            SELECT indicator FROM known_resources
            WHERE known_resources.tenant_id = :tenant AND known_resources.id = scope.resource_id LIMIT 1
        ) AS resource
    ), compared AS MATERIALIZED (
        SELECT looked_at.*, before.member_type AS former_type, before.version, before.permissions,
            sha256(convert_to(before.permissions, 'UTF8')) AS digest
        FROM looked_at LEFT JOIN LATERAL (
            SELECT member_type, version, permissions FROM published_permissions AS published
            WHERE published.tenant_id = :tenant AND published.organization_id = looked_at.organization_id
                AND published.member_id = looked_at.member_id
            LIMIT 1
        ) AS before ON true
    )
    SELECT 'member', organization_id, member_id, coalesce(member_type, former_type), role_ids, version, digest,
        NULL AS names, NULL AS resources, NULL AS permissions
    FROM compared
    UNION ALL
    SELECT 'role', NULL, role_id, NULL, NULL, NULL, NULL, array_agg(name), array_agg(resource), NULL
    FROM granted GROUP BY role_id
    UNION ALL
    SELECT 'published', NULL, NULL, NULL, NULL, NULL, digest, NULL, NULL, min(permissions)
    FROM compared WHERE digest IS NOT NULL GROUP BY digest
    """
).bindparams(_TENANT, *_KEYS)
_PUBLISH: Final = text(
    """
    INSERT INTO published_permissions (tenant_id, organization_id, member_id, member_type, version, permissions)
    SELECT :tenant, organization_id, member_id, member_type, version, (CAST(:texts AS text[]))[place]
    FROM unnest(:organizations, :members, :types, :versions, :places)
        AS found (organization_id, member_id, member_type, version, place)
    ON CONFLICT (tenant_id, organization_id, member_id)
        DO UPDATE SET version = excluded.version, permissions = excluded.permissions
    """
).bindparams(
    _TENANT,
    *_KEYS,
    bindparam("types", type_=ARRAY(Text)),
    bindparam("versions", type_=ARRAY(BigInteger)),
    bindparam("places", type_=ARRAY(Integer)),
    bindparam("texts", type_=ARRAY(Text)),
)
_MOVE: Final = text(
    """
    UPDATE fan_outs SET after_organization_id = :after_organization, after_member_id = :after_member
    WHERE tenant_id = :tenant AND id = :id
    """
).bindparams(_TENANT, *_AFTER)
_DONE: Final = text("DELETE FROM fan_outs WHERE tenant_id = :tenant AND id = ANY(:ids)").bindparams(
    _TENANT, bindparam("ids", type_=ARRAY(BigInteger))
)


class MemberKey(NamedTuple):
    """Identifies a member."""

    organization_id: str
    member_id: str


Causes = dict[MemberKey, PermissionCause]
"""The members of a batch with the cause of each; the first of several causes."""


class BatchTooLargeError(Exception):
    """The events of a batch are too large for one transaction; it must have fewer members."""


async def process_batch(transaction: Transaction, tenant_id: str, *, limit: int = BATCH) -> None:
    """Process the next members that requests name, and the next ones of the oldest request for a role or organization.

    Each batch takes from both kinds of requests, so that neither kind waits until the other is done.

    Args:
        transaction: To be rolled back when this raises.
        tenant_id: The tenant.
        limit: The most members of each kind.

    Raises:
        BatchTooLargeError: The events are too large for one transaction.
    """
    await lock_out_others(transaction.connection, tenant_id)
    causes: Causes = {}
    await _take_named(transaction.connection, tenant_id, causes, limit)
    await _take_reached(transaction, tenant_id, causes, limit)
    if causes:
        await publish_differences(transaction, tenant_id, causes)


async def _take_named(connection: AsyncConnection, tenant_id: str, causes: Causes, limit: int) -> None:
    """Take members that requests name."""
    rows = (await connection.execute(_NAMED, {"tenant": tenant_id, "limit": limit + 1})).all()
    taken, behind = rows[:limit], rows[limit:]
    for row in taken:
        causes.setdefault(MemberKey(row.organization_id, row.member_id), row.cause)
    unfinished = {row.id for row in behind}
    await _delete_requests(connection, tenant_id, {row.id for row in taken} - unfinished)
    if unfinished and taken[-1].id in unfinished:
        await _move(connection, tenant_id, taken[-1].id, MemberKey("", taken[-1].member_id))


async def _take_reached(transaction: Transaction, tenant_id: str, causes: Causes, limit: int) -> None:
    """Take the next members of the oldest request for a role or organization; if that is deleted, delete its rows."""
    connection = transaction.connection
    request = (await connection.execute(_REACHING_MANY, {"tenant": tenant_id})).one_or_none()
    if request is None:
        return
    statement, of = (_MEMBERS, request.organization_id) if request.role_id is None else (_HOLDERS, request.role_id)
    part = {
        "tenant": tenant_id,
        "of": of,
        "after_organization": request.after_organization_id,
        "after_member": request.after_member_id,
    }
    rows = (await connection.execute(statement, {**part, "limit": limit + 1})).all()
    keys = [MemberKey(*row) for row in rows[:limit]]
    if request.is_gone and keys:
        part |= {"last_organization": keys[-1].organization_id, "last_member": keys[-1].member_id}
        await (_remove if request.role_id is None else _unassign)(transaction, part, keys)
    for key in keys:
        causes.setdefault(key, request.cause)
    if len(rows) > limit:
        await _move(connection, tenant_id, request.id, keys[-1])
    else:
        await _delete_requests(connection, tenant_id, {request.id})


async def _remove(transaction: Transaction, part: Mapping[str, str], keys: Collection[MemberKey]) -> None:
    """Delete a part of the members of a deleted organization."""
    await transaction.connection.execute(_LOCK_MEMBERS, {"tenant": part["tenant"], **_columns(keys)})
    for organization_id, member_id, member_type in await transaction.connection.execute(_REMOVE, part):
        state = MemberState(organization_id=organization_id, member_id=member_id, member_type=member_type, deleted=True)
        transaction.record("member", (organization_id, member_id), "deleted", state)


async def _unassign(transaction: Transaction, part: Mapping[str, str], keys: Collection[MemberKey]) -> None:
    """Delete a part of the assignments of a deleted role."""
    connection, values = transaction.connection, {"tenant": part["tenant"], **_columns(keys)}
    await connection.execute(_LOCK_MEMBERS, values)
    await connection.execute(_UNASSIGN, part)
    for row in await connection.execute(_REMAINING, values):
        state = MemberState(
            organization_id=row.organization_id,
            member_id=row.member_id,
            member_type=row.member_type,
            joined_at=row.joined_at,
            rejoined=row.rejoined,
            role_ids=tuple(row.role_ids),
        )
        transaction.record("member", (row.organization_id, row.member_id), "updated", state)


async def lock_out_others(connection: AsyncConnection, tenant_id: str) -> None:
    """Take the tenant's fan-out lock until the transaction ends; before any lock of a member."""
    await connection.execute(_BEGIN, {"tenant": tenant_id})


async def publish_differences(transaction: Transaction, tenant_id: str, causes: Causes) -> None:
    """Record an event for every member whose permissions differ from the published ones; increment its version.

    Args:
        transaction: Holds the fan-out lock; to be rolled back when this raises.
        tenant_id: The tenant.
        causes: The members.

    Raises:
        BatchTooLargeError: The events are too large for one transaction.
    """
    rows = (await transaction.connection.execute(_HELD, {"tenant": tenant_id, **_columns(causes)})).all()
    comparison = _Comparison(rows)
    found: list[tuple[MemberKey, str, int, str]] = []
    size = 0
    for kind, organization_id, member_id, member_type, role_ids, version, digest, _, _, _ in rows:
        if kind != "member":
            continue
        change = comparison.difference(digest, tuple(role_ids))
        if change is None:
            continue
        key = MemberKey(organization_id, member_id)
        state = permissions_state(*key, member_type, (version or 0) + 1, causes[key], change)
        transaction.record("member-permissions", key, "updated", state)
        found.append((key, member_type, state.version, change.text))
        size += len(transaction.changes[-1].data)
        if size > _BATCH_BYTES:
            raise BatchTooLargeError
    if found:
        await _store(transaction.connection, tenant_id, found)


async def _store(connection: AsyncConnection, tenant_id: str, found: Sequence[tuple[MemberKey, str, int, str]]) -> None:
    """Store what is now published of each member: key, type, version, permissions."""
    texts = {text: place for place, text in enumerate({text for _, _, _, text in found}, start=1)}
    values = {
        "tenant": tenant_id,
        **_columns([key for key, _, _, _ in found]),
        "types": [member_type for _, member_type, _, _ in found],
        "versions": [version for _, _, version, _ in found],
        "places": [texts[text] for _, _, _, text in found],
        "texts": list(texts),
    }
    await connection.execute(_PUBLISH, values)


class _Comparison:
    """Compares the permissions that members' roles grant with those published; each combination once."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._granted: dict[str, list[GrantedPermission]] = {}
        self._published: dict[bytes | None, str] = {None: NOTHING}
        for kind, _, role_id, _, _, _, digest, names, resources, permissions in rows:
            if kind == "role":
                self._granted[role_id] = list(map(GrantedPermission, names, resources))
            elif kind == "published":
                self._published[digest] = permissions
        self._differences: dict[tuple[bytes | None, tuple[str, ...]], Difference | None] = {}

    def difference(self, digest: bytes | None, role_ids: tuple[str, ...]) -> Difference | None:
        """Return how the permissions of a member with these roles differ from the published ones; None if they do not.

        Args:
            digest: Hash of the published permissions; None if none were ever published.
            role_ids: The roles that the member holds now.
        """
        key = (digest, role_ids)
        if key not in self._differences:
            permissions = itertools.chain.from_iterable(self._granted.get(role_id, ()) for role_id in role_ids)
            self._differences[key] = difference(self._published[digest], encode_permissions(permissions))
        return self._differences[key]


async def _move(connection: AsyncConnection, tenant_id: str, request_id: int, after: MemberKey) -> None:
    position = {"after_organization": after.organization_id, "after_member": after.member_id}
    await connection.execute(_MOVE, {"tenant": tenant_id, "id": request_id, **position})


async def _delete_requests(connection: AsyncConnection, tenant_id: str, request_ids: Collection[int]) -> None:
    if request_ids:
        await connection.execute(_DONE, {"tenant": tenant_id, "ids": list(request_ids)})


def _columns(keys: Collection[MemberKey]) -> dict[str, list[str]]:
    return {"organizations": [key.organization_id for key in keys], "members": [key.member_id for key in keys]}
