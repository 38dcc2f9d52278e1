"""Connectors and identities in PostgreSQL."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ARRAY, BindParameter, Text, any_, bindparam, delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from management_service.connectors.rules import RequiredClaim, TrustedFactor
from management_service.schema import connector_domains, connectors, identities


class Connector(msgspec.Struct, frozen=True, kw_only=True):
    """A connector as stored.

    Attributes:
        client_id: Id of the client at the provider; None if no one signs in through it.
        sealed_secret: The client's secret; None without a client, or for a public one.
        display_name: Its name on the sign-in page; None for ``name``.
        domains: Sorted, canonical domains of e-mail addresses, for which the provider speaks.
        allowed_domains: Sorted, canonical domains of the people who get a user; empty for all.
        actor_clients: Client ids for which the provider's ID tokens are accepted as actor tokens.
        closed_at: When it was opened or closed last, milliseconds since the epoch: sign-ins before that have ended.
        admits_since: When it was opened or closed last, or got another client or another required claim, milliseconds
            since the epoch: a sign-in before that does not show that its person can still sign in.
    """

    tenant_id: str
    id: str
    name: str
    issuer: str
    client_id: str | None
    sealed_secret: bytes | None
    scope: str
    match_claim: str
    is_enabled: bool
    domains: tuple[str, ...]
    display_name: str | None
    logo_uri: str | None
    allowed_domains: tuple[str, ...]
    required_claims: tuple[RequiredClaim, ...]
    groups_claim: str | None
    sync_profile: bool
    session_max_age_s: int | None
    actor_clients: tuple[str, ...]
    trusted_factors: tuple[TrustedFactor, ...]
    closed_at: int
    admits_since: int
    created_at: int

    @property
    def shown_name(self) -> str:
        """Its name for people."""
        return self.display_name or self.name

    @property
    def is_open(self) -> bool:
        """Whether people sign in through it."""
        return self.is_enabled and self.client_id is not None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An identity of a user at a connector's provider, as stored.

    Attributes:
        signed_in_at: When it was last signed in with, milliseconds since the epoch; None if it never was.
        email_domain: Of the verified address at that time.
        groups: At that time, sorted.
    """

    tenant_id: str
    id: str
    user_id: str
    connector_id: str
    value: str
    created_at: int
    signed_in_at: int | None = None
    email_domain: str | None = None
    groups: Sequence[str] = ()


_encode: Final = msgspec.json.Encoder().encode
_decode_factors: Final = msgspec.json.Decoder(tuple[TrustedFactor, ...]).decode

_decode_claims: Final = msgspec.json.Decoder(tuple[RequiredClaim, ...]).decode

_DOMAINS: Final = func.array(
    select(connector_domains.c.domain)
    .where(connector_domains.c.tenant_id == connectors.c.tenant_id, connector_domains.c.connector_id == connectors.c.id)
    .order_by(connector_domains.c.domain)
    .correlate(connectors)
    .scalar_subquery(),
    type_=ARRAY(Text),
).label("domains")
COLUMNS: Final = tuple(connectors.c.get(name, _DOMAINS) for name in Connector.__struct_fields__)
IDENTITY_COLUMNS: Final = tuple(identities.c[name] for name in Identity.__struct_fields__)
_TENANT: Final[BindParameter[str]] = bindparam("tenant")
_CONNECTOR: Final = (connectors.c.tenant_id == _TENANT, connectors.c.id == bindparam("connector"))
_FIND: Final = select(*COLUMNS).where(*_CONNECTOR)
_LOCK: Final = _FIND.with_for_update()
_SHARE: Final = _FIND.with_for_update(read=True)
_LOCK_ALL: Final = select(*COLUMNS).where(connectors.c.tenant_id == _TENANT).order_by(connectors.c.id).with_for_update()
_NAMES: Final = select(connectors.c.id, connectors.c.name, connectors.c.display_name).where(
    connectors.c.tenant_id == _TENANT, connectors.c.id == any_(bindparam("ids", type_=ARRAY(Text)))
)
_FIND_BY_ISSUER: Final = select(*COLUMNS).where(
    connectors.c.tenant_id == _TENANT, connectors.c.issuer == bindparam("issuer")
)
_LIST: Final = PagedList(
    select(*COLUMNS)
    .where(connectors.c.tenant_id == _TENANT)
    .order_by(connectors.c.sort_key, connectors.c.name, connectors.c.id),
    searched=(connectors.c.name, connectors.c.issuer),
)
_HAS_IDENTITIES: Final = select(
    exists().where(identities.c.tenant_id == _TENANT, identities.c.connector_id == bindparam("connector"))
)
_OF_USER: Final = (identities.c.tenant_id == _TENANT, identities.c.user_id == bindparam("user"))
_LIST_IDENTITIES: Final = PagedList(
    select(*IDENTITY_COLUMNS).where(*_OF_USER).order_by(identities.c.created_at, identities.c.id),
    searched=(identities.c.value,),
)
_OF_IDENTITY: Final = (identities.c.tenant_id == _TENANT, identities.c.id == bindparam("identity"))
_DELETE_DOMAINS: Final = delete(connector_domains).where(
    connector_domains.c.tenant_id == _TENANT, connector_domains.c.connector_id == bindparam("connector")
)
_FIND_IDENTITY: Final = select(*IDENTITY_COLUMNS).where(
    identities.c.tenant_id == _TENANT,
    identities.c.connector_id == bindparam("connector"),
    identities.c.value == bindparam("value"),
)
_DELETE_IDENTITY: Final = (
    delete(identities).where(*_OF_USER, identities.c.id == bindparam("identity")).returning(*IDENTITY_COLUMNS)
)
_USER_OF: Final = select(identities.c.user_id).where(
    identities.c.tenant_id == _TENANT,
    identities.c.connector_id == bindparam("connector"),
    identities.c.value == bindparam("value"),
)


async def insert_connector(connection: AsyncConnection, connector: Connector) -> None:
    """Store a new connector."""
    await connection.execute(insert(connectors), _values(connector))
    await _insert_domains(connection, connector)


async def find_connector(connection: AsyncConnection, tenant_id: str, connector_id: str) -> Connector | None:
    """Return a connector; None if there is none."""
    return await _one(connection, _FIND, {"tenant": tenant_id, "connector": connector_id})


async def find_by_issuer(connection: AsyncConnection, tenant_id: str, issuer: str) -> Connector | None:
    """Return the connector of an issuer; None if there is none."""
    return await _one(connection, _FIND_BY_ISSUER, {"tenant": tenant_id, "issuer": issuer})


async def lock_connector(
    connection: AsyncConnection, tenant_id: str, connector_id: str, *, shared: bool = False
) -> Connector | None:
    """Return a connector, locked against changes until the transaction ends; None if there is none."""
    return await _one(connection, _SHARE if shared else _LOCK, {"tenant": tenant_id, "connector": connector_id})


async def list_connectors(connection: AsyncConnection, tenant_id: str, page: Page) -> tuple[list[Connector], int]:
    """Return a page of the connectors, by name, and their total."""
    rows, total = await _LIST.fetch(connection, {"tenant": tenant_id}, page)
    return [connector_from(row) for row in rows], total


async def lock_all(connection: AsyncConnection, tenant_id: str) -> list[Connector]:
    """Return all connectors, locked against changes until the transaction ends, in the order of their ids."""
    return [connector_from(row) for row in await connection.execute(_LOCK_ALL, {"tenant": tenant_id})]


async def update_connector(connection: AsyncConnection, connector: Connector) -> None:
    """Store a changed connector."""
    values = _values(connector)
    by_id = {"tenant": values.pop("tenant_id"), "connector": values.pop("id")}
    await connection.execute(update(connectors).where(*_CONNECTOR).values(values), by_id)
    await connection.execute(_DELETE_DOMAINS, by_id)
    await _insert_domains(connection, connector)


async def delete_connector(connection: AsyncConnection, tenant_id: str, connector_id: str) -> None:
    """Delete a connector with its identities."""
    await connection.execute(delete(connectors).where(*_CONNECTOR), {"tenant": tenant_id, "connector": connector_id})


async def has_identities(connection: AsyncConnection, tenant_id: str, connector_id: str) -> bool:
    """Return whether users are known by the connector."""
    return bool(await connection.scalar(_HAS_IDENTITIES, {"tenant": tenant_id, "connector": connector_id}))


async def insert_identity(connection: AsyncConnection, identity: Identity) -> None:
    """Store a new identity."""
    values = msgspec.structs.asdict(identity) | {"groups": list(identity.groups)}
    await connection.execute(insert(identities), values)


async def list_identities(
    connection: AsyncConnection, tenant_id: str, user_id: str, page: Page
) -> tuple[list[Identity], int]:
    """Return a page of a user's identities, in the order of their creation, and their total."""
    rows, total = await _LIST_IDENTITIES.fetch(connection, {"tenant": tenant_id, "user": user_id}, page)
    return [identity_from(row) for row in rows], total


async def delete_identity(
    connection: AsyncConnection, tenant_id: str, user_id: str, identity_id: str
) -> Identity | None:
    """Delete and return an identity of a user; None if there is none."""
    values = {"tenant": tenant_id, "user": user_id, "identity": identity_id}
    row = (await connection.execute(_DELETE_IDENTITY, values)).one_or_none()
    return None if row is None else identity_from(row)


async def find_identity(connection: AsyncConnection, connector: Connector, value: str) -> Identity | None:
    """Return the identity with this value at a connector's provider; None if there is none."""
    values = {"tenant": connector.tenant_id, "connector": connector.id, "value": value}
    row = (await connection.execute(_FIND_IDENTITY, values)).one_or_none()
    return None if row is None else identity_from(row)


async def update_identity(connection: AsyncConnection, identity: Identity) -> bool:
    """Store what the last sign-in with an identity has said; return whether the identity still exists."""
    values = {
        "signed_in_at": identity.signed_in_at,
        "email_domain": identity.email_domain,
        "groups": list(identity.groups),
    }
    by_id = {"tenant": identity.tenant_id, "identity": identity.id}
    return bool((await connection.execute(update(identities).where(*_OF_IDENTITY).values(values), by_id)).rowcount)


async def shown_names(connection: AsyncConnection, tenant_id: str, connector_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of connectors for people, by id."""
    rows = await connection.execute(_NAMES, {"tenant": tenant_id, "ids": list(connector_ids)})
    return {row.id: row.display_name or row.name for row in rows}


def subject_of(connector_id: str, value: str) -> str:
    """Return what stands for a person at a connector's provider where the value itself is of no use."""
    return hashlib.sha256(f"{connector_id} {value}".encode()).hexdigest()[:32]


async def user_with_identity(connection: AsyncConnection, connector: Connector, value: str) -> str | None:
    """Return the id of the user who has this identity; None if none has it."""
    values = {"tenant": connector.tenant_id, "connector": connector.id, "value": value}
    found: str | None = await connection.scalar(_USER_OF, values)
    return found


async def _insert_domains(connection: AsyncConnection, connector: Connector) -> None:
    of_connector = {"tenant_id": connector.tenant_id, "connector_id": connector.id}
    if connector.domains:
        rows = [of_connector | {"domain": domain} for domain in connector.domains]
        await connection.execute(insert(connector_domains), rows)


async def _one(connection: AsyncConnection, statement: Any, values: dict[str, str]) -> Connector | None:
    row = (await connection.execute(statement, values)).one_or_none()
    return None if row is None else connector_from(row)


def connector_from(row: Any) -> Connector:
    """Return the connector of a row with ``COLUMNS``."""
    values = dict(zip(Connector.__struct_fields__, row, strict=True))
    for name in ("domains", "allowed_domains", "actor_clients"):
        values[name] = tuple(values[name])
    values["trusted_factors"] = _decode_factors(values["trusted_factors"])
    values["required_claims"] = _decode_claims(values["required_claims"])
    return Connector(**values)


def identity_from(row: Any) -> Identity:
    """Return the identity of a row with ``IDENTITY_COLUMNS``."""
    return Identity(**dict(zip(Identity.__struct_fields__, row, strict=True)))


def _values(connector: Connector) -> dict[str, Any]:
    values = msgspec.structs.asdict(connector)
    del values["domains"]
    for name in ("allowed_domains", "actor_clients"):
        values[name] = list(values[name])
    for name in ("trusted_factors", "required_claims"):
        values[name] = _encode(values[name]).decode()
    return values
