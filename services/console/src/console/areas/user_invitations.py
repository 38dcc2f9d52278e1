"""Inviting people: ``/console/users/invite``, the open invitations, and the invitation of one user.

A new user is invited in one form: the user, what it may do, and the invitation. All of it is made, or none: where a
step fails, the user is deleted again, and the page says so where even that failed: where the session has ended, after
the next sign-in. A form that is sent twice makes one user, as its e-mail address is in use by then.
"""

import asyncio
from typing import Any, Final

import msgspec
from litestar import Response

from console.areas.names import application_names, shown_name, user_names
from console.console import Area
from console.forms import Form, InvalidField
from console.invitations import ACCEPTING
from console.page_parts import Part, part
from console.rendering import moment
from console.requests import ConsoleRequest, NoRights
from console.signed_in import SignInNeeded
from identity_common.names import canonical_name
from stead import Invitation, OrganizationRole, Role, User
from stead.errors import ApiError, Conflict, Forbidden, InvalidId, InvalidInput, NotFound, Unavailable
from stead.manage.lists import ListPage

AREA: Final = Area()

_PATH: Final = "/console/users"
_AREA: Final = "users"
_PAGE_SIZE: Final = 25
_OFFERED: Final = 50
_LONGEST_SEARCH: Final = 128
_COMPARED: Final = 1000
"""Most names that are compared with what a field names; an id that is searched for stands alone."""
_A_DAY: Final = 24 * 60
_A_WEEK: Final = 7 * _A_DAY
_STATES: Final = {"pending": "Pending", "expired": "Expired", "all": None}
_LEFT: Final = "left"
"""Field of a form that waits for a sign-in: the user that was created and is still there."""
_FIELDS: Final = {"user.email_already_in_use": "primaryEmail"}


class Offered(msgspec.Struct, frozen=True):
    """What the administrator may give to a new user; of long lists the beginning, the rest is found by its name.

    Attributes:
        roles: API roles.
        organization_roles: Roles in an organization.
        organizations: Whether the user may be added to an organization.
    """

    roles: Part[ListPage[Role]]
    organization_roles: Part[ListPage[OrganizationRole]]
    organizations: bool


class Given(msgspec.Struct, frozen=True):
    """What the form gives to the new user, by id; empty for nothing."""

    role_id: str = ""
    organization_id: str = ""
    organization_role_id: str = ""


@AREA.page("/users/invite", scope="all")
async def new_invitation(request: ConsoleRequest) -> Response[str]:
    form = request.typed() or Form.of(organization=request.parameter("organization"), minutes=_A_WEEK)
    left = await _left(request, form)
    return await _page(request, form, outcome="left" if left else "", existing=left)


@AREA.action("/users/invite")
async def invite_new_user(request: ConsoleRequest, form: Form) -> Response[str]:
    """Create a user with what it may do, and an invitation."""
    email = form.text("primaryEmail")
    if email is None:
        form.errors["primaryEmail"] = "required"
        return await _page(request, form, status=422)
    try:
        given = await _given(request, form)
    except InvalidField:
        return await _page(request, form, status=422)
    except (ApiError, Unavailable) as error:
        return await _page(request, form, status=_refuse(form, error))
    try:
        user = await request.api.users.create(name=form.optional("name"), primary_email=email)
    except (InvalidInput, Conflict, Forbidden) as error:
        form.refuse(error, _FIELDS)
        existing = await _user_with(request, email) if "primaryEmail" in form.errors else None
        return await _page(request, form, status=error.status, existing=existing)
    except Unavailable as error:
        return await _page(request, form, status=_refuse(form, error), outcome="unknown")
    try:
        invitation = await _complete(request, form, user, given)
    except (ApiError, Unavailable) as error:
        outcome = await _undo(request, user)
        status = _refuse(form, error)
        return await _page(request, form, status=status, outcome=outcome, existing=user if outcome == "left" else None)
    except (SignInNeeded, NoRights):
        if await _undo(request, user) == "left":
            form.add(_LEFT, user.id)  # the form is shown again after the sign-in
        raise
    return await _done(request, user.id, invitation)


@AREA.page("/users/invitations")
async def invitations(request: ConsoleRequest) -> Response[str]:
    state, search = request.parameter("state"), request.parameter("search")
    if state not in _STATES:
        state = "pending"
    found = await request.page_of(
        request.api.users.invitations(status=_STATES[state], search=search or None, page_size=_PAGE_SIZE)
    )
    people = [person for each in found.items for person in (each.user_id, each.inviter_id)]
    users, applications = await asyncio.gather(
        user_names(request, people), application_names(request, [each.application_id for each in found.items])
    )
    return await request.page(
        "users/invitations.html",
        area=_AREA,
        found=found,
        state=state,
        search=search,
        number=request.page_number(),
        users=users,
        applications=applications,
    )


@AREA.page("/users/{user_id:str}/invitation", scope="all")
async def invitation(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _invitation_page(request, user_id, request.typed() or Form.of(minutes=_A_WEEK))


@AREA.action("/users/{user_id:str}/invitation")
async def invite(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    if form.value("step") == "withdraw":
        await request.api.users.withdraw_invitation(user_id)
        return await request.done(f"{_PATH}/{user_id}", "user.invitation_withdrawn")
    try:
        invitation = await request.api.users.invite(user_id, minutes=form.number("minutes"))
    except (InvalidInput, Forbidden) as error:
        form.refuse(error)
        return await _invitation_page(request, user_id, form, status=error.status)
    return await _done(request, user_id, invitation)


async def _given(request: ConsoleRequest, form: Form) -> Given:
    """Look up what the form names.

    Raises:
        InvalidField: One of the names is unknown, or stands for several; its error is set.
        Forbidden: The administrator may not give it.
    """
    role_id = await named(form, "role", request.api.roles.list, type="User")
    organization_id = await named(form, "organization", request.api.organizations.list)
    organization_role_id = await named(form, "organizationRole", request.api.organization_roles.list, type="User")
    if organization_role_id and not organization_id:
        form.errors.setdefault("organization", "required")
    if form.errors:
        raise InvalidField
    return Given(role_id, organization_id, organization_role_id)


async def named(form: Form, field: str, listed: Any, **filters: str) -> str:
    """Return the id of what a field names, by its name or its id; empty if the field is, or is wrong."""
    text = form.text(field)
    if text is None:
        return ""
    name, named, compared = canonical_name(text), [], 0
    try:
        async for each in listed(search=name[:_LONGEST_SEARCH], page_size=100, **filters):
            if each.id == text:
                return text
            if canonical_name(each.name) == name:
                named.append(str(each.id))
            compared += 1
            if compared == _COMPARED:
                break
    except InvalidInput:  # a text that no name can have
        pass
    if len(named) != 1 or compared == _COMPARED:
        form.errors[field] = "ambiguous" if compared == _COMPARED or named else "unknown"
        return ""
    return named[0]


async def _complete(request: ConsoleRequest, form: Form, user: User, given: Given) -> Invitation:
    """Give a new user what the form says, and then invite it: who may do more than the author cannot be invited."""
    if given.role_id:
        await request.api.users.assign_roles(user.id, [given.role_id])
    if given.organization_id:
        await request.api.organizations.add_users(given.organization_id, [user.id])
    if given.organization_role_id:
        await request.api.organizations.assign_user_roles(given.organization_id, user.id, [given.organization_role_id])
    return await request.api.users.invite(user.id, minutes=form.number("minutes"))


async def _undo(request: ConsoleRequest, user: User) -> str:
    """Delete the new user; return whether it is gone."""
    try:
        await request.api.users.delete(user.id)
    except NotFound:
        return "undone"
    except (ApiError, Unavailable, SignInNeeded, NoRights):
        return "left"
    return "undone"


async def _left(request: ConsoleRequest, form: Form) -> User | None:
    """Return the user that was created before the session ended, and could not be deleted again; None if it is gone."""
    user_id = form.text(_LEFT)
    if user_id is None:
        return None
    try:
        return await request.api.users.get(user_id)
    except (NotFound, InvalidId):
        return None


def _refuse(form: Form, error: ApiError | Unavailable) -> int:
    """Set what is wrong; return the status of the page."""
    if isinstance(error, Unavailable):
        form.problem = str(error)
        return 503
    form.refuse(error)
    return error.status


async def _user_with(request: ConsoleRequest, email: str) -> User | None:
    """Return the user who has this e-mail address; None if there is none, or it cannot be one."""
    try:
        found = await request.api.users.list(exact={"primaryEmail": email}, page_size=1).page()
    except (InvalidInput, Unavailable):
        return None
    return next(iter(found.items), None)


async def _done(request: ConsoleRequest, user_id: str, invitation: Invitation) -> Response[str]:
    """Show the link of an invitation, once; its code is in the fragment, which no server sees and no log has."""
    link = f"{request.base_url}{ACCEPTING}#{invitation.invitation}"
    return await request.done(f"{_PATH}/{user_id}", "user.invited", secret=link, until=moment(invitation.expires_at))


async def _page(
    request: ConsoleRequest, form: Form, *, status: int = 200, outcome: str = "", existing: User | None = None
) -> Response[str]:
    offered = await _offered(request)
    return await request.page(
        "users/invite.html",
        area=_AREA,
        status=status,
        form=form,
        offered=offered,
        outcome=outcome,
        existing=existing,
        existing_name=existing and shown_name(existing),
    )


async def _offered(request: ConsoleRequest) -> Offered:
    roles, in_organizations = await asyncio.gather(
        part(request, "AddUserRoles", request.api.roles.list(type="User", page_size=_OFFERED).page),
        part(
            request, "ListOrganizationRoles", request.api.organization_roles.list(type="User", page_size=_OFFERED).page
        ),
    )
    return Offered(roles, in_organizations, "organizations" in request.scopes)


async def _invitation_page(request: ConsoleRequest, user_id: str, form: Form, *, status: int = 200) -> Response[str]:
    user, found = await asyncio.gather(
        request.api.users.get(user_id), request.api.users.invitations(user_id=user_id, page_size=1).page()
    )
    return await request.page(
        "users/invitation.html",
        area=_AREA,
        status=status,
        user=user,
        form=form,
        found=next(iter(found.items), None),
    )
