"""``/console/users/{id}``: a person, what it may do and why, who acted as it, and what happened."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from litestar import Response

from console.areas.granted import Group, Rows
from console.areas.names import application_names, connector_names, shown_name, template_names, user_names
from console.areas.user_sessions import SessionRow, session_rows
from console.console import Area
from console.page_parts import Part, latest, part
from console.requests import ConsoleRequest
from console.signed_in import BeyondTheEnd, NoSuchPage
from stead import (
    AuditEntry,
    Consent,
    EffectivePermissions,
    Factors,
    Impersonation,
    OpenInvitation,
    OrganizationMembership,
    Role,
    User,
    UserIdentity,
)
from stead.manage.lists import ListPage

AREA: Final = Area()

_AREA: Final = "users"
_PAGE_SIZE: Final = 25
_LATEST: Final = 5
_ORGANIZATIONS: Final = 5
_ROWS: Final = 60
_ROWS_OF_A_GROUP: Final = 20
_GROUPS: Final = 25
_MORE_ORGANIZATIONS: Final = 10
_MORE_RESOURCES: Final = 25
_SIGNED_IN: Final = "token.sign-in.succeeded"


@AREA.page("/users/{user_id:str}")
async def person(request: ConsoleRequest, user_id: str) -> Response[str]:
    account, (roles, permissions, organizations), past, (identities, connectors) = await asyncio.gather(
        _account(request, user_id), _rights(request, user_id), _past(request, user_id), _identities(request, user_id)
    )
    user, invitation, sessions, consents, factors = account
    acted_as, acted, signed_in, recent = past
    (users, applications), known = await asyncio.gather(
        _names(request, acted_as, acted, consents),
        template_names(request, recent.value.items if recent.value else ()),
    )
    groups, rest = _shown(request, user_id, permissions)
    open_invitation = invitation.value.items[0] if invitation.value and invitation.value.items else None
    return await request.page(
        "users/detail.html",
        area=_AREA,
        user=user,
        name=shown_name(user),
        state=_state(user, open_invitation, factors.value, identities.value),
        identities=identities,
        connectors=connectors,
        factors=factors,
        invitation=open_invitation,
        signed_in=signed_in,
        roles=roles,
        permissions=permissions,
        groups=groups,
        further_groups=rest,
        organizations=organizations,
        number=request.page_number(),
        acted_as=acted_as,
        acted=acted,
        sessions=sessions,
        consents=consents,
        users=users,
        applications=applications,
        recent=recent,
        known=known,
    )


@AREA.page("/users/{user_id:str}/permissions")
async def permissions(request: ConsoleRequest, user_id: str) -> Response[str]:
    """Show all that a user may do: by API resource and organization, or for the resource that the URL names."""
    number, search, resource_id = request.page_number(), request.parameter("search"), request.parameter("resource")
    user, found = await asyncio.gather(
        request.api.users.get(user_id),
        request.api.users.effective_permissions(
            user_id,
            search=search or None,
            page=1 if resource_id else number,
            page_size=1 if resource_id else _MORE_ORGANIZATIONS,
        ),
    )
    if resource_id:
        return await _permissions_for(request, user, found, resource_id)
    rows = Rows(request, user_id, in_all=_ROWS, in_group=_ROWS_OF_A_GROUP)
    first = (number - 1) * _MORE_RESOURCES
    shown = () if search else found.resources[first : first + _MORE_RESOURCES]
    resources = [rows.of_resource(each, is_open=len(found.resources) == 1) for each in shown]
    if number > 1 and not resources and not found.organizations:
        raise BeyondTheEnd
    return await request.page(
        "users/permissions.html",
        area=_AREA,
        user=user,
        name=shown_name(user),
        search=search,
        number=number,
        resources=ListPage(
            resources,
            total=len(found.resources),
            following=str(number + 1) if len(found.resources) > first + _MORE_RESOURCES else None,
        ),
        size_of_resources=_MORE_RESOURCES,
        organizations=ListPage(
            tuple(rows.of_organizations(found)),
            total=found.organization_count,
            following=str(number + 1) if found.organization_count > number * _MORE_ORGANIZATIONS else None,
        ),
        size=_MORE_ORGANIZATIONS,
    )


async def _permissions_for(
    request: ConsoleRequest, user: User, found: EffectivePermissions, resource_id: str
) -> Response[str]:
    """Show a page of the permissions for one API resource.

    Raises:
        NoSuchPage: The user has none for it, or not so many.
    """
    resource = next((each for each in found.resources if each.id == resource_id), None)
    number = request.page_number()
    first = (number - 1) * _ROWS
    if resource is None or first >= len(resource.scopes):
        raise NoSuchPage
    group = Rows(request, user.id, in_all=_ROWS, in_group=_ROWS).of_resource(resource, first=first, is_open=True)
    following = str(number + 1) if len(resource.scopes) > first + _ROWS else None
    return await request.page(
        "users/permissions_for.html",
        area=_AREA,
        user=user,
        name=shown_name(user),
        group=group,
        resource_id=resource_id,
        number=number,
        listed=ListPage(tuple(group.rows), total=len(resource.scopes), following=following),
        size=_ROWS,
    )


async def _account(
    request: ConsoleRequest, user_id: str
) -> tuple[User, Part[ListPage[OpenInvitation]], Part[ListPage[SessionRow]], Part[list[Consent]], Part[Factors]]:
    users = request.api.users
    sessions = users.sessions(user_id, page_size=_LATEST)
    user, invitation, found, consents, factors = await asyncio.gather(
        users.get(user_id),
        part(request, "ListInvitations", users.invitations(user_id=user_id, page_size=1).page),
        part(request, "ListUserSessions", lambda: session_rows(sessions.page())),
        part(request, "ListUserConsents", lambda: users.consents(user_id)),
        part(request, "GetUserFactors", lambda: users.factors(user_id)),
    )
    return user, invitation, found, consents, factors


async def _rights(
    request: ConsoleRequest, user_id: str
) -> tuple[Part[ListPage[Role]], Part[EffectivePermissions], Part[ListPage[OrganizationMembership]]]:
    users = request.api.users
    organizations = users.organizations(user_id, page_size=_PAGE_SIZE)
    effective_permissions = partial(users.effective_permissions, user_id, page=1, page_size=_ORGANIZATIONS)
    return await asyncio.gather(
        part(request, "ListUserRoles", users.roles(user_id, page_size=_PAGE_SIZE).page),
        part(request, "GetUserEffectivePermissions", effective_permissions),
        part(request, "ListUserOrganizations", lambda: request.page_of(organizations)),
    )


async def _past(
    request: ConsoleRequest, user_id: str
) -> tuple[
    Part[ListPage[Impersonation]], Part[ListPage[Impersonation]], Part[ListPage[AuditEntry]], Part[ListPage[AuditEntry]]
]:
    impersonations = request.api.users.impersonations
    return await asyncio.gather(
        part(request, "ListUserImpersonations", impersonations(user_id, role="subject", page_size=_LATEST).page),
        part(request, "ListUserImpersonations", impersonations(user_id, role="actor", page_size=_LATEST).page),
        part(request, "ListLogs", request.api.logs.list(user_id=user_id, key=_SIGNED_IN, page_size=1).page),
        latest(request, user_id=user_id),
    )


async def _identities(request: ConsoleRequest, user_id: str) -> tuple[Part[ListPage[UserIdentity]], dict[str, str]]:
    """Read the identities of a user at providers, and the names of their connectors."""
    identities = await part(
        request, "ListUserIdentities", request.api.users.identities(user_id, page_size=_PAGE_SIZE).page
    )
    has_some = identities.value is not None and identities.value.items
    return identities, await connector_names(request) if has_some else {}


def _state(
    user: User,
    invitation: OpenInvitation | None,
    factors: Factors | None,
    identities: ListPage[UserIdentity] | None,
) -> str:
    """Return whether the user can sign in, or why not."""
    if user.is_suspended:
        return "suspended"
    if user.has_password or any(each.type == "passkey" for each in (factors.factors if factors else ())):
        return "active"
    if identities and identities.items:
        return "at_provider"
    if invitation is None:
        return "without_password"
    return "invited" if invitation.status == "Pending" else "expired"


def _shown(
    request: ConsoleRequest, user_id: str, permissions: Part[EffectivePermissions]
) -> tuple[Sequence[Group], int]:
    """Return the groups of permissions that the page of a person has room for, and how many it leaves out."""
    found = permissions.value
    if found is None:
        return (), 0
    rows = Rows(request, user_id, in_all=_ROWS, in_group=_ROWS_OF_A_GROUP)
    groups = [*rows.of_resources(found), *rows.of_organizations(found)]
    in_all = len(found.resources) + found.organization_count
    shown = groups[:_GROUPS]
    return shown, in_all - len(shown)


async def _names(
    request: ConsoleRequest,
    acted_as: Part[ListPage[Impersonation]],
    acted: Part[ListPage[Impersonation]],
    consents: Part[list[Consent]],
) -> tuple[dict[str, str], dict[str, str]]:
    found = [each for listed in (acted_as, acted) if listed.value for each in listed.value.items]
    user_ids = [user_id for each in found for user_id in (each.user_id, each.actor_id, each.requested_by)]
    client_ids = [each.client_id for each in found]
    client_ids += [each.application_id for each in consents.value or ()]
    users, applications = await asyncio.gather(user_names(request, user_ids), application_names(request, client_ids))
    return users, applications
