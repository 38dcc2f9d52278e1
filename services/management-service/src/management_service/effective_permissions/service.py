"""Reading the effective permissions of a user: three statements here, and one request to template-service."""

from itertools import groupby
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.failures import missing_by_id
from identity_common.paging import Page
from management_service.effective_permissions import store
from management_service.effective_permissions.organizations import OrganizationGrants
from management_service.effective_permissions.rules import (
    MAX_GRANTS,
    EffectivePermissionsAnswer,
    by_organization,
    by_resource,
    too_many_permissions,
)
from management_service.users.store import find_user


class Found(NamedTuple):
    """The permissions of a user, with a page of its organizations, and the number of all its organizations."""

    permissions: EffectivePermissionsAnswer
    total: int


class EffectivePermissions:
    """All that tokens for a user may carry, as the roles are at this moment."""

    def __init__(
        self, reader: AsyncEngine, organizations: OrganizationGrants, *, tenant_id: str, management_api: str
    ) -> None:
        self._reader = reader
        self._organizations = organizations
        self._tenant_id = tenant_id
        self._management_api = management_api

    async def read(self, user_id: str, page: Page) -> Found:
        """Return the permissions of a user, those within organizations for one page of them.

        Raises:
            NotFound: The user does not exist.
            Conflict: ``user.too_many_permissions``.
            TemporarilyUnavailable: template-service does not answer.
        """
        found = await self._organizations.of_user(user_id, page)
        # After template-service, so that the scopes that its roles grant are looked up in a later state.
        scope_ids = {scope_id for role in found.roles for scope_id in role.scope_ids}
        async with self._reader.connect() as connection:
            user = await find_user(connection, self._tenant_id, user_id)
            if user is None:
                raise missing_by_id()
            granted = await store.scopes_of_user(connection, self._tenant_id, user_id, limit=MAX_GRANTS + 1)
            # No role of an organization grants scopes of the Management API.
            scopes = await store.scopes_by_id(connection, self._tenant_id, scope_ids, but_of=self._management_api)
        if len(granted) > MAX_GRANTS:
            raise too_many_permissions()
        permissions = EffectivePermissionsAnswer(
            is_suspended=user.is_suspended,
            resources=by_resource(
                (scope, tuple(role for _, role in of_scope))
                for scope, of_scope in groupby(granted, key=lambda each: each[0])
            ),
            organizations=by_organization(found, scopes),
        )
        return Found(permissions, found.total)
