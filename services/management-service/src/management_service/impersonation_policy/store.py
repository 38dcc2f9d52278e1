"""The policy in PostgreSQL; a tenant without a row has the default."""

from collections.abc import Collection
from typing import Final

import msgspec
from sqlalchemy import ARRAY, RowMapping, Text, any_, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert as insert_or_ignore
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.wire.events import DemandedLevel, RoleType
from management_service.schema import impersonation_policies as policies
from management_service.schema import roles


class ImpersonationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What impersonations need, and which users they exclude.

    Attributes:
        tenant_id: The tenant.
        require_actor: Whether an exchange needs an actor token.
        require_context: Names of members that the context of a subject token must have, each once.
        excluded_roles: Sorted ids of roles whose holders cannot be impersonated.
        actor_max_age_s: How long ago an actor may have signed in, seconds; None for any time.
        actor_acr: How strongly an actor must have signed in; None for any sign-in.
    """

    tenant_id: str
    require_actor: bool = False
    require_context: tuple[str, ...] = ()
    excluded_roles: tuple[str, ...] = ()
    actor_max_age_s: int | None = None
    actor_acr: DemandedLevel | None = None


_OF_TENANT: Final = policies.c.tenant_id == bindparam("tenant")
_FIND: Final = select(policies).where(_OF_TENANT)
_LOCK: Final = _FIND.with_for_update()
_INSERT: Final = insert_or_ignore(policies).on_conflict_do_nothing()
_UPDATE: Final = update(policies).where(_OF_TENANT)
_REMOVE_ROLE: Final = (
    update(policies)
    .where(_OF_TENANT, bindparam("role", type_=Text) == any_(policies.c.excluded_roles))
    .values(excluded_roles=func.array_remove(policies.c.excluded_roles, bindparam("role", type_=Text)))
    .returning(policies)
)
# Locked in the order of ids, so that two transactions cannot deadlock.
_LOCK_ROLES: Final = (
    select(roles.c.id, roles.c.type)
    .where(roles.c.tenant_id == bindparam("tenant"), roles.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
    .order_by(roles.c.id)
    .with_for_update(read=True, key_share=True)
)


async def find_policy(connection: AsyncConnection, tenant_id: str) -> ImpersonationPolicy | None:
    """Return the policy; None if it was never set."""
    row = (await connection.execute(_FIND, {"tenant": tenant_id})).mappings().one_or_none()
    return None if row is None else _policy(row)


async def lock_policy(connection: AsyncConnection, tenant_id: str) -> ImpersonationPolicy:
    """Return the policy, locked against changes until the transaction ends; store the default if it was never set."""
    await insert_policy(connection, ImpersonationPolicy(tenant_id=tenant_id))
    return _policy((await connection.execute(_LOCK, {"tenant": tenant_id})).mappings().one())


async def insert_policy(connection: AsyncConnection, policy: ImpersonationPolicy) -> bool:
    """Store the policy if it was never set; return whether it was not."""
    return bool((await connection.execute(_INSERT, _values(policy))).rowcount)


async def update_policy(connection: AsyncConnection, policy: ImpersonationPolicy) -> None:
    """Store a locked policy."""
    await connection.execute(_UPDATE.values(_values(policy)), {"tenant": policy.tenant_id})


async def remove_role(connection: AsyncConnection, tenant_id: str, role_id: str) -> ImpersonationPolicy | None:
    """Take a role out of the policy; return the changed policy, None if it did not name the role."""
    row = (await connection.execute(_REMOVE_ROLE, {"tenant": tenant_id, "role": role_id})).mappings().one_or_none()
    return None if row is None else _policy(row)


async def lock_roles(connection: AsyncConnection, tenant_id: str, role_ids: Collection[str]) -> dict[str, RoleType]:
    """Return the types of the roles that exist, locked against deletion until the transaction ends."""
    found = await connection.execute(_LOCK_ROLES, {"tenant": tenant_id, "ids": list(role_ids)})
    return {row.id: row.type for row in found}


def _values(policy: ImpersonationPolicy) -> dict[str, object]:
    return {
        **msgspec.structs.asdict(policy),
        "require_context": [*policy.require_context],
        "excluded_roles": [*policy.excluded_roles],
    }


def _policy(row: RowMapping) -> ImpersonationPolicy:
    return ImpersonationPolicy(
        tenant_id=row["tenant_id"],
        require_actor=row["require_actor"],
        require_context=tuple(row["require_context"]),
        excluded_roles=tuple(row["excluded_roles"]),
        actor_max_age_s=row["actor_max_age_s"],
        actor_acr=row["actor_acr"],
    )
