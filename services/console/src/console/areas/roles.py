"""``/console/roles``: API roles, the scopes that they grant, and their holders."""

import asyncio
import functools
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from litestar import Response

from console.areas.names import shown_name
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import Part, latest, part
from console.requests import HOME, ConsoleRequest, NoRights
from identity_common.rights.operations import REQUIREMENTS
from stead import Role
from stead.errors import Conflict, InvalidInput, NotFound, VersionMismatch

PATH: Final = "/console/roles"

_AREA: Final = "roles"
_PAGE_SIZE: Final = 25
_TYPES: Final = ("User", "MachineToMachine")
_HOLDERS: Final = {"User": "ListRoleUsers", "MachineToMachine": "ListRoleApplications"}
"""Operations that list the holders of each kind of role."""

AREA: Final = Area()


@AREA.page("/roles")
async def roles(request: ConsoleRequest) -> Response[str]:
    search, number = request.parameter("search"), request.page_number()
    found = await request.page_of(request.api.roles.list(search=search or None, page_size=_PAGE_SIZE))
    return await request.page("roles/list.html", area=_AREA, roles=found, search=search, number=number)


@AREA.page("/roles/new", scope="all")
async def new_role(request: ConsoleRequest) -> Response[str]:
    return await request.page("roles/new.html", area=_AREA, types=_TYPES, form=request.typed() or Form())


@AREA.action("/roles/new")
async def create_role(request: ConsoleRequest, form: Form) -> Response[str]:
    try:
        created = await request.api.roles.create(
            form.value("name"),
            form.value("description"),
            form.value("type"),  # type: ignore[arg-type]  # the API validates it
            is_default=form.is_checked("isDefault"),
        )
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await request.page("roles/new.html", area=_AREA, status=error.status, types=_TYPES, form=form)
    return await request.done(f"{PATH}/{created.id}", "created", name=created.name)


@AREA.page("/roles/{role_id:str}")
async def role(request: ConsoleRequest, role_id: str) -> Response[str]:
    return await _page(request, role_id)


@AREA.action("/roles/{role_id:str}")
async def update_role(request: ConsoleRequest, role_id: str, form: Form) -> Response[str]:
    try:
        updated = await request.api.roles.update(
            role_id,
            name=form.changed("name", Form.value),
            description=form.changed("description", Form.value),
            is_default=form.changed("isDefault", Form.is_checked),
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _page(request, role_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{role_id}", "saved", name=updated.name)


@AREA.page("/roles/{role_id:str}/scopes")
async def scopes(request: ConsoleRequest, role_id: str) -> Response[str]:
    return await _scopes_page(request, role_id, request.typed() or Form())


@AREA.action("/roles/{role_id:str}/scopes")
async def change_scopes(request: ConsoleRequest, role_id: str, form: Form) -> Response[str]:
    if form.value("step") != "save":
        return await _scopes_page(request, role_id, form)
    added, removed = form.choices("held")
    try:
        if added:
            await request.api.roles.assign_scopes(role_id, added)
        for scope_id in removed:
            with suppress(NotFound):  # another administrator has removed it already
                await request.api.roles.remove_scope(role_id, scope_id)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _scopes_page(request, role_id, form, status=error.status)
    kind = "role.scopes_changed" if added or removed else "unchanged"
    place = urlencode({"resource": form.value("resource")})
    return await request.done(f"{PATH}/{role_id}/scopes?{place}", kind)


@AREA.page("/roles/{role_id:str}/holders")
async def holders(request: ConsoleRequest, role_id: str) -> Response[str]:
    return await _holders_page(request, role_id, request.typed() or Form())


@AREA.action("/roles/{role_id:str}/holders")
async def change_holders(request: ConsoleRequest, role_id: str, form: Form) -> Response[str]:
    if form.value("step") != "save":
        return await _holders_page(request, role_id, form)
    role = await request.api.roles.get(role_id)
    api = request.api.roles
    is_of_users = role.type == "User"
    assign, remove = (
        (api.assign_users, api.remove_user) if is_of_users else (api.assign_applications, api.remove_application)
    )
    added, removed = form.choices("held")
    try:
        if added:
            await assign(role_id, added)
        for holder_id in removed:
            with suppress(NotFound):
                await remove(role_id, holder_id)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _holders_page(request, role_id, form, status=error.status)
    kind = "role.holders_changed" if added or removed else "unchanged"
    return await request.done(f"{PATH}/{role_id}/holders", kind)


@AREA.page("/roles/{role_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, role_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, role_id))


@AREA.action("/roles/{role_id:str}/delete")
async def delete_role(request: ConsoleRequest, role_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, role_id))


async def _page(request: ConsoleRequest, role_id: str, *, form: Form | None = None, status: int = 200) -> Response[str]:
    role = await request.api.roles.get(role_id)
    granted, indicators, held, recent = await asyncio.gather(
        request.api.roles.scopes(role_id, page_size=_PAGE_SIZE).page(),
        _indicators(request),
        _held_by(request, role),
        latest(request, target_id=role_id),
    )
    current = Form.editing(role.etag, name=role.name, description=role.description, isDefault=role.is_default)
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "roles/detail.html",
        area=_AREA,
        status=status,
        role=role,
        form=values,
        scopes=granted,
        indicators=indicators,
        holders=held,
        recent=recent,
    )


async def _held_by(request: ConsoleRequest, role: Role) -> Part[dict[str, Any]]:
    return await part(request, _HOLDERS[role.type], functools.partial(_holders, request, role))


async def _holders(request: ConsoleRequest, role: Role, *, is_paged: bool = False) -> dict[str, Any]:
    """Return the first page of a role's holders, or the one that the URL names: ids and names, the total, the next."""
    if role.type == "User":
        listed = request.api.roles.users(role.id, page_size=_PAGE_SIZE)
        users = await (request.page_of(listed) if is_paged else listed.page())
        named, total, following = [(each.id, shown_name(each)) for each in users.items], users.total, users.following
    else:
        applications = request.api.roles.applications(role.id, page_size=_PAGE_SIZE)
        found = await (request.page_of(applications) if is_paged else applications.page())
        named, total, following = [(each.id, each.name) for each in found.items], found.total, found.following
    return {"items": named, "total": total, "following": following}


async def _indicators(request: ConsoleRequest) -> dict[str, str]:
    """Return the indicators of the API resources by id; none for an administrator who may not see them."""
    if not request.may(f"{HOME}/resources"):
        return {}
    return {each.id: each.indicator async for each in request.api.resources.list()}


async def _scopes_page(request: ConsoleRequest, role_id: str, form: Form, *, status: int = 200) -> Response[str]:
    role, indicators = await asyncio.gather(request.api.roles.get(role_id), _indicators(request))
    granted = [each async for each in request.api.roles.scopes(role_id)]
    wanted = form.value("resource") or request.parameter("resource")
    chosen = wanted if wanted in indicators else next(iter(indicators), None)
    offered = [each async for each in request.api.resources.scopes(chosen)] if chosen else []
    held = {each.id for each in granted}
    return await request.page(
        "roles/scopes.html",
        area=_AREA,
        status=status,
        role=role,
        granted=granted,
        indicators=indicators,
        chosen=chosen,
        offered=offered,
        held=held,
        form=form,
    )


async def _holders_page(request: ConsoleRequest, role_id: str, form: Form, *, status: int = 200) -> Response[str]:
    role, number = await request.api.roles.get(role_id), request.page_number()
    search = form.text("search") or request.parameter("search")
    missing = REQUIREMENTS[_HOLDERS[role.type]].missing_from(request.scopes)
    if missing is not None:
        raise NoRights(missing)
    held = await _holders(request, role, is_paged=True)
    if role.type == "User":
        users = await request.api.users.list(
            search=search or None, without_role_id=role_id, page_size=_PAGE_SIZE
        ).page()
        available, total = [(each.id, shown_name(each)) for each in users.items], users.total
    else:
        found = await request.api.applications.list(
            search=search or None, types=["MachineToMachine"], without_role_id=role_id, page_size=_PAGE_SIZE
        ).page()
        available, total = [(each.id, each.name) for each in found.items], found.total
    return await request.page(
        "roles/holders.html",
        area=_AREA,
        status=status,
        role=role,
        held=held,
        number=number,
        available=available,
        total=total,
        search=search,
        form=form,
    )


async def _deletion(request: ConsoleRequest, role_id: str) -> Deletion:
    role = await request.api.roles.get(role_id)
    held = await _held_by(request, role)
    may_see_policy = request.may(f"{HOME}/impersonations/policy")
    excluded = (await request.api.impersonation_policy.get()).excluded_roles if may_see_policy else []
    return Deletion(
        template="roles/delete.html",
        area=_AREA,
        values={
            "role": role,
            "holders": held.value["total"] if held.value else None,
            "is_excluded": role_id in excluded,
        },
        etag=role.etag,
        name=role.name,
        delete=functools.partial(request.api.roles.delete, role_id),
        then=PATH,
        notice="deleted",
        notice_values={"name": role.name},
    )
