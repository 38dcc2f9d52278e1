"""``/console/organizations/{id}/joining``: who joins by signing in through a connector, and with which roles."""

import asyncio
import functools
from contextlib import suppress
from typing import Final

from litestar import Response

from console.areas.names import connector_names
from console.areas.organizations import NAME
from console.areas.organizations import PATH as ORGANIZATIONS
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import latest, part
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import OrganizationRole
from stead.errors import Conflict, InvalidInput, NotFound, VersionMismatch

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
    connectors, roles = form.choices("connector"), form.choices("role")
    try:
        if form.is_changed(_DOMAINS):  # first: it alone can be refused for what was typed
            await api.replace_jit_email_domains(organization_id, form.lines(_DOMAINS), if_match=form.etag())
        if connectors.added:
            await api.add_jit_connectors(organization_id, connectors.added)
        if roles.added:
            await api.add_jit_roles(organization_id, roles.added)
        for connector_id in connectors.removed:
            with suppress(NotFound):  # another administrator has removed it already
                await api.remove_jit_connector(organization_id, connector_id)
        for role_id in roles.removed:
            with suppress(NotFound):
                await api.remove_jit_role(organization_id, role_id)
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _page(request, organization_id, form=form, status=error.status)
    return await request.done(_path(organization_id), "joining.saved")


@AREA.page("/organizations/{organization_id:str}/joining/groups/new", scope="all")
async def new_group(request: ConsoleRequest, organization_id: str) -> Response[str]:
    return await _new_page(request, organization_id, request.typed() or Form())


@AREA.action("/organizations/{organization_id:str}/joining/groups/new")
async def add_group(request: ConsoleRequest, organization_id: str, form: Form) -> Response[str]:
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
    (organization, domains, held_roles, held_connectors, groups), names, roles, recent = await asyncio.gather(
        asyncio.gather(
            api.get(organization_id),
            api.jit_email_domains(organization_id, page_size=_AT_MOST).page(),
            api.jit_roles(organization_id, page_size=_AT_MOST).page(),
            api.jit_connectors(organization_id, page_size=_AT_MOST).page(),
            request.page_of(api.jit_groups(organization_id, page_size=_PAGE_SIZE)),
        ),
        connector_names(request),
        part(request, "ListOrganizationRoles", lambda: _roles(request)),
        latest(request, organization_id=organization_id),
    )
    current = Form.editing(
        domains.etag,
        emailDomains="\n".join(each.email_domain for each in domains.items),
        connector=[each.id for each in held_connectors.items],
        role=[each.id for each in held_roles.items],
    )
    values = form or request.typed() or current
    values.merge(current, choices={"connector", "role"})
    return await request.page(
        "organizations/joining.html",
        area=NAME,
        status=status,
        organization=organization,
        form=values,
        connectors={each.id: each.connector_name for each in held_connectors.items} | names,
        roles={each.id: each.name for each in (*held_roles.items, *(roles.value or ()))},
        groups=groups,
        names=names,
        number=request.page_number(),
        recent=recent,
    )


async def _roles(request: ConsoleRequest) -> list[OrganizationRole]:
    """Return the roles that people can get, the first by name."""
    return [*(await request.api.organization_roles.list(type="User", page_size=_AT_MOST).page()).items]


async def _new_page(request: ConsoleRequest, organization_id: str, form: Form, *, status: int = 200) -> Response[str]:
    organization, names, roles = await asyncio.gather(
        request.api.organizations.get(organization_id), connector_names(request), _roles(request)
    )
    return await request.page(
        "organizations/joining_group.html",
        area=NAME,
        status=status,
        organization=organization,
        connectors=[*names.items()],
        roles=roles,
        form=form,
    )


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
