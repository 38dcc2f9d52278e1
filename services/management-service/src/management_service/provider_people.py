"""The people of connectors: they sign in at a provider, and passwords here are closed to them.

Owns who they are: users with an identity at an open connector, or an address in one of its domains, except those for
whom an administrator allows passwords; and which of them are known to get in there. Does not own what is closed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import (
    ARRAY,
    BindParameter,
    ColumnElement,
    ScalarSelect,
    Text,
    and_,
    any_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.email_domains import domain_of
from management_service.schema import connector_domains, connectors, identities, users

_OPEN: Final = (connectors.c.is_enabled, connectors.c.client_id.is_not(None))
_TENANT: Final[BindParameter[str]] = bindparam("tenant")
_OPEN_DOMAINS: Final = (
    select(connector_domains.c.domain)
    .join(
        connectors,
        (connectors.c.tenant_id == connector_domains.c.tenant_id)
        & (connectors.c.id == connector_domains.c.connector_id),
    )
    .where(*_OPEN)
)
_DOMAINS: Final[ScalarSelect[Sequence[str]]] = select(
    func.array(
        _OPEN_DOMAINS.where(connector_domains.c.tenant_id == _TENANT).scalar_subquery(),
        type_=ARRAY(Text),
    )
).scalar_subquery()


def _has_identity(*which: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether a user has one of these; as a value, since PostgreSQL would read all identities for EXISTS."""
    of_user = (
        select(identities.c.id)
        .join(
            connectors,
            (connectors.c.tenant_id == identities.c.tenant_id) & (connectors.c.id == identities.c.connector_id),
        )
        .where(identities.c.tenant_id == users.c.tenant_id, identities.c.user_id == users.c.id, *_OPEN, *which)
        .correlate(users)
        .limit(literal_column("1"))
    )
    return of_user.scalar_subquery().is_not(None)


_HAS_IDENTITY: Final = _has_identity()
GETS_IN_THERE: Final = _has_identity(identities.c.signed_in_at >= connectors.c.admits_since)
"""Whether a user has signed in at a provider since its connector admits people as it does now."""

EMAIL_DOMAIN: Final = func.lower(func.split_part(users.c.primary_email, "@", -1).collate("C"))
_IS_ASCII: Final = EMAIL_DOMAIN.regexp_match("^[ -~]*$")
_HAS_OPEN_DOMAIN: Final = (
    _OPEN_DOMAINS.where(connector_domains.c.tenant_id == users.c.tenant_id, connector_domains.c.domain == EMAIL_DOMAIN)
    .correlate(users)
    .exists()
)
MAY_USE_PASSWORD: Final = or_(
    users.c.allows_password,
    and_(~_HAS_IDENTITY, or_(users.c.primary_email.is_(None), and_(_IS_ASCII, ~_HAS_OPEN_DOMAIN))),
)
"""Whether passwords are not closed to a user; false where ``ONLY_DOMAIN_DECIDES``."""
ONLY_DOMAIN_DECIDES: Final = and_(~users.c.allows_password, ~_HAS_IDENTITY, ~_IS_ASCII)
"""Whether it depends on ``EMAIL_DOMAIN``, of which ``is_at_provider`` knows all spellings."""


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

    def opens_with(self, address: str) -> bool:
        """Return whether another address would open passwords that are closed to the user."""
        return self.is_at_provider and not msgspec.structs.replace(self, primary_email=address).is_at_provider


COLUMNS: Final = (
    users.c.allows_password,
    _HAS_IDENTITY.label("has_identity"),
    users.c.primary_email,
    _DOMAINS.label("domains"),
)
"""The columns of ``WayIn``, for a query of users; it needs the parameter ``tenant``."""

_FIND: Final = select(*COLUMNS).where(users.c.tenant_id == _TENANT, users.c.id == bindparam("user"))
_FIND_THESE: Final = select(users.c.id, GETS_IN_THERE, *COLUMNS).where(
    users.c.tenant_id == _TENANT, users.c.id == any_(bindparam("users", type_=ARRAY(Text)))
)
_SIGNS_IN_ELSEWHERE: Final = select(
    and_(~users.c.allows_password, _has_identity(identities.c.connector_id != bindparam("connector")))
).where(users.c.tenant_id == _TENANT, users.c.id == bindparam("user"))
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


async def signs_in_elsewhere(connection: AsyncConnection, tenant_id: str, user_id: str, *, than: str) -> bool:
    """Return whether the provider of another connector than this decides whether a user goes on signing in."""
    values = {"tenant": tenant_id, "user": user_id, "connector": than}
    return bool(await connection.scalar(_SIGNS_IN_ELSEWHERE, values))


async def find_people(connection: AsyncConnection, tenant_id: str, user_ids: Sequence[str]) -> dict[str, bool]:
    """Return which of these users have passwords closed to them, and whether each gets in at a provider."""
    rows = await connection.execute(_FIND_THESE, {"tenant": tenant_id, "users": list(user_ids)})
    return {user_id: gets_in for user_id, gets_in, *way_in in rows if WayIn(*way_in).is_at_provider}


async def belongs_to_provider(connection: AsyncConnection, tenant_id: str, address: str) -> bool:
    """Return whether the owner of an address, who may have no account, signs in at a provider."""
    return is_at_provider(address, await find_domains(connection, tenant_id))


async def find_domains(connection: AsyncConnection, tenant_id: str) -> Sequence[str]:
    """Return the domains of all open connectors."""
    return await connection.scalar(_FIND_DOMAINS, {"tenant": tenant_id}) or ()
