"""``/console/organizations/{id}/joining``: who joins by signing in through a connector, and with which roles."""

import asyncio
import functools
from collections.abc import Container
from contextlib import suppress
from typing import Final, TypeVar

from litestar import Response

from console.areas.members import roles_by_id
from console.areas.names import connector_names, template_names
from console.areas.organizations import NAME
from console.areas.organizations import PATH as ORGANIZATIONS
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import latest
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from identity_common.names import by_name
from stead import OrganizationRole
from stead.errors import Conflict, InvalidInput, NotFound, VersionMismatch
from stead.manage.lists import AsyncListing, ListPage

T = TypeVar("T")

_AT_MOST: Final = 100
_PAGE_SIZE: Final = 25
_DOMAINS: Final = "emailDomains"
_FIELDS: Final = {"entity.unique_integrity_violation": "group"}

AREA: Final = Area()


@AREA.page("/organizations/{organization_id:str}/joining")
async def joining(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await _page(request, organization_id)


@AREA.action("/organizations/{organization_id:str}/joining")
async def change_joining(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
    api = request.api.organizations
    connectors = form.choices("connector")
    try:
        if form.is_changed(_DOMAINS):  # first: it alone can be refused for what was typed
            await api.replace_jit_email_domains(organization_id, form.lines(_DOMAINS), if_match=form.etag())
        if connectors.added:
            await api.add_jit_connectors(organization_id, connectors.added)
        for connector_id in connectors.removed:
            with suppress(NotFound):  # another administrator has removed it already
                await api.remove_jit_connector(organization_id, connector_id)
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _page(request, organization_id, form=form, status=error.status)
    return await request.done(_path(organization_id), "joining.saved")


@AREA.page("/organizations/{organization_id:str}/joining/roles")
async def roles(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await _roles_page(request, organization_id, request.typed() or Form())


@AREA.action("/organizations/{organization_id:str}/joining/roles")
async def change_roles(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
    if form.value("step") != "save":
        return await _roles_page(request, organization_id, form)
    added, removed = form.choices("held")
    try:
        if added:
            await request.api.organizations.add_jit_roles(organization_id, added)
        for role_id in removed:
            with suppress(NotFound):  # another administrator has removed it already
                await request.api.organizations.remove_jit_role(organization_id, role_id)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _roles_page(request, organization_id, form, status=error.status)
    kind = "joining.saved" if added or removed else "unchanged"
    return await request.done(f"{_path(organization_id)}/roles", kind)


@AREA.page("/organizations/{organization_id:str}/joining/groups/new", scope="all")
async def new_group(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await _new_page(request, organization_id, request.typed() or Form())


@AREA.action("/organizations/{organization_id:str}/joining/groups/new")
async def add_group(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
    if form.value("step") == "search":
        return await _new_page(request, organization_id, form)
    try:
        await request.api.organizations.add_jit_group(
            organization_id, form.value("ssoConnectorId"), form.value("group"), form.all("organizationRoleIds")
        )
    except (InvalidInput, Conflict) as error:
        if not form.all("organizationRoleIds"):
            form.add("organizationRoleIds", "")  # so that what is wrong with it is said there
        form.refuse(error, _FIELDS)
        return await _new_page(request, organization_id, form, status=error.status)
    return await request.done(_path(organization_id), "joining.saved")


@AREA.page("/organizations/{organization_id:str}/joining/groups/{group_id:str}/remove", scope="all")
async def removal(request: ConsoleRequest, organization_id: str, group_id: str) -> Response[str]:
    return await ask(request, await _removal(request, organization_id, group_id))


@AREA.action("/organizations/{organization_id:str}/joining/groups/{group_id:str}/remove")
async def remove_group(request: ConsoleRequest, organization_id: str, group_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_removal, request, organization_id, group_id))


def _path(organization_id: str) -> str:
    return f"{ORGANIZATIONS}/{organization_id}/joining"


async def _page(
    request: ConsoleRequest, organization_id: str, *, form: Form | None = None, status: int = 200
) -> Response[str]:
    api = request.api.organizations
    (organization, first, held_connectors, held_roles, groups), names, recent = await asyncio.gather(
        asyncio.gather(
            api.get(organization_id),
            api.jit_email_domains(organization_id, page_size=_AT_MOST).page(),
            _all(api.jit_connectors(organization_id)),
            api.jit_roles(organization_id, page_size=_PAGE_SIZE).page(),
            request.page_of(api.jit_groups(organization_id, page_size=_PAGE_SIZE)),
        ),
        connector_names(request),
        latest(request, organization_id=organization_id),
    )
    domains = first.items if first.following is None else await _all(api.jit_email_domains(organization_id))
    current = Form.editing(
        first.etag,
        emailDomains="\n".join(each.email_domain for each in domains),
        connector=[each.id for each in held_connectors],
    )
    values = form or request.typed() or current
    values.merge(current, choices={"connector"})
    return await request.page(
        "organizations/joining.html",
        area=NAME,
        status=status,
        organization=organization,
        form=values,
        connectors={each.id: each.connector_name for each in held_connectors} | names,
        roles=held_roles,
        groups=groups,
        names=names,
        number=request.page_number(),
        recent=recent,
        known={organization_id: organization.name}
        | await template_names(request, recent.value.items if recent.value else ()),
    )


async def _roles_page(request: ConsoleRequest, organization_id: str, form: Form, *, status: int = 200) -> Response[str]:
    search, number = form.text("search") or request.parameter("search"), request.page_number()
    api = request.api.organizations
    organization, held, shown = await asyncio.gather(
        api.get(organization_id),
        _all(api.jit_roles(organization_id)),
        request.page_of(api.jit_roles(organization_id, page_size=_PAGE_SIZE)),
    )
    return await request.page(
        "organizations/joining_roles.html",
        area=NAME,
        status=status,
        organization=organization,
        held=shown,
        number=number,
        available=await _available(request, search, {role.id for role in held}),
        search=search,
        form=form,
    )


async def _new_page(request: ConsoleRequest, organization_id: str, form: Form, *, status: int = 200) -> Response[str]:
    search, picked = form.text("search") or "", form.entered("organizationRoleIds")
    organization, names, offered = await asyncio.gather(
        request.api.organizations.get(organization_id), connector_names(request), _offered(request, search)
    )
    contents = {role.id: role for role in offered.items}
    contents |= await roles_by_id(request, set(picked) - contents.keys())
    return await request.page(
        "organizations/joining_group.html",
        area=NAME,
        status=status,
        organization=organization,
        connectors=[*names.items()],
        roles=sorted(contents.values(), key=lambda role: (role.id not in picked, by_name(role.name))),
        total=offered.total,
        has_more=offered.following is not None,
        search=search,
        form=form,
    )


async def _offered(request: ConsoleRequest, search: str) -> ListPage[OrganizationRole]:
    """Return the first roles by name that people can get and the search finds."""
    return await request.api.organization_roles.list(search=search or None, type="User", page_size=_PAGE_SIZE).page()


async def _available(request: ConsoleRequest, search: str, held: Container[str]) -> ListPage[OrganizationRole]:
    """Return the first roles by name that people can get, the search finds and those who join do not get."""
    listed = request.api.organization_roles.list(search=search or None, type="User", page_size=_AT_MOST)
    found: list[OrganizationRole] = []
    page = await listed.page()
    while True:
        found += (role for role in page.items if role.id not in held)
        if len(found) > _PAGE_SIZE or page.following is None:
            break
        page = await listed.page(page.following)
    has_more = len(found) > _PAGE_SIZE or page.following is not None
    return ListPage(found[:_PAGE_SIZE], total=page.total, following="2" if has_more else None)


async def _all(listed: AsyncListing[T]) -> list[T]:
    return [each async for each in listed]


async def _removal(request: ConsoleRequest, organization_id: str, group_id: str) -> Deletion:
    """Return the removal of a group, to be confirmed.

    Raises:
        NotFound: There is no such organization.
        NoSuchPage: It has no such group.
    """
    organization, names = await asyncio.gather(request.api.organizations.get(organization_id), connector_names(request))
    async for each in request.api.organizations.jit_groups(organization_id):
        if each.id == group_id:
            break
    else:
        raise NoSuchPage
    return Deletion(
        template="organizations/joining_remove.html",
        area=NAME,
        values={
            "here": _path(organization_id),
            "organization": organization.name,
            "group": each,
            "connector": names.get(each.sso_connector_id, each.sso_connector_id),
        },
        delete=functools.partial(request.api.organizations.remove_jit_group, organization_id, group_id),
        then=_path(organization_id),
        notice="joining.saved",
    )
