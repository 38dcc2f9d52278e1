"""Administrators: users that can sign in and hold the scope ``all`` of the Management API by a role.

They have a password and something to sign in with, or a passkey, which tells who signs in; and passwords are not closed
to them. Or they have signed in at the provider of a connector that still admits them, as far as is known here.

Owns the rule that no request ends the last one: no user could then sign in to the console and undo it. Suspended and
invited users and machine-to-machine applications do not count. Does not own how the first one is created
(``bootstrap``).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import and_, any_, bindparam, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.failures import Conflict
from identity_common.rights.scopes import SCOPE_ALL
from management_service.provider_people import (
    EMAIL_DOMAIN,
    GETS_IN_THERE,
    MAY_USE_PASSWORD,
    ONLY_DOMAIN_DECIDES,
    find_domains,
    is_at_provider,
)
from management_service.schema import resources, role_scopes, scopes, user_roles, users

IDENTIFIERS: Final = ("username", "primary_email", "primary_phone")
"""What a user may sign in with, by its column."""

LAST_ADMINISTRATOR: Final = "user.last_administrator"
"""Code of the refusal."""

_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtext('administrators ' || :tenant))")
_HOLDERS: Final = (
    resources.c.tenant_id == bindparam("tenant"),
    resources.c.indicator == bindparam("management_api"),
    scopes.c.tenant_id == resources.c.tenant_id,
    scopes.c.resource_id == resources.c.id,
    scopes.c.name == literal(SCOPE_ALL),
    role_scopes.c.tenant_id == scopes.c.tenant_id,
    role_scopes.c.scope_id == scopes.c.id,
    user_roles.c.tenant_id == role_scopes.c.tenant_id,
    user_roles.c.role_id == role_scopes.c.role_id,
    users.c.tenant_id == user_roles.c.tenant_id,
    users.c.id == user_roles.c.user_id,
    ~users.c.is_suspended,
)
_HAS_CREDENTIAL: Final = or_(
    and_(users.c.password_hash.is_not(None), or_(*(users.c[name].is_not(None) for name in IDENTIFIERS))),
    literal("passkey") == any_(users.c.second_factors),
)
_EXIST: Final = select(
    select(users.c.id).where(*_HOLDERS, or_(and_(_HAS_CREDENTIAL, MAY_USE_PASSWORD), GETS_IN_THERE)).exists()
)
_OTHER_DOMAINS: Final = select(EMAIL_DOMAIN).distinct().where(*_HOLDERS, _HAS_CREDENTIAL, ONLY_DOMAIN_DECIDES)


class Administrators:
    """The administrators of one tenant.

    Args:
        management_api: Indicator of the Management API.
    """

    def __init__(self, *, tenant_id: str, management_api: str) -> None:
        self._tenant_id = tenant_id
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
                message = (
                    "At least one user who can sign in must hold the Management API's scope all by a role. Of a "
                    "connector's people those count who have signed in at its provider since it was opened or changed, "
                    "or who have a password and allowsPassword."
                )
                raise Conflict(LAST_ADMINISTRATOR, message)

    async def _exist(self, connection: AsyncConnection) -> bool:
        if await connection.scalar(_EXIST, self._values):
            return True
        others = list(await connection.scalars(_OTHER_DOMAINS, self._values))
        if not others:
            return False
        domains = await find_domains(connection, self._tenant_id)
        return not all(is_at_provider(f"@{domain}", domains) for domain in others)
