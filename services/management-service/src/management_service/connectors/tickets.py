"""Tickets for links, which token-service keeps while the owner of an account signs in; and what counts once."""

import base64
import binascii
import hashlib
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_secret
from identity_common.sealing import NoFittingKeyError, SealingKeys
from management_service.connectors.people import Person
from management_service.connectors.store import Connector
from management_service.schema import spent_tickets
from management_service.users.store import User

LIFETIME_S: Final = 900
_MS: Final = 1000

_PRUNE: Final = delete(spent_tickets).where(
    spent_tickets.c.tenant_id == bindparam("tenant"), spent_tickets.c.expires_at < bindparam("now")
)
_SPEND: Final = insert(spent_tickets).on_conflict_do_nothing()


class LinkTicket(msgspec.Struct, frozen=True, kw_only=True):
    """Lets an identity be linked to an account, once.

    Attributes:
        id: Random.
        issuer: The provider at which the person has signed in; the connector must still be to it.
        match_claim: The claim that identifies the person there; it must still be the connector's.
        admits_since: The connector's; a required claim that was added since then was not judged, and ends the ticket.
        user_id: The account.
        tokens_valid_after: The account's; a new password or a suspension ends the ticket.
        address: The account's; another one ends the ticket.
        person: Who has signed in at the provider.
        expires_at: Milliseconds since the epoch.
    """

    id: str
    connector_id: str
    issuer: str
    match_claim: str
    user_id: str
    tokens_valid_after: int
    address: str | None
    person: Person
    expires_at: int
    admits_since: int = 0

    def __repr__(self) -> str:
        """Hide the person."""
        return f"LinkTicket(user_id={self.user_id!r})"

    def fits(self, user: User) -> bool:
        """Return whether the account is still as it was, and its address verified."""
        is_same = (user.id, user.tokens_valid_after, user.primary_email) == (
            self.user_id,
            self.tokens_valid_after,
            self.address,
        )
        return is_same and user.is_email_verified and not user.is_suspended


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(LinkTicket).decode


class LinkTickets:
    """The tickets of one tenant.

    Args:
        sealing: Seals them; no other service knows its keys.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, sealing: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._sealing = sealing
        self._name = f"provider-link.{tenant_id}"
        self._clock = clock

    def issue(self, connector: Connector, user: User, person: Person) -> str:
        """Return a ticket, sealed."""
        ticket = LinkTicket(
            id=new_secret(),
            connector_id=connector.id,
            issuer=connector.issuer,
            match_claim=connector.match_claim,
            user_id=user.id,
            tokens_valid_after=user.tokens_valid_after,
            address=user.primary_email,
            person=person,
            expires_at=self._clock() + LIFETIME_S * _MS,
            admits_since=connector.admits_since,
        )
        return base64.urlsafe_b64encode(self._sealing.seal(_encode(ticket), name=self._name)).decode()

    def open(self, sealed: str) -> LinkTicket | None:
        """Return a ticket; None if it is not genuine, or has expired."""
        try:
            ticket = _decode(self._sealing.open(base64.urlsafe_b64decode(sealed), name=self._name))
        except (NoFittingKeyError, msgspec.DecodeError, binascii.Error, ValueError):
            return None
        return ticket if self._clock() < ticket.expires_at else None

    def is_of(self, sealed: str | None, user_id: str) -> bool:
        """Return whether a ticket is for the account of a user."""
        ticket = None if sealed is None else self.open(sealed)
        return ticket is not None and ticket.user_id == user_id


async def spend(connection: AsyncConnection, tenant_id: str, ticket: str, *, expires_at: int, now: int) -> bool:
    """Return whether this counts for the first time; of concurrent transactions only one gets True, if it commits.

    Args:
        connection: Of the transaction.
        tenant_id: The tenant.
        ticket: What counts once.
        expires_at: Until when it would count, milliseconds since the epoch.
        now: Milliseconds since the epoch.
    """
    await connection.execute(_PRUNE, {"tenant": tenant_id, "now": now})
    row = {"tenant_id": tenant_id, "sha256": hashlib.sha256(ticket.encode()).hexdigest(), "expires_at": expires_at}
    return bool((await connection.execute(_SPEND, row)).rowcount)
