"""Ends of impersonations: requested, or caused by a change of a party.

They explain why a token is refused, but do not refuse it: token-service judges tokens by the state itself. The end of a
deleted resource has one more use: tokens for a new resource with the same indicator are valid only from its creation.
"""

from collections.abc import Collection
from typing import Final, Literal

import asyncpg
import msgspec
from sqlalchemy import ARRAY, Text, any_, bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.audited_request import audited_request
from management_service.schema import party_ends

ENDED: Final = "ended"
"""The cause of a requested end, which covers the impersonations that had begun by then."""

Cause = Literal["suspended", "deleted", "password", "factors", "exchange_off", "ended"]

_KEPT_MS: Final = 366 * 86_400_000
"""An access token is valid for no longer."""

_FORGET: Final = "DELETE FROM party_ends WHERE tenant_id = $1 AND ended_at < $2"
_PUT: Final = insert(party_ends).on_conflict_do_nothing()
_FIND: Final = (
    select(party_ends.c.party, party_ends.c.ended_at, party_ends.c.cause, party_ends.c.ended_by)
    .where(
        party_ends.c.tenant_id == bindparam("tenant"),
        party_ends.c.party == any_(bindparam("parties", type_=ARRAY(Text))),
    )
    .order_by(party_ends.c.ended_at)
)


class PartyEnd(msgspec.Struct, frozen=True):
    """An end of all impersonations with a party, or of one.

    Attributes:
        ended_at: Milliseconds since the epoch.
        cause: What happened to the party.
        ended_by: The user or, without one, the application whose request did it; None if no request did.
    """

    ended_at: int
    cause: str
    ended_by: str | None


def user_party(user_id: str) -> str:
    """Return the party of a user."""
    return f"user:{user_id}"


def client_party(application_id: str) -> str:
    """Return the party of an application."""
    return f"client:{application_id}"


def resource_party(indicator: str) -> str:
    """Return the party of a resource."""
    return f"resource:{indicator}"


def impersonation_party(impersonation_id: str) -> str:
    """Return the party that stands for one impersonation."""
    return f"impersonation:{impersonation_id}"


async def put_party_end(connection: AsyncConnection, tenant_id: str, party: str, cause: Cause, *, now: int) -> None:
    """Store an end, caused by the current request."""
    request = audited_request()
    await connection.execute(
        _PUT,
        {
            "tenant_id": tenant_id,
            "party": party,
            "ended_at": now,
            "cause": cause,
            "ended_by": None if request is None else request.user_id or request.application_id,
        },
    )


async def forget_party_ends(connection: asyncpg.Connection, tenant_id: str, *, now: int, trail_kept_ms: int) -> None:
    """Delete the ends that neither an entry of the trail nor a valid token can refer to.

    Args:
        connection: The database.
        tenant_id: The tenant.
        now: Milliseconds since the epoch.
        trail_kept_ms: How long the audit trail keeps an entry at most.
    """
    await connection.execute(_FORGET, tenant_id, now - max(_KEPT_MS, trail_kept_ms))


async def find_party_ends(
    connection: AsyncConnection, tenant_id: str, parties: Collection[str]
) -> dict[str, list[PartyEnd]]:
    """Return the ends of these parties, oldest first."""
    found: dict[str, list[PartyEnd]] = {}
    for row in await connection.execute(_FIND, {"tenant": tenant_id, "parties": list(parties)}):
        found.setdefault(row.party, []).append(PartyEnd(row.ended_at, row.cause, row.ended_by))
    return found
