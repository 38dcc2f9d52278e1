"""The versions of the custom-claims function, in PostgreSQL."""

from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.dialects.postgresql import insert as insert_or_ignore
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.wire.claims_function import TokenKind
from management_service.schema import claims_function_versions as versions
from management_service.schema import claims_functions as functions


class Counter(msgspec.Struct, frozen=True):
    """The newest and the active version of a kind.

    Attributes:
        last: Number of the newest version; 0 before the first one.
        active: Number of the active version; None if the function was deleted, or never saved.
    """

    last: int
    active: int | None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable version of the function for one kind of token.

    Attributes:
        sealed_environment_variables: See ``SealedVariables``.
        environment_variable_names: Sorted.
        context_sample: JSON; None without one.
        token_sample: JSON; None without one.
        created_by_user_id: None if the application acted for itself.
    """

    tenant_id: str
    kind: TokenKind
    version: int
    script: str
    sealed_environment_variables: str
    environment_variable_names: tuple[str, ...]
    context_sample: str | None
    token_sample: str | None
    block_issuance_on_error: bool
    created_at: int
    created_by_application_id: str
    created_by_user_id: str | None


class FoundVersion(msgspec.Struct, frozen=True):
    """A version, and whether it is the active one."""

    version: Version
    is_active: bool


_KIND: Final = (functions.c.tenant_id == bindparam("tenant"), functions.c.kind == bindparam("of"))
_BEGIN: Final = insert_or_ignore(functions).on_conflict_do_nothing()
_LOCK: Final = select(functions.c.last_version, functions.c.active_version).where(*_KIND).with_for_update()
_SET: Final = update(functions).where(*_KIND)
_OF_ALL_KINDS: Final = (
    select(*versions.c, (versions.c.version == functions.c.active_version).is_(True).label("is_active"))
    .join(functions, (functions.c.tenant_id == versions.c.tenant_id) & (functions.c.kind == versions.c.kind))
    .where(functions.c.tenant_id == bindparam("tenant"))
)
_OF_KIND: Final = _OF_ALL_KINDS.where(functions.c.kind == bindparam("of"))
_LIST: Final = PagedList(_OF_KIND.order_by(versions.c.version.desc()), searched=(versions.c.script,))
_FIND: Final = _OF_KIND.where(versions.c.version == bindparam("number"))
_FIND_ACTIVE: Final = _OF_KIND.where(versions.c.version == functions.c.active_version)
_LOCK_ALL: Final = (
    select(functions.c.kind)
    .where(functions.c.tenant_id == bindparam("tenant"))
    .order_by(functions.c.kind)
    .with_for_update()
)
_ALL_ACTIVE: Final = _OF_ALL_KINDS.where(versions.c.version == functions.c.active_version)
_ALL_SEALED: Final = _OF_ALL_KINDS.where(versions.c.sealed_environment_variables != "")
_RESEAL: Final = update(versions).where(
    versions.c.tenant_id == bindparam("tenant"),
    versions.c.kind == bindparam("of"),
    versions.c.version == bindparam("number"),
)


async def lock_counter(connection: AsyncConnection, tenant_id: str, kind: TokenKind) -> Counter:
    """Return the counter of a kind, locked against changes until the transaction ends."""
    await connection.execute(_BEGIN, {"tenant_id": tenant_id, "kind": kind, "last_version": 0})
    row = (await connection.execute(_LOCK, {"tenant": tenant_id, "of": kind})).one()
    return Counter(row.last_version, row.active_version)


async def set_counter(connection: AsyncConnection, tenant_id: str, kind: TokenKind, counter: Counter) -> None:
    """Store a locked counter."""
    values = {"last_version": counter.last, "active_version": counter.active}
    await connection.execute(_SET.values(values), {"tenant": tenant_id, "of": kind})


async def insert_version(connection: AsyncConnection, version: Version) -> None:
    """Store a new version."""
    values = {**msgspec.structs.asdict(version), "environment_variable_names": [*version.environment_variable_names]}
    await connection.execute(insert(versions), values)


async def find_active(connection: AsyncConnection, tenant_id: str, kind: TokenKind) -> Version | None:
    """Return the active version of a kind; None without one."""
    row = (await connection.execute(_FIND_ACTIVE, {"tenant": tenant_id, "of": kind})).one_or_none()
    return None if row is None else _found(row).version


async def find_version(
    connection: AsyncConnection, tenant_id: str, kind: TokenKind, version: int
) -> FoundVersion | None:
    """Return a version of a kind; None if there is none."""
    values = {"tenant": tenant_id, "of": kind, "number": version}
    row = (await connection.execute(_FIND, values)).one_or_none()
    return None if row is None else _found(row)


async def list_versions(
    connection: AsyncConnection, tenant_id: str, kind: TokenKind, page: Page
) -> tuple[list[FoundVersion], int]:
    """Return a page of the versions of a kind, newest first, and their total."""
    values = {"tenant": tenant_id, "of": kind}
    rows, total = await _LIST.fetch(connection, values, page)
    return [_found(row) for row in rows], total


async def lock_all_active(connection: AsyncConnection, tenant_id: str) -> list[Version]:
    """Return the active versions of all kinds, locked against saving and activating until the transaction ends."""
    await connection.execute(_LOCK_ALL, {"tenant": tenant_id})
    return [_version(row) for row in (await connection.execute(_ALL_ACTIVE, {"tenant": tenant_id}))]


async def lock_all_sealed(connection: AsyncConnection, tenant_id: str) -> list[FoundVersion]:
    """Return the versions with environment variables, locked like ``lock_all_active``."""
    await connection.execute(_LOCK_ALL, {"tenant": tenant_id})
    return [_found(row) for row in (await connection.execute(_ALL_SEALED, {"tenant": tenant_id}))]


async def reseal(connection: AsyncConnection, version: Version) -> None:
    """Store the resealed environment variables of a version."""
    by_number = {"tenant": version.tenant_id, "of": version.kind, "number": version.version}
    values = {"sealed_environment_variables": version.sealed_environment_variables}
    await connection.execute(_RESEAL.values(values), by_number)


def _found(row: Any) -> FoundVersion:
    return FoundVersion(_version(row), row.is_active)


def _version(row: Any) -> Version:
    values = {name: getattr(row, name) for name in Version.__struct_fields__}
    return Version(**{**values, "environment_variable_names": tuple(row.environment_variable_names)})
