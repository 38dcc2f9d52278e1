"""``/console/organizations``: organizations; ``members.py`` has their members."""

import asyncio
import functools
import re
from typing import Final

from litestar import Response

from console.areas.names import names_of_origins, template_names, user_names
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import latest, part
from console.requests import ConsoleRequest
from stead import Organization
from stead.errors import Conflict, InvalidInput, VersionMismatch

AREA: Final = Area()
NAME: Final = "organizations"
PATH: Final = "/console/organizations"

_PAGE_SIZE: Final = 25
_MEMBERS: Final = 10
_LATEST: Final = 5
_COLOR: Final = re.compile("#(?:[0-9A-Fa-f]{3}){1,2}")


@AREA.page("/organizations")
async def organizations(request: ConsoleRequest) -> Response[str]:
    search, number = request.parameter("search"), request.page_number()
    found = await request.page_of(
        request.api.organizations.list(search=search or None, show_featured=True, page_size=_PAGE_SIZE)
    )
    return await request.page(
        "organizations/list.html",
        area=NAME,
        organizations=found,
        colors={each.id: _color(each) for each in found.items},
        search=search,
        number=number,
    )


@AREA.page("/organizations/new", scope="all")
async def new_organization(request: ConsoleRequest) -> Response[str]:
    return await request.page("organizations/new.html", area=NAME, form=request.typed() or Form())


@AREA.action("/organizations/new")
async def create_organization(request: ConsoleRequest, form: Form) -> Response[str]:
    try:
        created = await request.api.organizations.create(form.value("name"), form.optional("description"))
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await request.page("organizations/new.html", area=NAME, status=error.status, form=form)
    return await request.done(f"{PATH}/{created.id}", "created", name=created.name)


@AREA.page("/organizations/{organization_id:str}")
async def organization(request: ConsoleRequest, organization_id: str) -> Response[str]:
    api = request.api
    shown, users, applications, invited, acted, recent = await asyncio.gather(
        api.organizations.get(organization_id),
        part(request, "ListOrganizationUsers", api.organizations.users(organization_id, page_size=_MEMBERS).page),
        part(
            request,
            "ListOrganizationApplications",
            api.organizations.applications(organization_id, page_size=_MEMBERS).page,
        ),
        part(
            request,
            "ListOrganizationInvitations",
            api.organization_invitations.list(
                organization_id=organization_id, status="Pending", page_size=_LATEST
            ).page,
        ),
        part(
            request,
            "ListImpersonations",
            api.impersonations.list(organization_id=organization_id, page_size=_LATEST).page,
        ),
        latest(request, organization_id=organization_id),
    )
    listed = acted.value.items if acted.value else ()
    members = users.value.items if users.value else ()
    return await request.page(
        "organizations/detail.html",
        area=NAME,
        organization=shown,
        color=_color(shown),
        members=(("users", users), ("applications", applications)),
        connectors=await names_of_origins(request, [role for each in members for role in each.organization_roles]),
        invited=invited,
        acted=acted,
        users=await user_names(request, [user_id for each in listed for user_id in (each.user_id, each.actor_id)]),
        recent=recent,
        known={organization_id: shown.name} | await template_names(request, recent.value.items if recent.value else ()),
    )


@AREA.page("/organizations/{organization_id:str}/edit", scope="all")
async def edited_organization(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await _edit_page(request, organization_id)


@AREA.action("/organizations/{organization_id:str}/edit")
async def update_organization(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
    try:
        updated = await request.api.organizations.update(
            organization_id,
            name=form.changed("name", Form.value),
            description=form.changed("description", Form.optional),
            is_mfa_required=form.changed("isMfaRequired", Form.is_checked),
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _edit_page(request, organization_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{organization_id}", "saved", name=updated.name)


@AREA.page("/organizations/{organization_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, organization_id))


@AREA.action("/organizations/{organization_id:str}/delete")
async def delete_organization(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, organization_id))


async def _edit_page(
    request: ConsoleRequest, organization_id: str, *, form: Form | None = None, status: int = 200
) -> Response[str]:
    shown = await request.api.organizations.get(organization_id)
    current = Form.editing(
        shown.etag, name=shown.name, description=shown.description, isMfaRequired=shown.is_mfa_required
    )
    values = form or request.typed() or current
    values.merge(current)
    return await request.page("organizations/edit.html", area=NAME, status=status, organization=shown, form=values)


def _color(organization: Organization) -> str:
    """Return the colour that an organization is marked with, ``#rgb`` or ``#rrggbb``; empty without one."""
    color = organization.color.get("primaryColor")
    return color if isinstance(color, str) and _COLOR.fullmatch(color) else ""


async def _deletion(request: ConsoleRequest, organization_id: str) -> Deletion:
    shown, users, applications = await asyncio.gather(
        request.api.organizations.get(organization_id),
        request.api.organizations.users(organization_id, page_size=1).page(),
        request.api.organizations.applications(organization_id, page_size=1).page(),
    )
    return Deletion(
        template="organizations/delete.html",
        area=NAME,
        values={"organization": shown, "members": (users.total or 0) + (applications.total or 0)},
        etag=shown.etag,
        name=shown.name,
        delete=functools.partial(request.api.organizations.delete, organization_id),
        then=PATH,
        notice="organization.deleted",
        notice_values={"name": shown.name},
    )
