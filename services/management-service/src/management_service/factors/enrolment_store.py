"""Leave to set up a first factor, in PostgreSQL: of a code, only a hash is stored."""

from typing import Final, Literal

import msgspec
from sqlalchemy import ARRAY, LargeBinary, bindparam, delete, exists, func, literal_column, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.stores.lookups import Lookups, key_lookup
from management_service.schema import authenticators, passkeys, recovery_codes, users
from management_service.schema import factor_enrolments as enrolments

_MOST_FORGOTTEN: Final = 1000

EnrolmentOrigin = Literal["link", "mail", "handed-out"]
"""What gives leave: a link that has set the password, or a code."""


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """Leave for one user, who has at most one of each origin.

    Attributes:
        code_sha256: Of the code that it needs; None if it needs none; empty where no code is accepted, nor mailed.
        attempts: How many codes were tried since it was given.
        expires_at: Milliseconds since the epoch.
    """

    tenant_id: str
    user_id: str
    origin: EnrolmentOrigin
    code_sha256: str | None = None
    attempts: int = 0
    expires_at: int

    @property
    def is_withheld(self) -> bool:
        """Whether no code is mailed, and no link gives leave."""
        return self.code_sha256 == ""

    def __repr__(self) -> str:
        """Hide the hash."""
        return f"Enrolment({self.user_id!r}, {self.origin!r})"


_OF_USER: Final = (enrolments.c.tenant_id == bindparam("tenant"), enrolments.c.user_id == bindparam("user"))
_UNEXPIRED: Final = (*_OF_USER, enrolments.c.expires_at > bindparam("now"))
_COLUMNS: Final = tuple(enrolments.c[name] for name in Enrolment.__struct_fields__)
_FIND: Final = select(*_COLUMNS).where(*_UNEXPIRED)
_TRY: Final = (
    update(enrolments)
    .where(*_UNEXPIRED, enrolments.c.origin == "mail")
    .values(attempts=enrolments.c.attempts + 1)
    .returning(enrolments.c.attempts)
)
_DELETE: Final = delete(enrolments).where(*_OF_USER)
_PUT: Final = insert(enrolments)
_REPLACE: Final = _PUT.on_conflict_do_update(
    constraint=enrolments.primary_key,
    set_={name: _PUT.excluded[name] for name in ("code_sha256", "attempts", "expires_at")},
)
_KEY: Final = tuple(enrolments.primary_key.columns)
# Without waiting for others that do the same, and not all at once.
_FORGET: Final = delete(enrolments).where(
    tuple_(*_KEY).in_(
        select(*_KEY)
        .where(enrolments.c.tenant_id == bindparam("tenant"), enrolments.c.expires_at <= bindparam("now"))
        .limit(_MOST_FORGOTTEN)
        .with_for_update(skip_locked=True)
    )
)
_COUNTS: Final = select(
    *(
        select(func.count())
        .select_from(table)
        .where(table.c.tenant_id == bindparam("tenant"), table.c.user_id == bindparam("user"))
        .scalar_subquery()
        .label(table.name)
        for table in (authenticators, passkeys, recovery_codes)
    )
)
# One statement: each costs more than what it reads.
_OVERVIEW: Final = key_lookup(
    select(
        users.c.primary_email,
        users.c.is_email_verified,
        func.array(
            select(passkeys.c.credential_id)
            .where(passkeys.c.tenant_id == bindparam("tenant"), passkeys.c.user_id == bindparam("user"))
            .order_by(passkeys.c.created_at, passkeys.c.id)
            .scalar_subquery(),
            type_=ARRAY(LargeBinary),
        ),
        exists().where(
            authenticators.c.tenant_id == bindparam("tenant"), authenticators.c.user_id == bindparam("user")
        ),
        select(func.count())
        .select_from(recovery_codes)
        .where(recovery_codes.c.tenant_id == bindparam("tenant"), recovery_codes.c.user_id == bindparam("user"))
        .scalar_subquery(),
        ~exists().where(*_UNEXPIRED, enrolments.c.code_sha256.is_(None)),
        exists().where(*_UNEXPIRED, enrolments.c.code_sha256 == literal_column("''")),
    ).where(users.c.tenant_id == bindparam("tenant"), users.c.id == bindparam("user"))
)
_DELETE_ALL: Final = tuple(
    delete(table).where(table.c.tenant_id == bindparam("tenant"), table.c.user_id == bindparam("user"))
    for table in (authenticators, passkeys, recovery_codes, enrolments)
)


class Armed(msgspec.Struct, frozen=True):
    """How many factors of each kind a user has, and recovery codes."""

    authenticators: int
    passkeys: int
    recovery_codes: int


class Overview(msgspec.Struct, frozen=True):
    """What a user has set up, and what is needed to set up the first factor.

    Attributes:
        credential_ids: Of the passkeys, oldest first.
        recovery_codes: How many are left.
        needs_code: Whether all leave needs a code, or there is none.
        is_withheld: As in ``Enrolment``.
    """

    primary_email: str | None
    is_email_verified: bool
    credential_ids: list[bytes]
    has_authenticator: bool
    recovery_codes: int
    needs_code: bool
    is_withheld: bool

    def __repr__(self) -> str:
        """Hide the address."""
        return "Overview(…)"


async def look_up_overview(lookups: Lookups, tenant_id: str, user_id: str, *, now: int) -> Overview | None:
    """Return what a user has set up; None if there is no such user."""
    rows = await lookups.fetch(_OVERVIEW, tenant_id, user_id, now)
    return Overview(*rows[0]) if rows else None


async def put_enrolment(connection: AsyncConnection, enrolment: Enrolment, *, now: int) -> None:
    """Store leave in place of the earlier one of its user and origin; forget what has expired."""
    await connection.execute(_REPLACE, msgspec.structs.asdict(enrolment))
    # Last: a transaction that holds the leave of others must not wait for one of them.
    await connection.execute(_FORGET, {"tenant": enrolment.tenant_id, "now": now})


async def find_enrolments(connection: AsyncConnection, tenant_id: str, user_id: str, *, now: int) -> list[Enrolment]:
    """Return what leave a user has."""
    rows = await connection.execute(_FIND, {"tenant": tenant_id, "user": user_id, "now": now})
    return [Enrolment(**row) for row in rows.mappings()]


async def count_attempt(connection: AsyncConnection, tenant_id: str, user_id: str, *, now: int) -> int:
    """Count an attempt at the mailed code; return how many there were, 0 without such a code."""
    return int(await connection.scalar(_TRY, {"tenant": tenant_id, "user": user_id, "now": now}) or 0)


async def delete_enrolments(connection: AsyncConnection, tenant_id: str, user_id: str) -> None:
    """Delete all leave of a user."""
    await connection.execute(_DELETE, {"tenant": tenant_id, "user": user_id})


async def count_factors(connection: AsyncConnection, tenant_id: str, user_id: str) -> Armed:
    """Return how many factors and recovery codes a user has."""
    return Armed(*(await connection.execute(_COUNTS, {"tenant": tenant_id, "user": user_id})).one())


async def delete_factors(connection: AsyncConnection, tenant_id: str, user_id: str) -> None:
    """Delete all factors of a user, with its recovery codes and leave."""
    for statement in _DELETE_ALL:
        await connection.execute(statement, {"tenant": tenant_id, "user": user_id})
