"""The policy in PostgreSQL; a tenant without a row has the default."""

from typing import Final

import msgspec
from sqlalchemy import RowMapping, bindparam, select, update
from sqlalchemy.dialects.postgresql import insert as insert_or_ignore
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.schema import sign_in_policies as policies
from management_service.sign_in_policy.rules import SignInPolicy

_OF_TENANT: Final = policies.c.tenant_id == bindparam("tenant")
_FIND: Final = select(policies).where(_OF_TENANT)
_LOCK: Final = _FIND.with_for_update()
_INSERT: Final = insert_or_ignore(policies).on_conflict_do_nothing()
_UPDATE: Final = update(policies).where(_OF_TENANT)


async def find_policy(connection: AsyncConnection, tenant_id: str) -> SignInPolicy | None:
    """Return the policy; None if it was never set."""
    row = (await connection.execute(_FIND, {"tenant": tenant_id})).mappings().one_or_none()
    return None if row is None else _policy(row)


async def lock_policy(connection: AsyncConnection, tenant_id: str) -> SignInPolicy:
    """Return the policy, locked against changes until the transaction ends; store the default if it was never set."""
    await connection.execute(_INSERT, _values(SignInPolicy(tenant_id=tenant_id)))
    return _policy((await connection.execute(_LOCK, {"tenant": tenant_id})).mappings().one())


async def update_policy(connection: AsyncConnection, policy: SignInPolicy) -> None:
    """Store a locked policy."""
    await connection.execute(_UPDATE.values(_values(policy)), {"tenant": policy.tenant_id})


def _values(policy: SignInPolicy) -> dict[str, object]:
    return {**msgspec.structs.asdict(policy), "registration_domains": [*policy.registration_domains]}


def _policy(row: RowMapping) -> SignInPolicy:
    return SignInPolicy(
        tenant_id=row["tenant_id"],
        registration=row["registration"],
        registration_domains=tuple(row["registration_domains"]),
        second_factor=row["second_factor"],
    )
