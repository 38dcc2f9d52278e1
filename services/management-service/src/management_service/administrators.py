"""Administrators: users that can sign in and hold the scope ``all`` of the Management API by a role.

They have a password and something to sign in with, or a passkey, which tells who signs in.

Owns the rule that no request ends the last one: no user could then sign in to the console and undo it. Suspended and
invited users and machine-to-machine applications do not count. Does not own how the first one is created
(``bootstrap``).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import and_, any_, bindparam, exists, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.failures import Conflict
from identity_common.rights.scopes import SCOPE_ALL
from management_service.schema import resources, role_scopes, scopes, user_roles, users

IDENTIFIERS: Final = ("username", "primary_email", "primary_phone")
"""What a user may sign in with, by its column."""

_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtext('administrators ' || :tenant))")
_EXIST: Final = select(
    exists()
    .where(resources.c.tenant_id == bindparam("tenant"), resources.c.indicator == bindparam("management_api"))
    .where(
        scopes.c.tenant_id == resources.c.tenant_id,
        scopes.c.resource_id == resources.c.id,
        scopes.c.name == literal(SCOPE_ALL),
    )
    .where(role_scopes.c.tenant_id == scopes.c.tenant_id, role_scopes.c.scope_id == scopes.c.id)
    .where(user_roles.c.tenant_id == role_scopes.c.tenant_id, user_roles.c.role_id == role_scopes.c.role_id)
    .where(users.c.tenant_id == user_roles.c.tenant_id, users.c.id == user_roles.c.user_id)
    .where(
        ~users.c.is_suspended,
        or_(
            and_(users.c.password_hash.is_not(None), or_(*(users.c[name].is_not(None) for name in IDENTIFIERS))),
            literal("passkey") == any_(users.c.second_factors),
        ),
    )
)


class Administrators:
    """The administrators of one tenant.

    Args:
        management_api: Indicator of the Management API.
    """

    def __init__(self, *, tenant_id: str, management_api: str) -> None:
        self._values = {"tenant": tenant_id, "management_api": management_api}

    @asynccontextmanager
    async def kept(self, connection: AsyncConnection) -> AsyncGenerator[None, None]:
        """Run changes of a transaction that may end administrators, and refuse those that end the last one.

        Concurrent ones are decided one after the other. The lock comes after those of the rows that they change, and
        before the revision's, so that two transactions cannot deadlock.

        Raises:
            Conflict: There was an administrator before the changes, and there is none after them.
        """
        existed = await self._exist(connection)
        yield
        if existed:
            await connection.execute(_LOCK, self._values)
            if not await self._exist(connection):
                message = "At least one user who can sign in must hold the Management API's scope all by a role."
                raise Conflict("user.last_administrator", message)

    async def _exist(self, connection: AsyncConnection) -> bool:
        return bool(await connection.scalar(_EXIST, self._values))
