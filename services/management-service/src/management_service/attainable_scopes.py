"""The scopes of the Management API that are attainable through a user, an application or a role.

Owns the rule that no request gives, or takes over, a scope that its caller lacks: ``roles`` alone would otherwise be as
good as ``all``. Nor does one take away what protects others without the scope that gives it. The use cases apply it in
the transaction of the write. Commands and background work have no caller and are not limited. Does not own which scope
an operation needs (``identity_common.rights``).
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import ARRAY, Select, Text, any_, bindparam, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.access.callers import admitted
from identity_common.email_domains import domain_of
from identity_common.failures import ErrorData, Refused
from identity_common.rights.scopes import SCOPE_ALL, implied
from identity_common.wire.events import HolderKind
from management_service.schema import (
    application_roles,
    identities,
    impersonation_policies,
    resources,
    role_scopes,
    scopes,
    user_roles,
    users,
)

_IDS: Final = bindparam("ids", type_=ARRAY(Text))
_OF_SCOPES: Final = (
    select(scopes.c.name)
    .distinct()
    .join(resources, (resources.c.tenant_id == scopes.c.tenant_id) & (resources.c.id == scopes.c.resource_id))
    .where(scopes.c.tenant_id == bindparam("tenant"), resources.c.indicator == bindparam("management_api"))
)
_OF_ROLES: Final = _OF_SCOPES.join(
    role_scopes, (role_scopes.c.tenant_id == scopes.c.tenant_id) & (role_scopes.c.scope_id == scopes.c.id)
)
_OF_ALL: Final = {
    kind: _OF_ROLES.join(
        held, (held.c.tenant_id == role_scopes.c.tenant_id) & (held.c.role_id == role_scopes.c.role_id)
    )
    for kind, held in (("user", user_roles), ("application", application_roles))
}
_OF_HOLDERS: Final = {
    "user": _OF_ALL["user"].where(user_roles.c.user_id == any_(_IDS)),
    "application": _OF_ALL["application"].where(application_roles.c.application_id == any_(_IDS)),
}
_OF_PEOPLE: Final = _OF_ALL["user"].join(
    identities,
    (identities.c.tenant_id == user_roles.c.tenant_id)
    & (identities.c.user_id == user_roles.c.user_id)
    & (identities.c.connector_id == any_(_IDS)),
)
_WITH_ADDRESSES: Final = (
    _OF_ALL["user"]
    .join(users, (users.c.tenant_id == user_roles.c.tenant_id) & (users.c.id == user_roles.c.user_id))
    .where(users.c.primary_email.is_not(None))
    .add_columns(users.c.primary_email)
)
_PROTECTED: Final = select(
    exists().where(
        impersonation_policies.c.tenant_id == bindparam("tenant"),
        impersonation_policies.c.excluded_roles.bool_op("&&")(_IDS),
    )
)
_POLICY_SCOPE: Final = "config"


def missing_scopes(attainable: Collection[str], *, held: Collection[str]) -> list[str]:
    """Return the attainable scopes that a caller with these scopes lacks, sorted."""
    return [] if SCOPE_ALL in held else sorted(set(attainable) - implied(held))


class AttainableScopes:
    """Refuses writes by which a scope would become attainable, or a protection end, beyond its caller's scopes.

    Each method raises ``Refused`` with the missing scopes.

    Args:
        management_api: Indicator of the Management API.
    """

    def __init__(self, *, tenant_id: str, management_api: str) -> None:
        self._values = {"tenant": tenant_id, "management_api": management_api}

    async def require_scopes(self, connection: AsyncConnection, scope_ids: Collection[str]) -> None:
        """Require those among these scopes that are of the Management API: a role is about to grant them."""
        await self._require(connection, _OF_SCOPES.where(scopes.c.id == any_(_IDS)), scope_ids)

    async def require_roles(self, connection: AsyncConnection, role_ids: Collection[str]) -> None:
        """Require what these roles grant: users or applications are about to get them."""
        await self._require(connection, _OF_ROLES.where(role_scopes.c.role_id == any_(_IDS)), role_ids)

    async def require_holder(self, connection: AsyncConnection, kind: HolderKind, holder_id: str) -> None:
        """Require what a user or application holds: its credentials are about to change.

        Users may change their own, whatever they hold: the token of their sign-in says who they are, not what they may.
        """
        caller = admitted()
        if caller is not None and kind == "user" and caller.owns_account(holder_id):
            return
        await self._require(connection, _OF_HOLDERS[kind], [holder_id])

    async def require_people(self, connection: AsyncConnection, connector_id: str) -> None:
        """Require what users with an identity at a connector hold: how they sign in there is about to change."""
        await self._require(connection, _OF_PEOPLE, [connector_id])

    async def require_owners(self, connection: AsyncConnection, domains: Collection[str]) -> None:
        """Require what users with an e-mail address in these domains hold: a provider is about to speak for them."""
        caller = admitted()
        if caller is None or SCOPE_ALL in caller.scopes or not domains:
            return
        rows = await connection.execute(_WITH_ADDRESSES, self._values)
        names = {name for name, address in rows if domain_of(address) in domains}
        if missing := missing_scopes(names, held=caller.scopes):
            raise _refused(missing)

    async def holder_is_within(
        self, connection: AsyncConnection, kind: HolderKind, holder_id: str, *, held: Collection[str]
    ) -> bool:
        """Return whether a caller with these scopes would lack nothing of what a user or application holds."""
        return not missing_scopes(await self._names(connection, _OF_HOLDERS[kind], [holder_id]), held=held)

    def require_everything(self) -> None:
        """Require ``all``: an administrator may sign in to an application that may request the Management API."""
        self._require_scope(SCOPE_ALL)

    def require_change_of_policy(self) -> None:
        """Require what a change of the policy of impersonations needs."""
        self._require_scope(_POLICY_SCOPE)

    async def require_withdrawal(self, connection: AsyncConnection, role_ids: Collection[str]) -> None:
        """Require what a change of the policy of impersonations needs if it excludes the holders of these roles.

        Users are about to lose the roles, and could then be impersonated.
        """
        if role_ids and await connection.scalar(_PROTECTED, {**self._values, "ids": list(role_ids)}):
            self.require_change_of_policy()

    @staticmethod
    def _require_scope(scope: str) -> None:
        caller = admitted()
        if caller is not None and not caller.may(scope):
            raise _refused([scope])

    async def _require(self, connection: AsyncConnection, statement: Select[str], ids: Collection[str]) -> None:
        caller = admitted()
        if caller is None or SCOPE_ALL in caller.scopes or not ids:
            return
        if missing := missing_scopes(await self._names(connection, statement, ids), held=caller.scopes):
            raise _refused(missing)

    async def _names(self, connection: AsyncConnection, statement: Select[str], ids: Collection[str]) -> list[str]:
        rows = await connection.execute(statement, {**self._values, "ids": list(ids)})
        return [name for (name,) in rows]


def _refused(missing: list[str]) -> Refused:
    message = f"For these objects, the access token needs more scopes of the Management API: {', '.join(missing)}."
    return Refused("auth.scopes_missing", message, data=ErrorData(missing=missing))
