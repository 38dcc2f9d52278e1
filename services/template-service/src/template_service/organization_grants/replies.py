"""Replies to management-service, which asks on the bus what the organization roles of a user grant."""

from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.paging import Page
from identity_common.wire.organization_grants import (
    GRANTS_TIMEOUT_S,
    MAX_REPLY_BYTES,
    GrantingRole,
    HeldOrganization,
    OrganizationGrantsAnswer,
    OrganizationGrantsQuestion,
    organization_grants_subject,
)
from template_service.answering import database_responder
from template_service.members.store import list_memberships
from template_service.organization_grants import store

_MAX_ROWS: Final = MAX_REPLY_BYTES // 16
"""No reply could hold more: an id has at least twelve characters, and each is quoted and separated."""

_BY_ADMINISTRATORS: Final = ("manual",)
_TOO_LARGE: Final = OrganizationGrantsAnswer(too_large=True)


def organization_grants_responder(bus: Bus, engine: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def answer(connection: AsyncConnection, question: OrganizationGrantsQuestion) -> OrganizationGrantsAnswer:
        found = await granted_in_organizations(connection, tenant_id, question)
        return found if len(msgspec.json.encode(found)) <= MAX_REPLY_BYTES else _TOO_LARGE

    return database_responder(
        bus,
        engine,
        organization_grants_subject(tenant_id),
        OrganizationGrantsQuestion,
        answer,
        unavailable=OrganizationGrantsAnswer(unavailable=True),
        name="organization-grants",
        timeout_s=GRANTS_TIMEOUT_S,
    )


async def granted_in_organizations(
    connection: AsyncConnection, tenant_id: str, question: OrganizationGrantsQuestion
) -> OrganizationGrantsAnswer:
    """Return a page of a user's organizations, and what its roles there grant, by four statements."""
    page = Page(number=question.page, size=question.size, search=question.search)
    memberships, total = await list_memberships(connection, tenant_id, "user", question.user_id, page)
    names = {role.id: role.name for membership in memberships for role in membership.roles}
    permissions = await store.granted_permissions(connection, tenant_id, names, limit=_MAX_ROWS)
    scopes = await store.granted_scope_ids(connection, tenant_id, names, limit=_MAX_ROWS)
    if len(permissions) == _MAX_ROWS or len(scopes) == _MAX_ROWS:
        return _TOO_LARGE
    permission_ids: dict[str, list[str]] = {role_id: [] for role_id in names}
    scope_ids: dict[str, list[str]] = {role_id: [] for role_id in names}
    for role_id, permission in permissions:
        permission_ids[role_id].append(permission.id)
    for role_id, scope_id in scopes:
        scope_ids[role_id].append(scope_id)
    return OrganizationGrantsAnswer(
        total=total,
        organizations=tuple(
            HeldOrganization(
                each.organization.id,
                each.organization.name,
                tuple(role.id for role in each.roles),
                {role.id: role.origins for role in each.roles if role.origins != _BY_ADMINISTRATORS},
            )
            for each in memberships
        ),
        roles=tuple(
            GrantingRole(role_id, name, tuple(permission_ids[role_id]), tuple(scope_ids[role_id]))
            for role_id, name in names.items()
        ),
        permissions=tuple({permission.id: permission for _, permission in permissions}.values()),
    )
