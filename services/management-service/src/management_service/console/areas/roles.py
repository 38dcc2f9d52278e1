"""``/console/roles``: API roles, the scopes that they grant, and their holders."""

import asyncio
import functools
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from litestar import Response

from management_service.console.areas.names import shown_name
from management_service.console.confirmations import Deletion, ask, carry_out
from management_service.console.console import Area
from management_service.console.forms import Form
from management_service.console.requests import Visit
from stead import Role
from stead.errors import Conflict, InvalidInput, NotFound, VersionMismatch

PATH: Final = "/console/roles"

_AREA: Final = "roles"
_PAGE_SIZE: Final = 25
_ENTRIES: Final = 10
_TYPES: Final = ("User", "MachineToMachine")

AREA: Final = Area()


@AREA.page("/roles")
async def roles(visit: Visit) -> Response[str]:
    search, number = visit.parameter("search"), visit.page_number()
    found = await visit.api.roles.list(search=search or None, page_size=_PAGE_SIZE).page(str(number))
    return await visit.page("roles/list.html", area=_AREA, roles=found, search=search, number=number)


@AREA.page("/roles/new", scope="all")
async def new_role(visit: Visit) -> Response[str]:
    return await visit.page("roles/new.html", area=_AREA, types=_TYPES, form=visit.typed() or Form())


@AREA.action("/roles/new")
async def create_role(visit: Visit, form: Form) -> Response[str]:
    try:
        created = await visit.api.roles.create(
            form.value("name"),
            form.value("description"),
            form.value("type"),  # type: ignore[arg-type]  # the API validates it
            is_default=form.is_checked("isDefault"),
        )
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await visit.page("roles/new.html", area=_AREA, status=error.status, types=_TYPES, form=form)
    return await visit.done(f"{PATH}/{created.id}", "created", name=created.name)


@AREA.page("/roles/{role_id:str}")
async def role(visit: Visit, role_id: str) -> Response[str]:
    return await _page(visit, role_id)


@AREA.action("/roles/{role_id:str}")
async def update_role(visit: Visit, role_id: str, form: Form) -> Response[str]:
    try:
        updated = await visit.api.roles.update(
            role_id,
            name=form.value("name"),
            description=form.value("description"),
            is_default=form.is_checked("isDefault"),
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _page(visit, role_id, form=form, status=error.status)
    return await visit.done(f"{PATH}/{role_id}", "saved", name=updated.name)


@AREA.page("/roles/{role_id:str}/scopes")
async def scopes(visit: Visit, role_id: str) -> Response[str]:
    return await _scopes_page(visit, role_id, visit.typed() or Form())


@AREA.action("/roles/{role_id:str}/scopes")
async def change_scopes(visit: Visit, role_id: str, form: Form) -> Response[str]:
    added, removed = form.all("add"), form.all("remove")
    try:
        if added:
            await visit.api.roles.assign_scopes(role_id, added)
        for scope_id in removed:
            with suppress(NotFound):  # another administrator has removed it already
                await visit.api.roles.remove_scope(role_id, scope_id)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _scopes_page(visit, role_id, form, status=error.status)
    kind = "role.scopes_changed" if added or removed else "unchanged"
    place = urlencode({"resource": form.value("resource")})
    return await visit.done(f"{PATH}/{role_id}/scopes?{place}", kind)


@AREA.page("/roles/{role_id:str}/holders")
async def holders(visit: Visit, role_id: str) -> Response[str]:
    return await _holders_page(visit, role_id, visit.typed() or Form())


@AREA.action("/roles/{role_id:str}/holders")
async def change_holders(visit: Visit, role_id: str, form: Form) -> Response[str]:
    role = await visit.api.roles.get(role_id)
    api = visit.api.roles
    is_of_users = role.type == "User"
    assign, remove = (
        (api.assign_users, api.remove_user) if is_of_users else (api.assign_applications, api.remove_application)
    )
    added, removed = form.all("add"), form.all("remove")
    try:
        if added:
            await assign(role_id, added)
        for holder_id in removed:
            with suppress(NotFound):
                await remove(role_id, holder_id)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _holders_page(visit, role_id, form, status=error.status)
    kind = "role.holders_changed" if added or removed else "unchanged"
    return await visit.done(f"{PATH}/{role_id}/holders", kind)


@AREA.page("/roles/{role_id:str}/delete", scope="all")
async def deletion(visit: Visit, role_id: str) -> Response[str]:
    return await ask(visit, await _deletion(visit, role_id))


@AREA.action("/roles/{role_id:str}/delete")
async def delete_role(visit: Visit, role_id: str, form: Form) -> Response[str]:
    return await carry_out(visit, form, functools.partial(_deletion, visit, role_id))


async def _page(visit: Visit, role_id: str, *, form: Form | None = None, status: int = 200) -> Response[str]:
    role = await visit.api.roles.get(role_id)
    granted, indicators, held, recent = await asyncio.gather(
        visit.api.roles.scopes(role_id).page(),
        _indicators(visit),
        _held_by(visit, role),
        visit.api.logs.list(target_id=role_id, page_size=_ENTRIES).page(),
    )
    current = Form.editing(role.etag, name=role.name, description=role.description, isDefault=role.is_default)
    values = form or visit.typed() or current
    values.merge(current)
    return await visit.page(
        "roles/detail.html",
        area=_AREA,
        status=status,
        role=role,
        form=values,
        scopes=granted,
        indicators=indicators,
        holders=held,
        entries=recent.items,
    )


async def _held_by(visit: Visit, role: Role, *, page: str = "1") -> dict[str, Any]:
    """Return a page of a role's holders: ids and names, the total, and the next page."""
    if role.type == "User":
        users = await visit.api.roles.users(role.id, page_size=_PAGE_SIZE).page(page)
        named, total, following = [(each.id, shown_name(each)) for each in users.items], users.total, users.following
    else:
        found = await visit.api.roles.applications(role.id, page_size=_PAGE_SIZE).page(page)
        named, total, following = [(each.id, each.name) for each in found.items], found.total, found.following
    return {"items": named, "total": total, "following": following}


async def _indicators(visit: Visit) -> dict[str, str]:
    """Return the indicators of the API resources by id."""
    return {each.id: each.indicator async for each in visit.api.resources.list()}


async def _scopes_page(visit: Visit, role_id: str, form: Form, *, status: int = 200) -> Response[str]:
    role, indicators = await asyncio.gather(visit.api.roles.get(role_id), _indicators(visit))
    granted = [each async for each in visit.api.roles.scopes(role_id)]
    wanted = visit.parameter("resource") or form.value("resource")
    chosen = wanted if wanted in indicators else next(iter(indicators), None)
    offered = [each async for each in visit.api.resources.scopes(chosen)] if chosen else []
    held = {each.id for each in granted}
    return await visit.page(
        "roles/scopes.html",
        area=_AREA,
        status=status,
        role=role,
        granted=granted,
        indicators=indicators,
        chosen=chosen,
        available=[each for each in offered if each.id not in held],
        form=form,
    )


async def _holders_page(visit: Visit, role_id: str, form: Form, *, status: int = 200) -> Response[str]:
    role, search, number = await visit.api.roles.get(role_id), visit.parameter("search"), visit.page_number()
    held = await _held_by(visit, role, page=str(number))
    if role.type == "User":
        users = await visit.api.users.list(search=search or None, without_role_id=role_id, page_size=_PAGE_SIZE).page()
        available, total = [(each.id, shown_name(each)) for each in users.items], users.total
    else:
        found = await visit.api.applications.list(
            search=search or None, types=["MachineToMachine"], without_role_id=role_id, page_size=_PAGE_SIZE
        ).page()
        available, total = [(each.id, each.name) for each in found.items], found.total
    return await visit.page(
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


async def _deletion(visit: Visit, role_id: str) -> Deletion:
    role = await visit.api.roles.get(role_id)
    held = await _held_by(visit, role)
    return Deletion(
        template="roles/delete.html",
        area=_AREA,
        values={"role": role, "holders": held["total"]},
        etag=role.etag,
        name=role.name,
        delete=functools.partial(visit.api.roles.delete, role_id),
        then=PATH,
        notice="deleted",
        notice_values={"name": role.name},
    )
