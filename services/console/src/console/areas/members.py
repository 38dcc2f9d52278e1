"""``/console/organizations/{id}/users`` and ``…/applications``: members, their roles, and what these roles grant."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from litestar import Response

from console.areas.members_import import Line, by_roles, find_members, read_lines
from console.areas.names import batches, names_of_origins
from console.areas.organizations import NAME, PATH
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from identity_common.names import by_name
from stead import OrganizationRole
from stead.errors import ApiError, Conflict, InvalidInput, Unavailable, VersionMismatch

AREA: Final = Area()

_PAGE_SIZE: Final = 25
_MAX_LINES: Final = 500
_AT_MOST: Final = 100
"""Roles of a member that have a version together."""


class Members(msgspec.Struct, frozen=True):
    """The operations of the API on one kind of members.

    Attributes:
        kind: ``users`` or ``applications``: the last segment of the path.
        role_type: Type of the roles that these members can have.
    """

    kind: str
    role_type: Any
    list: Callable[..., Any]
    add: Callable[..., Awaitable[None]]
    remove: Callable[..., Awaitable[None]]
    assign_to_all: Callable[..., Awaitable[None]]
    roles: Callable[..., Any]
    replace_roles: Callable[..., Awaitable[None]]

    @classmethod
    def of(cls, request: ConsoleRequest, kind: str) -> "Members":
        """Return the operations.

        Raises:
            NoSuchPage: There is no such kind.
        """
        api = request.api.organizations
        if kind == "users":
            of_all = (api.users, api.add_users, api.remove_user, api.assign_roles_to_users)
            return cls(kind, "User", *of_all, api.user_roles, api.replace_user_roles)
        if kind == "applications":
            of_all = (api.applications, api.add_applications, api.remove_application, api.assign_roles_to_applications)  # type: ignore[assignment]
            return cls(kind, "MachineToMachine", *of_all, api.application_roles, api.replace_application_roles)
        raise NoSuchPage


class Granted(msgspec.Struct, frozen=True):
    """A permission that a member has.

    Attributes:
        name: Name of the permission.
        resource: Name of the API; empty for an organization permission.
        roles: Names of the roles that it comes from.
    """

    name: str
    resource: str
    roles: Sequence[str]


@AREA.page("/organizations/{organization_id:str}/{kind:str}")
async def members(request: ConsoleRequest, organization_id: str, kind: str) -> Response[str]:
    operations = Members.of(request, kind)
    search, number = request.parameter("search"), request.page_number()
    organization, found = await asyncio.gather(
        request.api.organizations.get(organization_id),
        request.page_of(operations.list(organization_id, search=search or None, page_size=_PAGE_SIZE)),
    )
    return await request.page(
        "organizations/members.html",
        area=NAME,
        kind=kind,
        organization=organization,
        members=found,
        connectors=await names_of_origins(request, [role for each in found.items for role in each.organization_roles]),
        search=search,
        number=number,
    )


@AREA.page("/organizations/{organization_id:str}/{kind:str}/add", scope="all")
async def new_members(request: ConsoleRequest, organization_id: str, kind: str) -> Response[str]:
    return await _add_page(request, organization_id, Members.of(request, kind), request.typed() or Form())


@AREA.action("/organizations/{organization_id:str}/{kind:str}/add")
async def add_members(request: ConsoleRequest, organization_id: str, kind: str, form: Form) -> Response[str]:
    operations = Members.of(request, kind)
    lines = read_lines(form.value("members"))
    if not lines or len(lines) > _MAX_LINES:
        form.errors["members"] = "length"
        return await _add_page(request, organization_id, operations, form, status=422)
    roles = {role.name: role.id async for role in request.api.organization_roles.list(type=operations.role_type)}
    await find_members(request, lines, kind, roles)
    usable = [line for line in lines if not line.problem]
    ids, added = [*{line.member_id for line in usable}], 0
    try:
        if ids:
            await operations.add(organization_id, ids)
            added = len(ids)
        for names, holders in by_roles(usable).items():
            await operations.assign_to_all(organization_id, holders, [roles[name] for name in names])
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _add_page(request, organization_id, operations, form, status=error.status, added=added)
    except Unavailable as error:
        form.problem = str(error)
        return await _add_page(request, organization_id, operations, form, status=503, added=added)
    problems = [line for line in lines if line.problem]
    if problems:
        rest = Form({"members": ["\n".join(line.text for line in problems)]})
        return await _add_page(request, organization_id, operations, rest, status=422, problems=problems, added=added)
    return await request.done(f"{PATH}/{organization_id}/{kind}", "members.added", count=str(added))


@AREA.page("/organizations/{organization_id:str}/{kind:str}/{member_id:str}")
async def member(request: ConsoleRequest, organization_id: str, kind: str, member_id: str) -> Response[str]:
    return await _member_page(request, organization_id, Members.of(request, kind), member_id, request.typed())


@AREA.action("/organizations/{organization_id:str}/{kind:str}/{member_id:str}")
async def replace_roles(
    request: ConsoleRequest, organization_id: str, kind: str, member_id: str, form: Form
) -> Response[str]:
    operations = Members.of(request, kind)
    try:
        await operations.replace_roles(organization_id, member_id, form.all("role"), if_match=form.etag())
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _member_page(request, organization_id, operations, member_id, form, status=error.status)
    return await request.done(f"{PATH}/{organization_id}/{kind}/{member_id}", "member.saved")


@AREA.page("/organizations/{organization_id:str}/{kind:str}/{member_id:str}/remove", scope="all")
async def removal(request: ConsoleRequest, organization_id: str, kind: str, member_id: str) -> Response[str]:
    return await ask(request, await _removal(request, organization_id, kind, member_id))


@AREA.action("/organizations/{organization_id:str}/{kind:str}/{member_id:str}/remove")
async def remove_member(
    request: ConsoleRequest, organization_id: str, kind: str, member_id: str, form: Form
) -> Response[str]:
    return await carry_out(request, form, functools.partial(_removal, request, organization_id, kind, member_id))


async def _add_page(
    request: ConsoleRequest,
    organization_id: str,
    operations: Members,
    form: Form,
    *,
    status: int = 200,
    problems: Sequence[Line] = (),
    added: int = 0,
) -> Response[str]:
    return await request.page(
        "organizations/add_members.html",
        area=NAME,
        status=status,
        organization=await request.api.organizations.get(organization_id),
        kind=operations.kind,
        form=form,
        problems=problems,
        added=added,
        max_lines=_MAX_LINES,
    )


async def _member_page(
    request: ConsoleRequest,
    organization_id: str,
    operations: Members,
    member_id: str,
    form: Form | None,
    *,
    status: int = 200,
) -> Response[str]:
    search = request.parameter("search")
    try:
        organization, name, found, offered = await asyncio.gather(
            request.api.organizations.get(organization_id),
            _name_of(request, operations.kind, member_id),
            operations.roles(organization_id, member_id, page_size=_AT_MOST).page(),
            request.api.organization_roles.list(
                search=search or None, type=operations.role_type, page_size=_PAGE_SIZE
            ).page(),
        )
    except Conflict:  # not a member, or no longer
        raise NoSuchPage from None
    held = found.items if found.following is None else await _all(operations.roles(organization_id, member_id))
    current = Form.editing(found.etag, role=[role.id for role in held if _is_given_here(role)])
    values = form or current
    changed = set(values.all("was.role")) ^ set(current.all("role")) if values.is_overtaken else set()
    values.merge(current, choices={"role"})
    contents = {role.id: role for role in offered.items}
    origins = {role.id: [each for each in role.origins or () if each != "manual"] for role in held}
    named = {*origins, *values.all("role"), *changed}
    contents |= await roles_by_id(request, named - contents.keys())
    return await request.page(
        "organizations/member.html",
        area=NAME,
        status=status,
        organization=organization,
        kind=operations.kind,
        member_id=member_id,
        name=name,
        roles=sorted((role for role in contents.values() if role.id in named), key=lambda role: by_name(role.name)),
        others=[role for role in offered.items if role.id not in named],
        total=offered.total,
        has_more=offered.following is not None,
        search=search,
        picked=set(values.all("role")),
        changed=changed,
        origins=origins,
        connectors=await names_of_origins(request, held),
        granted=granted_by([contents.get(role.id, role) for role in held]),
        form=values,
    )


def _is_given_here(role: OrganizationRole) -> bool:
    """Return whether saving the page may take a role away: what groups at a provider give stays."""
    return role.origins is None or not {"manual", "jit"}.isdisjoint(role.origins)


async def roles_by_id(request: ConsoleRequest, ids: Iterable[str]) -> dict[str, OrganizationRole]:
    """Return roles and what they grant; one that was deleted meanwhile is left out."""
    found: dict[str, OrganizationRole] = {}
    for some in batches(ids):
        page = await request.api.organization_roles.list(ids=some, page_size=len(some)).page()
        found |= {role.id: role for role in page.items}
    return found


async def _removal(request: ConsoleRequest, organization_id: str, kind: str, member_id: str) -> Deletion:
    """Return the removal of a member, to be confirmed.

    Raises:
        NotFound: There is no such organization.
        NoSuchPage: There is no such member.
    """
    operations = Members.of(request, kind)
    try:
        organization, name, roles = await asyncio.gather(
            request.api.organizations.get(organization_id),
            _name_of(request, kind, member_id),
            _all(operations.roles(organization_id, member_id)),
        )
    except Conflict:  # not a member, or no longer
        raise NoSuchPage from None
    here = f"{PATH}/{organization_id}/{kind}"
    return Deletion(
        template="organizations/remove.html",
        area=NAME,
        values={
            "here": here,
            "member_id": member_id,
            "name": name,
            "organization": organization.name,
            "roles": sorted((role.name for role in roles), key=by_name),
        },
        delete=functools.partial(operations.remove, organization_id, member_id),
        then=here,
        notice="member.removed",
        notice_values={"name": name},
    )


def granted_by(roles: Sequence[OrganizationRole]) -> list[Granted]:
    """Return what these roles grant together, organization permissions first, each with the roles it comes from."""
    sources: dict[tuple[str, str], list[str]] = {}
    for role in roles:
        for permission in role.scopes or ():
            sources.setdefault(("", permission.name), []).append(role.name)
        for scope in role.resource_scopes or ():
            sources.setdefault((scope.resource.name, scope.name), []).append(role.name)
    return [Granted(name, resource, names) for (resource, name), names in sorted(sources.items(), key=_by_resource)]


def _by_resource(source: tuple[tuple[str, str], list[str]]) -> tuple[str, ...]:
    (resource, name), _ = source
    return *by_name(resource), *by_name(name)


async def _name_of(request: ConsoleRequest, kind: str, member_id: str) -> str:
    try:
        if kind == "users":
            user = await request.api.users.get(member_id)
            return user.name or user.username or user.primary_email or user.id
        return (await request.api.applications.get(member_id)).name
    except ApiError:
        raise NoSuchPage from None


async def _all(listed: Any) -> list[Any]:
    return [each async for each in listed]
