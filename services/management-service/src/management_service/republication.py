"""Records every aggregate of this service again, batch by batch, to publish the whole state.

Each step locks the rows that it reads, in the order of their ids, so what it records is the state at the revision that
it gets.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import ARRAY, ColumnElement, Table, Text, any_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.outbox.changes import Transaction
from identity_common.outbox.republication import BATCH, Step
from identity_common.wire.events import HolderKind
from management_service.applications import store as application_store
from management_service.applications.service import application_state
from management_service.claims_function import store as claims_function_store
from management_service.claims_function.service import AGGREGATE as CLAIMS_FUNCTION
from management_service.claims_function.service import function_state
from management_service.connectors import store as connector_store
from management_service.connectors.events import record_connector, record_groups
from management_service.impersonation_policy.service import record_policy as record_impersonation_policy
from management_service.impersonations.service import record_slots
from management_service.resources import store as resource_store
from management_service.resources.service import resource_state, scope_state
from management_service.roles import holders
from management_service.roles import store as role_store
from management_service.roles.assignments import record_assignment
from management_service.roles.service import role_state
from management_service.schema import (
    application_secrets,
    applications,
    connectors,
    identities,
    resources,
    role_scopes,
    roles,
    scopes,
    users,
)
from management_service.sign_in_policy.service import record_policy as record_sign_in_policy
from management_service.users import store as user_store
from management_service.users.service import user_state

_TENANT: Final = bindparam("tenant", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))


def republication_steps(tenant_id: str) -> tuple[Step, ...]:
    """Return one step for each table of aggregates of a tenant."""
    steps = (
        # First: a replica that starts meanwhile must not know a client before it.
        record_impersonation_policy,
        record_sign_in_policy,
        _record_connectors,
        *(_record_resources, _record_scopes, _record_roles, _record_applications, _record_users, _record_groups),
        *(_record_claims_functions, record_slots),
    )
    return tuple(partial(step, tenant_id) for step in steps)


async def _record_resources(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, resources, tenant_id, after)
    for row in await _rows(transaction.connection, resources, resource_store.RESOURCE_COLUMNS, tenant_id, ids):
        resource = resource_store.Resource(*row)
        transaction.record("resource", (resource.id,), "updated", resource_state(resource))
    return _last(ids)


async def _record_scopes(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, scopes, tenant_id, after)
    for row in await _rows(transaction.connection, scopes, resource_store.SCOPE_COLUMNS, tenant_id, ids):
        scope = resource_store.Scope(*row)
        transaction.record("scope", (scope.resource_id, scope.id), "updated", scope_state(scope))
    return _last(ids)


async def _record_roles(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, roles, tenant_id, after)
    granted: dict[str, list[str]] = {role_id: [] for role_id in ids}
    statement = select(role_scopes.c.role_id, role_scopes.c.scope_id).where(
        role_scopes.c.tenant_id == _TENANT, role_scopes.c.role_id == any_(_IDS)
    )
    for role_id, scope_id in await transaction.connection.execute(statement, {"tenant": tenant_id, "ids": ids}):
        granted[role_id].append(scope_id)
    for row in await _rows(transaction.connection, roles, role_store.ROLE_COLUMNS, tenant_id, ids):
        role = role_store.Role(*row)
        transaction.record("role", (role.id,), "updated", role_state(role, tuple(sorted(granted[role.id]))))
    return _last(ids)


async def _record_applications(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, applications, tenant_id, after)
    secrets: dict[str, list[application_store.Secret]] = {application_id: [] for application_id in ids}
    statement = select(*application_store.SECRET_COLUMNS).where(
        application_secrets.c.tenant_id == _TENANT, application_secrets.c.application_id == any_(_IDS)
    )
    found = await transaction.connection.execute(statement, {"tenant": tenant_id, "ids": ids})
    for row in found:
        secrets[row.application_id].append(application_store.Secret(*row))
    for row in await _rows(transaction.connection, applications, application_store.COLUMNS, tenant_id, ids):
        application = application_store.application_from(row)
        state = application_state(application, secrets[application.id])
        transaction.record("application", (application.id,), "updated", state)
    await _record_assignments(transaction, "application", tenant_id, ids)
    return _last(ids)


async def _record_users(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, users, tenant_id, after)
    # Before the users: the policy of impersonations excludes users by their roles.
    await _record_assignments(transaction, "user", tenant_id, ids)
    for row in await _rows(transaction.connection, users, user_store.COLUMNS, tenant_id, ids):
        user = user_store.user_from(row)
        transaction.record("user", (user.id,), "updated", user_state(user))
    return _last(ids)


async def _record_connectors(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, connectors, tenant_id, after)
    for row in await _rows(transaction.connection, connectors, connector_store.COLUMNS, tenant_id, ids):
        record_connector(transaction, connector_store.connector_from(row), "updated")
    return _last(ids)


async def _record_groups(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    ids = await _lock_batch(transaction.connection, identities, tenant_id, after)
    for row in await _rows(transaction.connection, identities, connector_store.IDENTITY_COLUMNS, tenant_id, ids):
        identity = connector_store.identity_from(row)
        if identity.signed_in_at is not None:
            record_groups(transaction, identity)
    return _last(ids)


async def _record_claims_functions(tenant_id: str, transaction: Transaction, _: str) -> None:
    for version in await claims_function_store.lock_all_active(transaction.connection, tenant_id):
        transaction.record(CLAIMS_FUNCTION, (version.kind,), "updated", function_state(version))


async def _record_assignments(transaction: Transaction, kind: HolderKind, tenant_id: str, ids: list[str]) -> None:
    held = await holders.role_ids_of(transaction.connection, tenant_id, kind, ids)
    for holder_id, role_ids in held.items():
        record_assignment(transaction, kind, holder_id, role_ids)


async def _lock_batch(connection: AsyncConnection, table: Table, tenant_id: str, after: str) -> list[str]:
    """Return the next ids after this one, their rows locked against changes until the transaction ends."""
    statement = (
        select(table.c.id)
        .where(table.c.tenant_id == _TENANT, table.c.id > bindparam("after"))
        .order_by(table.c.id)
        .limit(BATCH)
        .with_for_update(read=True)
    )
    return list(await connection.scalars(statement, {"tenant": tenant_id, "after": after}))


async def _rows(
    connection: AsyncConnection, table: Table, columns: Sequence[ColumnElement[Any]], tenant_id: str, ids: list[str]
) -> Sequence[Any]:
    statement = select(*columns).where(table.c.tenant_id == _TENANT, table.c.id == any_(_IDS))
    return (await connection.execute(statement, {"tenant": tenant_id, "ids": ids})).all()


def _last(ids: list[str]) -> str | None:
    return ids[-1] if ids else None
