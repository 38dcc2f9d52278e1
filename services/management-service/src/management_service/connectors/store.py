"""Connectors and identities in PostgreSQL."""

from typing import Any, Final

import msgspec
from sqlalchemy import BindParameter, bindparam, delete, exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from management_service.connectors.rules import TrustedFactor
from management_service.schema import connectors, identities


class Connector(msgspec.Struct, frozen=True, kw_only=True):
    """A connector as stored.

    Attributes:
        actor_clients: Client ids for which the provider's ID tokens are accepted as actor tokens.
    """

    tenant_id: str
    id: str
    name: str
    issuer: str
    match_claim: str
    is_enabled: bool
    actor_clients: tuple[str, ...]
    trusted_factors: tuple[TrustedFactor, ...]
    created_at: int


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An identity of a user at a connector's provider, as stored."""

    tenant_id: str
    id: str
    user_id: str
    connector_id: str
    value: str
    created_at: int


_encode: Final = msgspec.json.Encoder().encode
_decode_factors: Final = msgspec.json.Decoder(tuple[TrustedFactor, ...]).decode

_COLUMNS: Final = tuple(connectors.c[name] for name in Connector.__struct_fields__)
_IDENTITY_COLUMNS: Final = tuple(identities.c[name] for name in Identity.__struct_fields__)
_TENANT: Final[BindParameter[str]] = bindparam("tenant")
_CONNECTOR: Final = (connectors.c.tenant_id == _TENANT, connectors.c.id == bindparam("connector"))
_FIND: Final = select(*_COLUMNS).where(*_CONNECTOR)
_LOCK: Final = _FIND.with_for_update()
_SHARE: Final = _FIND.with_for_update(read=True)
_FIND_BY_ISSUER: Final = select(*_COLUMNS).where(
    connectors.c.tenant_id == _TENANT, connectors.c.issuer == bindparam("issuer")
)
_LIST: Final = PagedList(
    select(*_COLUMNS)
    .where(connectors.c.tenant_id == _TENANT)
    .order_by(connectors.c.sort_key, connectors.c.name, connectors.c.id),
    searched=(connectors.c.name, connectors.c.issuer),
)
_HAS_IDENTITIES: Final = select(
    exists().where(identities.c.tenant_id == _TENANT, identities.c.connector_id == bindparam("connector"))
)
_OF_USER: Final = (identities.c.tenant_id == _TENANT, identities.c.user_id == bindparam("user"))
_LIST_IDENTITIES: Final = PagedList(
    select(*_IDENTITY_COLUMNS).where(*_OF_USER).order_by(identities.c.created_at, identities.c.id),
    searched=(identities.c.value,),
)
_DELETE_IDENTITY: Final = delete(identities).where(*_OF_USER, identities.c.id == bindparam("identity"))
_USER_OF: Final = select(identities.c.user_id).where(
    identities.c.tenant_id == _TENANT,
    identities.c.connector_id == bindparam("connector"),
    identities.c.value == bindparam("value"),
)


async def insert_connector(connection: AsyncConnection, connector: Connector) -> None:
    """Store a new connector."""
    await connection.execute(insert(connectors), _values(connector))


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
    return [_connector(row) for row in rows], total


async def update_connector(connection: AsyncConnection, connector: Connector) -> None:
    """Store a changed connector."""
    values = _values(connector)
    by_id = {"tenant": values.pop("tenant_id"), "connector": values.pop("id")}
    await connection.execute(update(connectors).where(*_CONNECTOR).values(values), by_id)


async def delete_connector(connection: AsyncConnection, tenant_id: str, connector_id: str) -> bool:
    """Delete a connector with its identities; return whether it existed."""
    values = {"tenant": tenant_id, "connector": connector_id}
    return bool((await connection.execute(delete(connectors).where(*_CONNECTOR), values)).rowcount)


async def has_identities(connection: AsyncConnection, tenant_id: str, connector_id: str) -> bool:
    """Return whether users are known by the connector."""
    return bool(await connection.scalar(_HAS_IDENTITIES, {"tenant": tenant_id, "connector": connector_id}))


async def insert_identity(connection: AsyncConnection, identity: Identity) -> None:
    """Store a new identity."""
    await connection.execute(insert(identities), msgspec.structs.asdict(identity))


async def list_identities(
    connection: AsyncConnection, tenant_id: str, user_id: str, page: Page
) -> tuple[list[Identity], int]:
    """Return a page of a user's identities, in the order of their creation, and their total."""
    rows, total = await _LIST_IDENTITIES.fetch(connection, {"tenant": tenant_id, "user": user_id}, page)
    return [Identity(**dict(zip(Identity.__struct_fields__, row, strict=True))) for row in rows], total


async def delete_identity(connection: AsyncConnection, tenant_id: str, user_id: str, identity_id: str) -> bool:
    """Delete an identity of a user; return whether it existed."""
    values = {"tenant": tenant_id, "user": user_id, "identity": identity_id}
    return bool((await connection.execute(_DELETE_IDENTITY, values)).rowcount)


async def user_with_identity(connection: AsyncConnection, connector: Connector, value: str) -> str | None:
    """Return the id of the user who has this identity; None if none has it."""
    values = {"tenant": connector.tenant_id, "connector": connector.id, "value": value}
    found: str | None = await connection.scalar(_USER_OF, values)
    return found


async def _one(connection: AsyncConnection, statement: Any, values: dict[str, str]) -> Connector | None:
    row = (await connection.execute(statement, values)).one_or_none()
    return None if row is None else _connector(row)


def _connector(row: Any) -> Connector:
    values = dict(zip(Connector.__struct_fields__, row, strict=True))
    values["actor_clients"] = tuple(values["actor_clients"])
    values["trusted_factors"] = _decode_factors(values["trusted_factors"])
    return Connector(**values)


def _values(connector: Connector) -> dict[str, Any]:
    values = msgspec.structs.asdict(connector)
    values["actor_clients"] = list(connector.actor_clients)
    values["trusted_factors"] = _encode(connector.trusted_factors).decode()
    return values
