"""What happened to a user, an application or a resource that ended the impersonations with it, for their stories.

It says why a token is refused, and does not refuse it: tokens are judged by the state itself, in token-service. That of
a resource says from when on its tokens are valid if there was one of the same indicator, which is known from here.
"""

from collections.abc import Collection
from typing import Final, Literal

import msgspec
from sqlalchemy import ARRAY, Text, any_, bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.http.audited_request import audited_request
from management_service.schema import party_ends

Cause = Literal["suspended", "deleted", "password", "exchange_off"]

KEPT_MS: Final = 366 * 86_400_000
"""As long as an access token may be valid."""

_FORGET: Final = (
    delete(party_ends)
    .where(party_ends.c.tenant_id == bindparam("tenant"), party_ends.c.ended_at < bindparam("before"))
    .cte("forgotten")
)
_PUT: Final = insert(party_ends).on_conflict_do_nothing().add_cte(_FORGET)
_FIND: Final = (
    select(party_ends.c.party, party_ends.c.ended_at, party_ends.c.cause, party_ends.c.ended_by)
    .where(
        party_ends.c.tenant_id == bindparam("tenant"),
        party_ends.c.party == any_(bindparam("parties", type_=ARRAY(Text))),
    )
    .order_by(party_ends.c.ended_at)
)


class PartyEnd(msgspec.Struct, frozen=True):
    """An end of all impersonations with a party.

    Attributes:
        ended_at: Milliseconds since the epoch.
        cause: What happened to the party.
        ended_by: The user or, without one, the application that did it; None for no request.
    """

    ended_at: int
    cause: str
    ended_by: str | None


def user_party(user_id: str) -> str:
    """Return the name of a user."""
    return f"user:{user_id}"


def client_party(application_id: str) -> str:
    """Return the name of an application."""
    return f"client:{application_id}"


def resource_party(indicator: str) -> str:
    """Return the name of a resource."""
    return f"resource:{indicator}"


async def put_party_end(connection: AsyncConnection, tenant_id: str, party: str, cause: Cause, *, now: int) -> None:
    """Store an end, done by the handled request, and forget those that concern no valid token any more."""
    request = audited_request()
    await connection.execute(
        _PUT,
        {
            "tenant_id": tenant_id,
            "party": party,
            "ended_at": now,
            "cause": cause,
            "ended_by": None if request is None else request.user_id or request.application_id,
            "tenant": tenant_id,
            "before": now - KEPT_MS,
        },
    )


async def find_party_ends(
    connection: AsyncConnection, tenant_id: str, parties: Collection[str]
) -> dict[str, list[PartyEnd]]:
    """Return the ends of these parties, oldest first."""
    found: dict[str, list[PartyEnd]] = {}
    for row in await connection.execute(_FIND, {"tenant": tenant_id, "parties": list(parties)}):
        found.setdefault(row.party, []).append(PartyEnd(row.ended_at, row.cause, row.ended_by))
    return found
