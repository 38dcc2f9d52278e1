"""The people of connectors: they sign in at a provider, and passwords here are closed to them.

Owns who they are: users with an identity at an open connector, or an address in one of its domains, except those for
whom an administrator allows passwords. Does not own what is closed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import ARRAY, BindParameter, ScalarSelect, Text, bindparam, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.email_domains import domain_of
from management_service.schema import connector_domains, connectors, identities, users

_OPEN: Final = (connectors.c.is_enabled, connectors.c.client_id.is_not(None))
_TENANT: Final[BindParameter[str]] = bindparam("tenant")
_DOMAINS: Final[ScalarSelect[Sequence[str]]] = select(
    func.array(
        select(connector_domains.c.domain)
        .join(
            connectors,
            (connectors.c.tenant_id == connector_domains.c.tenant_id)
            & (connectors.c.id == connector_domains.c.connector_id),
        )
        .where(connector_domains.c.tenant_id == _TENANT, *_OPEN)
        .scalar_subquery(),
        type_=ARRAY(Text),
    )
).scalar_subquery()
_HAS_IDENTITY: Final = exists(
    select(identities.c.id)
    .join(
        connectors,
        (connectors.c.tenant_id == identities.c.tenant_id) & (connectors.c.id == identities.c.connector_id),
    )
    .where(identities.c.tenant_id == users.c.tenant_id, identities.c.user_id == users.c.id, *_OPEN)
    .correlate(users)
)


class WayIn(msgspec.Struct, frozen=True):
    """What decides whether a user signs in at a provider.

    Attributes:
        allows_password: Whether an administrator allows passwords nevertheless.
        has_identity: Whether the user has an identity at an open connector.
        domains: The domains of all open connectors.
    """

    allows_password: bool
    has_identity: bool
    primary_email: str | None
    domains: Sequence[str]

    @property
    def is_at_provider(self) -> bool:
        """Whether passwords are closed to the user."""
        if self.allows_password:
            return False
        return self.has_identity or is_at_provider(self.primary_email, self.domains)


COLUMNS: Final = (
    users.c.allows_password,
    _HAS_IDENTITY.label("has_identity"),
    users.c.primary_email,
    _DOMAINS.label("domains"),
)
"""The columns of ``WayIn``, for a query of users; it needs the parameter ``tenant``."""

_FIND: Final = select(*COLUMNS).where(users.c.tenant_id == _TENANT, users.c.id == bindparam("user"))
_FIND_DOMAINS: Final = select(_DOMAINS)


def is_at_provider(address: str | None, domains: Sequence[str]) -> bool:
    """Return whether an address is in one of these domains."""
    return bool(domains) and address is not None and domain_of(address) in domains


async def find_way_in(connection: AsyncConnection, tenant_id: str, user_id: str) -> WayIn | None:
    """Return what decides whether a user signs in at a provider; None without such a user."""
    row = (await connection.execute(_FIND, {"tenant": tenant_id, "user": user_id})).one_or_none()
    return None if row is None else WayIn(*row)


async def signs_in_at_provider(connection: AsyncConnection, tenant_id: str, user_id: str) -> bool:
    """Return whether passwords are closed to a user."""
    way_in = await find_way_in(connection, tenant_id, user_id)
    return way_in is not None and way_in.is_at_provider


async def belongs_to_provider(connection: AsyncConnection, tenant_id: str, address: str) -> bool:
    """Return whether the owner of an address, who may have no account, signs in at a provider."""
    return is_at_provider(address, await connection.scalar(_FIND_DOMAINS, {"tenant": tenant_id}) or ())
