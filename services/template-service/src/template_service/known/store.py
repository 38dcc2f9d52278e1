"""The projection of management-service in PostgreSQL: its position, and the states of its aggregates."""

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import ARRAY, BigInteger, BindParameter, Boolean, Text, any_, bindparam, delete, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from identity_common.search import search_key
from identity_common.wire.events import ApplicationState, ConnectorState, ResourceState, ScopeState, UserState
from template_service.schema import known_applications, known_connectors, known_resources, known_scopes, known_users

Kind = Literal["user", "application", "resource", "scope", "connector"]


class Position(msgspec.Struct, frozen=True):
    """The position of the projection.

    Attributes:
        stream: Identifies the incarnation of the stream.
        sequence: The last message that was applied.
        revision: Management's watermark; -1 before the first.
        complete: Whether the first load has reached the end of the stream.
        read_revision: The highest watermark read; it becomes ``revision`` at the end of the stream.
        applied_revision: Of the last sign-in through a connector that was applied; -1 before the first.
    """

    stream: str = ""
    sequence: int = 0
    revision: int = -1
    complete: bool = False
    read_revision: int = -1
    applied_revision: int = -1


class Known(msgspec.Struct, frozen=True):
    """The state of one aggregate.

    Attributes:
        revision: Of the event; an older one does not replace a newer state.
    """

    state: Any
    revision: int


def _arrays(**types: type) -> list[BindParameter[Any]]:
    kinds: dict[type, type[TypeEngine[Any]]] = {str: Text, int: BigInteger, bool: Boolean}
    return [bindparam(name, type_=ARRAY(kinds[kind])) for name, kind in types.items()]


_TENANT: Final = bindparam("tenant", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))

_READ_POSITION: Final = text(
    "SELECT stream, sequence, revision, complete, read_revision, applied_revision FROM projection_position "
    "WHERE tenant_id = :tenant"
)
_LOCK_POSITION: Final = text(
    """
    INSERT INTO projection_position AS held (tenant_id, stream, sequence, revision, complete)
    VALUES (:tenant, '', 0, -1, false)
    ON CONFLICT (tenant_id) DO UPDATE SET stream = held.stream
    RETURNING stream, sequence, revision, complete, read_revision, applied_revision
    """
)
_STORE_POSITION: Final = text(
    """
    UPDATE projection_position SET stream = :stream, sequence = :sequence, revision = :revision, complete = :complete,
        read_revision = :read_revision, applied_revision = :applied_revision
    WHERE tenant_id = :tenant
    """
)
_PUT_USERS: Final = text(
    """
    INSERT INTO known_users AS known
        (tenant_id, id, revision, name, is_suspended, tokens_valid_after, search_key, state)
    SELECT :tenant, * FROM unnest(:ids, :revisions, :names, :suspended, :valid_after, :keys, :states)
    ON CONFLICT (tenant_id, id) DO UPDATE SET revision = excluded.revision, name = excluded.name,
        is_suspended = excluded.is_suspended, tokens_valid_after = excluded.tokens_valid_after,
        search_key = excluded.search_key, state = excluded.state
    WHERE known.revision <= excluded.revision
    """
).bindparams(
    _TENANT, *_arrays(ids=str, revisions=int, names=str, suspended=bool, valid_after=int, keys=str, states=str)
)

_PUT_APPLICATIONS: Final = text(
    """
    INSERT INTO known_applications AS known (tenant_id, id, revision, name, type, state)
    SELECT :tenant, * FROM unnest(:ids, :revisions, :names, :types, :states)
    ON CONFLICT (tenant_id, id) DO UPDATE SET revision = excluded.revision, name = excluded.name, type = excluded.type,
        state = excluded.state
    WHERE known.revision <= excluded.revision
    """
).bindparams(_TENANT, *_arrays(ids=str, revisions=int, names=str, types=str, states=str))
_PUT_RESOURCES: Final = text(
    """
    WITH given AS (SELECT * FROM unnest(:ids, :revisions, :names, :indicators)
        AS given (id, revision, name, indicator)),
    before AS (
        SELECT known.id, known.indicator FROM known_resources AS known JOIN given USING (id)
        WHERE known.tenant_id = :tenant
    ),
    put AS (
        INSERT INTO known_resources AS known (tenant_id, id, revision, name, indicator) SELECT :tenant, * FROM given
        ON CONFLICT (tenant_id, id)
            DO UPDATE SET revision = excluded.revision, name = excluded.name, indicator = excluded.indicator
            WHERE known.revision <= excluded.revision
        RETURNING id, indicator
    )
    SELECT put.id FROM put LEFT JOIN before USING (id) WHERE put.indicator IS DISTINCT FROM before.indicator
    """
).bindparams(_TENANT, *_arrays(ids=str, revisions=int, names=str, indicators=str))
_PUT_SCOPES: Final = text(
    """
    WITH given AS (SELECT * FROM unnest(:ids, :revisions, :resources, :names)
        AS given (id, revision, resource_id, name)),
    before AS (
        SELECT known.id, known.name FROM known_scopes AS known JOIN given USING (id) WHERE known.tenant_id = :tenant
    ),
    put AS (
        INSERT INTO known_scopes AS known (tenant_id, id, revision, resource_id, name) SELECT :tenant, * FROM given
        ON CONFLICT (tenant_id, id)
            DO UPDATE SET revision = excluded.revision, resource_id = excluded.resource_id, name = excluded.name
            WHERE known.revision <= excluded.revision
        RETURNING id, name
    )
    SELECT put.id FROM put JOIN before USING (id) WHERE put.name <> before.name
    """
).bindparams(_TENANT, *_arrays(ids=str, revisions=int, resources=str, names=str))
_PUT_CONNECTORS: Final = text(
    """
    INSERT INTO known_connectors AS known (tenant_id, id, revision, name)
    SELECT :tenant, * FROM unnest(:ids, :revisions, :names)
    ON CONFLICT (tenant_id, id) DO UPDATE SET revision = excluded.revision, name = excluded.name
    WHERE known.revision <= excluded.revision
    """
).bindparams(_TENANT, *_arrays(ids=str, revisions=int, names=str))
_SCOPES_OF: Final = text(
    "SELECT id FROM known_scopes WHERE tenant_id = :tenant AND resource_id = ANY(:ids)"
).bindparams(_TENANT, _IDS)

_TABLES: Final = (
    ("user", known_users),
    ("application", known_applications),
    ("resource", known_resources),
    ("scope", known_scopes),
    ("connector", known_connectors),
)
_FORGET: Final = {
    kind: delete(table).where(table.c.tenant_id == _TENANT, table.c.id == any_(_IDS)) for kind, table in _TABLES
}


async def read_position(connection: AsyncConnection, tenant_id: str) -> Position:
    """Return the position of the projection."""
    row = (await connection.execute(_READ_POSITION, {"tenant": tenant_id})).one_or_none()
    return Position() if row is None else Position(*row)


async def lock_position(connection: AsyncConnection, tenant_id: str) -> Position:
    """Return the position of the projection, locked until the transaction ends."""
    return Position(*(await connection.execute(_LOCK_POSITION, {"tenant": tenant_id})).one())


async def store_position(connection: AsyncConnection, tenant_id: str, position: Position) -> None:
    """Store the position of the projection."""
    await connection.execute(_STORE_POSITION, {"tenant": tenant_id, **msgspec.structs.asdict(position)})


def _in_lock_order(given: Sequence[Known]) -> list[Known]:
    """Return states sorted by id, the order in which users and applications that become members are locked."""
    return sorted(given, key=lambda each: each.state.id)


async def put_users(connection: AsyncConnection, tenant_id: str, given: Sequence[Known]) -> None:
    """Store the states of users."""
    given = _in_lock_order(given)
    users: list[UserState] = [each.state for each in given]
    values = {
        "tenant": tenant_id,
        "revisions": [each.revision for each in given],
        "ids": [user.id for user in users],
        "names": [user.name for user in users],
        "suspended": [user.is_suspended for user in users],
        "valid_after": [user.tokens_valid_after for user in users],
        "keys": [
            search_key(user.id, user.username, user.primary_email, user.primary_phone, user.name) for user in users
        ],
        "states": [_text(user) for user in users],
    }
    await connection.execute(_PUT_USERS, values)


async def put_applications(connection: AsyncConnection, tenant_id: str, given: Sequence[Known]) -> None:
    """Store the states of applications, without their secrets."""
    given = _in_lock_order(given)
    applications: list[ApplicationState] = [each.state for each in given]
    values = {
        "tenant": tenant_id,
        "revisions": [each.revision for each in given],
        "ids": [application.id for application in applications],
        "names": [application.name for application in applications],
        "types": [application.type for application in applications],
        "states": [_text(msgspec.structs.replace(application, secrets=())) for application in applications],
    }
    await connection.execute(_PUT_APPLICATIONS, values)


async def put_resources(connection: AsyncConnection, tenant_id: str, given: Sequence[Known]) -> list[str]:
    """Store the states of resources; return the ids of those that are new or have another indicator."""
    resources: list[ResourceState] = [each.state for each in given]
    values = {
        "tenant": tenant_id,
        "revisions": [each.revision for each in given],
        "ids": [resource.id for resource in resources],
        "names": [resource.name for resource in resources],
        "indicators": [resource.indicator for resource in resources],
    }
    return list(await connection.scalars(_PUT_RESOURCES, values))


async def put_scopes(connection: AsyncConnection, tenant_id: str, given: Sequence[Known]) -> list[str]:
    """Store the states of scopes; return the ids of those whose name changed."""
    scopes: list[ScopeState] = [each.state for each in given]
    values = {
        "tenant": tenant_id,
        "revisions": [each.revision for each in given],
        "ids": [scope.id for scope in scopes],
        "resources": [scope.resource_id for scope in scopes],
        "names": [scope.name for scope in scopes],
    }
    return list(await connection.scalars(_PUT_SCOPES, values))


async def put_connectors(connection: AsyncConnection, tenant_id: str, given: Sequence[Known]) -> None:
    """Store the states of connectors."""
    connectors: list[ConnectorState] = [each.state for each in given]
    values = {
        "tenant": tenant_id,
        "revisions": [each.revision for each in given],
        "ids": [connector.id for connector in connectors],
        "names": [connector.name for connector in connectors],
    }
    await connection.execute(_PUT_CONNECTORS, values)


async def scopes_of(connection: AsyncConnection, tenant_id: str, resource_ids: Collection[str]) -> list[str]:
    """Return the ids of the scopes of resources."""
    return list(await connection.scalars(_SCOPES_OF, {"tenant": tenant_id, "ids": list(resource_ids)}))


async def forget(connection: AsyncConnection, tenant_id: str, what: Kind, ids: Collection[str]) -> None:
    """Delete the rows of aggregates that no longer exist."""
    await connection.execute(_FORGET[what], {"tenant": tenant_id, "ids": list(ids)})


def valid_exchange(issued_at: str) -> str:
    """Return the condition that a token from a token exchange is valid, over a row of ``known_applications``.

    Args:
        issued_at: Expression of when it was issued, milliseconds.
    """
    # The state omits defaults.
    return f"""coalesce((state::json ->> 'allow_token_exchange')::boolean, false)
        AND coalesce((state::json ->> 'exchanged_valid_after')::bigint, 0) <= {issued_at}"""


def _text(state: msgspec.Struct) -> str:
    return msgspec.json.encode(state).decode()
