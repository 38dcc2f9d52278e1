"""Password hashes in PostgreSQL, looked up by sign-in identifier."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Executable, bindparam, column, select, table, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.search import identity_key
from management_service.phone_numbers import literal_phone_key, phone_key
from management_service.provider_people import COLUMNS as WAY_IN_COLUMNS
from management_service.provider_people import WayIn
from management_service.schema import users


class PasswordHash(msgspec.Struct, frozen=True):
    """A user's stored password.

    Attributes:
        password_hash: None if the user has no password.
        revision: Revision of this service that the row includes.
        second_factors: The kinds that the user has set up.
        way_in: Whether the password counts.
    """

    id: str
    password_hash: str | None
    tokens_valid_after: int
    revision: int
    second_factors: Sequence[str]
    way_in: WayIn

    def __repr__(self) -> str:
        """Hide the hash."""
        return f"PasswordHash({self.id})"


_OWN_COLUMNS: Final = PasswordHash.__struct_fields__[:-1]
_REVISION: Final = table("source_revision", column("tenant_id"), column("revision"))
_HASHES: Final = (
    select(
        users.c.id,
        users.c.password_hash,
        users.c.tokens_valid_after,
        _REVISION.c.revision,
        users.c.second_factors,
        *WAY_IN_COLUMNS,
    )
    .join_from(users, _REVISION, _REVISION.c.tenant_id == users.c.tenant_id)
    .where(users.c.tenant_id == bindparam("tenant"))
)
_BY_EMAIL: Final = _HASHES.where(users.c.primary_email_key == bindparam("identity"))
_BY_NAME_OR_PHONE: Final = union_all(  # OR might read the whole table, if PostgreSQL plans it while the table is small
    _HASHES.where(users.c.username_key == bindparam("identity")),
    _HASHES.where(users.c.primary_phone_key.in_([bindparam("literal_phone"), bindparam("phone")]))
    .order_by((users.c.primary_phone_key == bindparam("literal_phone")).desc())
    .limit(1),
)
_BY_ID: Final = _HASHES.where(users.c.id == bindparam("user"))
_RENEW: Final = (
    update(users)
    .where(
        users.c.tenant_id == bindparam("tenant"),
        users.c.id == bindparam("user"),
        users.c.password_hash == bindparam("present"),
    )
    .values(password_hash=bindparam("renewed"))
)


async def find_password_hash(connection: AsyncConnection, tenant_id: str, identifier: str) -> PasswordHash | None:
    """Return the password hash of the user with this e-mail address, user name or telephone number.

    Only an e-mail address contains an @, and no user name is a telephone number. A user that has kept the key of an
    earlier release is found by that notation, before the other user with the same number. One statement for every
    identifier: their number would reveal whether a name exists.
    """
    names = {
        "tenant": tenant_id,
        "identity": identity_key(identifier),
        "literal_phone": literal_phone_key(identifier),
        "phone": phone_key(identifier),
    }
    return await _find(connection, _BY_EMAIL if "@" in identifier else _BY_NAME_OR_PHONE, names)


async def find_password_hash_of(connection: AsyncConnection, tenant_id: str, user_id: str) -> PasswordHash | None:
    """Return the password hash of the user with this id."""
    return await _find(connection, _BY_ID, {"tenant": tenant_id, "user": user_id})


async def _find(connection: AsyncConnection, statement: Executable, values: dict[str, str]) -> PasswordHash | None:
    row = (await connection.execute(statement, values)).first()
    if row is None:
        return None
    own: dict[str, Any] = dict(zip(_OWN_COLUMNS, row, strict=False))
    return PasswordHash(**own, way_in=WayIn(*row[len(own) :]))


async def renew_password_hash(connection: AsyncConnection, tenant_id: str, present: PasswordHash, renewed: str) -> None:
    """Store a new hash of the same password, unless the password has changed in the meantime."""
    values = {"tenant": tenant_id, "user": present.id, "present": present.password_hash, "renewed": renewed}
    await connection.execute(_RENEW, values)
