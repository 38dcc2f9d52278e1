"""Publishes which permissions may have been lost, for the not-valid feed (docs/decisions/0025).

Recorded after the change itself, in its transaction: a revision that includes the narrowing includes the change.
"""

import hashlib
from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import ARRAY, Text, any_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.outbox.changes import Transaction
from identity_common.wire.events import HolderKind, NarrowingState
from management_service.schema import resources, scopes

_NAMED: Final = (
    select(resources.c.indicator, scopes.c.name)
    .join(scopes, (scopes.c.tenant_id == resources.c.tenant_id) & (scopes.c.resource_id == resources.c.id))
    .where(scopes.c.tenant_id == bindparam("tenant"), scopes.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
    .order_by(scopes.c.id)
)


class NamedScope(NamedTuple):
    """A scope as it is named in tokens."""

    indicator: str
    name: str


async def named_scopes(connection: AsyncConnection, tenant_id: str, scope_ids: Collection[str]) -> list[NamedScope]:
    """Return the names of the scopes that exist."""
    if not scope_ids:
        return []
    rows = await connection.execute(_NAMED, {"tenant": tenant_id, "ids": list(scope_ids)})
    return [NamedScope(*row) for row in rows]


def record_lost_scopes(transaction: Transaction, lost: Collection[NamedScope]) -> None:
    """Record that tokens may name scopes that their holders have lost: a role granted them, or they were renamed."""
    for scope in lost:
        # Keyed by name: another scope with this name, or a later name of it, must not replace the event on the bus.
        id_ = hashlib.sha256("\n".join(scope).encode()).hexdigest()[:32]
        state = NarrowingState(id=id_, kind="scope", indicator=scope.indicator, name=scope.name)
        transaction.record("narrowing", ("scope", id_), "updated", state)


def record_lost_roles(transaction: Transaction, kind: HolderKind, holder_id: str) -> None:
    """Record that a user or application lost a role."""
    transaction.record("narrowing", (kind, holder_id), "updated", NarrowingState(id=holder_id, kind=kind))
