"""Applications and their secrets in PostgreSQL."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Text,
    any_,
    bindparam,
    delete,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList, is_none_of
from identity_common.stores.lookups import Lookups, key_lookup
from identity_common.wire.events import ApplicationType, DemandedLevel, SecretMethod
from management_service.schema import application_roles, application_secrets, applications


class Application(msgspec.Struct, frozen=True):
    """An application as stored, without its secrets.

    Attributes:
        exchanged_valid_after: See ``ApplicationState``.
        custom_data: JSON.
    """

    tenant_id: str
    id: str
    name: str
    type: ApplicationType
    created_at: int
    updated_at: int
    description: str | None = None
    is_third_party: bool = False
    redirect_uris: tuple[str, ...] = ()
    post_logout_redirect_uris: tuple[str, ...] = ()
    allow_token_exchange: bool = False
    exchanged_valid_after: int = 0
    allow_management_api: bool = False
    cors_allowed_origins: tuple[str, ...] = ()
    id_token_ttl_s: int = 3600
    refresh_token_ttl_days: int = 14
    rotate_refresh_token: bool = True
    always_issue_refresh_token: bool = False
    token_endpoint_auth_method: SecretMethod = "client_secret_basic"  # noqa: S105 - a method
    require_pkce: bool = True
    minimum_acr: DemandedLevel | None = None
    logo_uri: str | None = None
    primary_color: str | None = None
    custom_data: str = "{}"


class ApplicationFilter(msgspec.Struct, frozen=True):
    """A filter of applications; None and empty do not restrict the list.

    Attributes:
        ids: With one of these ids.
        types: Of one of these types.
        is_third_party: Third-party ones, or first-party ones.
        without_role_id: Those that do not hold this API role.
    """

    ids: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    is_third_party: bool | None = None
    without_role_id: str | None = None


class Secret(msgspec.Struct, frozen=True):
    """A secret of an application as stored: only its hash.

    Attributes:
        expires_at: Milliseconds since the epoch; None if it does not expire.
    """

    tenant_id: str
    application_id: str
    name: str
    sha256: str
    created_at: int
    expires_at: int | None = None


COLUMNS: Final = tuple(applications.c[name] for name in Application.__struct_fields__)
SEARCHED: Final = (applications.c.name, applications.c.description)
_ARRAYS: Final = ("redirect_uris", "post_logout_redirect_uris", "cors_allowed_origins")
SECRET_COLUMNS: Final = tuple(application_secrets.c[name] for name in Secret.__struct_fields__)

_BY_ID: Final = (applications.c.tenant_id == bindparam("tenant"), applications.c.id == bindparam("application"))
_FIND: Final = select(*COLUMNS).where(*_BY_ID)
_LOOK_UP: Final = key_lookup(_FIND)
_LOCK: Final = _FIND.with_for_update(key_share=True)
_UPDATE: Final = update(applications).where(*_BY_ID)
_DELETE: Final = delete(applications).where(*_BY_ID)
_LIST: Final = PagedList(
    select(*COLUMNS)
    .where(applications.c.tenant_id == bindparam("tenant"))
    .order_by(applications.c.sort_key, applications.c.name, applications.c.id),
    searched=SEARCHED,
)
_HOLDS_ROLE: Final = (
    select(application_roles.c.role_id)
    .where(
        application_roles.c.tenant_id == applications.c.tenant_id,
        application_roles.c.application_id == applications.c.id,
        application_roles.c.role_id == bindparam("role"),
    )
    .exists()
)
_SECRETS: Final = (
    application_secrets.c.tenant_id == bindparam("tenant"),
    application_secrets.c.application_id == bindparam("application"),
)
_LIST_SECRETS: Final = PagedList(
    select(*SECRET_COLUMNS).where(*_SECRETS).order_by(application_secrets.c.sort_key, application_secrets.c.name),
    searched=(application_secrets.c.name,),
)
_SECRET: Final = (*_SECRETS, application_secrets.c.name == bindparam("secret"))
_RENAME_SECRET: Final = (
    update(application_secrets).where(*_SECRET).values(name=bindparam("new_name")).returning(*SECRET_COLUMNS)
)
_HAS_SECRET: Final = select(select(application_secrets.c.name).where(*_SECRET).exists())
_DELETE_SECRET: Final = delete(application_secrets).where(*_SECRET)


def application_from(row: Iterable[Any]) -> Application:
    """Return the application of a row with ``COLUMNS``."""
    columns: Any = (tuple(value) if isinstance(value, list) else value for value in row)
    return Application(*columns)


def _values(application: Application) -> dict[str, Any]:
    values = msgspec.structs.asdict(application)
    return values | {name: list(values[name]) for name in _ARRAYS}


async def insert_application(connection: AsyncConnection, application: Application) -> None:
    """Store a new application."""
    await connection.execute(insert(applications), _values(application))


async def find_application(lookups: Lookups, tenant_id: str, application_id: str) -> Application | None:
    """Return an application; None if there is none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, application_id)
    return application_from(rows[0]) if rows else None


async def lock_application(connection: AsyncConnection, tenant_id: str, application_id: str) -> Application | None:
    """Return an application, locked against changes until the transaction ends; None if there is none."""
    values = {"tenant": tenant_id, "application": application_id}
    row = (await connection.execute(_LOCK, values)).one_or_none()
    return None if row is None else application_from(row)


async def update_application(connection: AsyncConnection, application: Application) -> None:
    """Store a changed application."""
    values = _values(application)
    by_id = {"tenant": values.pop("tenant_id"), "application": values.pop("id")}
    await connection.execute(_UPDATE.values(values), by_id)


async def delete_application(connection: AsyncConnection, tenant_id: str, application_id: str) -> None:
    """Delete an application with its secrets and relations."""
    await connection.execute(_DELETE, {"tenant": tenant_id, "application": application_id})


async def list_applications(
    connection: AsyncConnection, tenant_id: str, page: Page, only: ApplicationFilter, *, without: Sequence[str]
) -> tuple[list[Application], int]:
    """Return a page of the applications, except the ids in ``without``, by name and then id, and their total."""
    values = {"tenant": tenant_id}
    conditions: list[ColumnElement[bool]] = []
    if only.ids:
        conditions.append(applications.c.id == any_(bindparam("ids", list(only.ids), ARRAY(Text))))
    if only.types:
        conditions.append(applications.c.type == any_(bindparam("types", list(only.types), ARRAY(Text))))
    if only.is_third_party is not None:
        conditions.append(applications.c.is_third_party.is_(only.is_third_party))
    if only.without_role_id is not None:
        conditions.append(~_HOLDS_ROLE)
        values["role"] = only.without_role_id
    if without:
        conditions.append(applications.c.id.in_(_all_but(without)))
    rows, total = await _LIST.fetch(connection, values, page, where=conditions)
    return [application_from(row) for row in rows], total


def _all_but(ids: Sequence[str]) -> Select[tuple[str]]:
    # OFFSET 0 keeps the planner from walking the index of names and comparing each row with every id.
    every = applications.alias()
    found = select(every.c.id).where(every.c.tenant_id == bindparam("tenant"), is_none_of(every.c.id, ids))
    return found.offset(literal_column("0"))


async def insert_secret(connection: AsyncConnection, secret: Secret) -> None:
    """Store a new secret."""
    await connection.execute(insert(application_secrets), msgspec.structs.asdict(secret))


async def list_secrets(
    connection: AsyncConnection, tenant_id: str, application_id: str, page: Page
) -> tuple[list[Secret], int]:
    """Return a page of an application's secrets, by name, and their total."""
    values = {"tenant": tenant_id, "application": application_id}
    rows, total = await _LIST_SECRETS.fetch(connection, values, page)
    return [Secret(*row) for row in rows], total


async def has_secret(connection: AsyncConnection, tenant_id: str, application_id: str, name: str) -> bool:
    """Return whether this application has a secret with this name."""
    values = {"tenant": tenant_id, "application": application_id, "secret": name}
    return bool(await connection.scalar(_HAS_SECRET, values))


async def rename_secret(
    connection: AsyncConnection, tenant_id: str, application_id: str, name: str, new_name: str
) -> Secret | None:
    """Rename a secret of this application and return it; None if there is none."""
    values = {"tenant": tenant_id, "application": application_id, "secret": name, "new_name": new_name}
    row = (await connection.execute(_RENAME_SECRET, values)).one_or_none()
    return None if row is None else Secret(*row)


async def delete_secret(connection: AsyncConnection, tenant_id: str, application_id: str, name: str) -> bool:
    """Delete a secret of this application; return whether it existed."""
    values = {"tenant": tenant_id, "application": application_id, "secret": name}
    return bool((await connection.execute(_DELETE_SECRET, values)).rowcount)
