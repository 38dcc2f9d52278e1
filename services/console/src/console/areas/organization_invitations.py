"""``/console/organizations/{id}/invitations``: people who were invited to an organization by e-mail."""

import asyncio
import time
from typing import Final, Literal

from litestar import Response

from console.areas.names import user_names
from console.areas.organizations import NAME, PATH
from console.areas.user_invitations import named
from console.console import Area
from console.forms import Form
from console.page_parts import part
from console.requests import ConsoleRequest
from stead.errors import ApiError

AREA: Final = Area()

_PAGE_SIZE: Final = 25
_OFFERED: Final = 50
_A_WEEK: Final = 7 * 24 * 60
_MINUTE_MS: Final = 60_000
_REFUSALS: Final = range(400, 500)
_FIELDS: Final = {"entity.unique_integrity_violation": "invitee", "organization_invitation.mailed_too_often": "invitee"}
_STATES: Final[dict[str, Literal["Pending", "Accepted", "Expired", "Revoked"] | None]] = {
    "pending": "Pending",
    "accepted": "Accepted",
    "expired": "Expired",
    "revoked": "Revoked",
    "all": None,
}


@AREA.page("/organizations/{organization_id:str}/invitations")
async def invitations(request: ConsoleRequest, organization_id: str) -> Response[str]:
    state, search = request.parameter("state"), request.parameter("search")
    if state not in _STATES:
        state = "pending"
    listed = request.api.organization_invitations.list(
        organization_id=organization_id, status=_STATES[state], search=search or None, page_size=_PAGE_SIZE
    )
    organization, found = await asyncio.gather(request.api.organizations.get(organization_id), request.page_of(listed))
    return await request.page(
        "organizations/invitations.html",
        area=NAME,
        organization=organization,
        found=found,
        state=state,
        search=search,
        number=request.page_number(),
        users=await user_names(request, [each.inviter_id for each in found.items]),
    )


@AREA.page("/organizations/{organization_id:str}/invitations/new", scope="all")
async def new_invitation(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await _new_page(request, organization_id, request.typed() or Form.of(minutes=_A_WEEK))


@AREA.action("/organizations/{organization_id:str}/invitations/new")
async def invite(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
    role_id = await named(form, "role", request.api.organization_roles.list, type="User")
    if form.errors:
        return await _new_page(request, organization_id, form, status=422)
    try:
        await request.api.organization_invitations.create(
            organization_id,
            form.value("invitee").strip(),
            expires_at=_until(form),
            role_ids=[role_id] if role_id else [],
            language=form.text("language"),
            message=form.optional("message"),
        )
    except ApiError as error:
        if error.status not in _REFUSALS:
            raise
        form.refuse(error, _FIELDS)
        return await _new_page(request, organization_id, form, status=error.status)
    return await request.done(f"{PATH}/{organization_id}/invitations", "organization.invited")


@AREA.page("/organizations/{organization_id:str}/invitations/{invitation_id:str}", scope="all")
async def invitation(request: ConsoleRequest, organization_id: str, invitation_id: str) -> Response[str]:
    return await _page(request, organization_id, invitation_id, Form())


@AREA.action("/organizations/{organization_id:str}/invitations/{invitation_id:str}")
async def change_invitation(
    request: ConsoleRequest, organization_id: str, invitation_id: str, form: Form
) -> Response[str]:
    api, is_withdrawn = request.api.organization_invitations, form.value("step") == "withdraw"
    try:
        if is_withdrawn:
            await api.revoke(invitation_id)
        else:
            await api.send(invitation_id)
    except ApiError as error:
        if error.status not in _REFUSALS or error.status == 404:
            raise
        form.refuse(error)
        return await _page(request, organization_id, invitation_id, form, status=error.status)
    notice = "organization.invitation_withdrawn" if is_withdrawn else "organization.invited"
    return await request.done(f"{PATH}/{organization_id}/invitations", notice)


def _until(form: Form) -> int:
    """Return when an invitation expires; what is not a number of minutes is refused by the API."""
    minutes = form.number("minutes")
    return int(time.time() * 1000) + minutes * _MINUTE_MS if isinstance(minutes, int) else 0


async def _new_page(request: ConsoleRequest, organization_id: str, form: Form, *, status: int = 200) -> Response[str]:
    organization, roles = await asyncio.gather(
        request.api.organizations.get(organization_id),
        part(
            request, "ListOrganizationRoles", request.api.organization_roles.list(type="User", page_size=_OFFERED).page
        ),
    )
    return await request.page(
        "organizations/invite.html", area=NAME, status=status, organization=organization, roles=roles, form=form
    )


async def _page(
    request: ConsoleRequest, organization_id: str, invitation_id: str, form: Form, *, status: int = 200
) -> Response[str]:
    organization, shown = await asyncio.gather(
        request.api.organizations.get(organization_id), request.api.organization_invitations.get(invitation_id)
    )
    return await request.page(
        "organizations/invitation.html",
        area=NAME,
        status=status,
        organization=organization,
        invitation=shown,
        users=await user_names(request, [shown.inviter_id, shown.accepted_user_id]),
        form=form,
    )
