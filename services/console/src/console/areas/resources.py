"""``/console/resources``: the APIs that tokens are issued for, and their scopes."""

import asyncio
import functools
from typing import Final

from litestar import Response

from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import latest
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import Resource
from stead.errors import Conflict, InvalidInput, VersionMismatch
from stead.models import Scope

PATH: Final = "/console/resources"

_AREA: Final = "resources"
_PAGE_SIZE: Final = 25
_FIELDS: Final = {
    "resource.resource_identifier_in_use": "indicator",
    "resource.invalid_indicator": "indicator",
    "scope.name_exists": "name",
    "scope.invalid_name": "name",
}

AREA: Final = Area()


@AREA.page("/resources")
async def resources(request: ConsoleRequest) -> Response[str]:
    search, number = request.parameter("search"), request.page_number()
    found = await request.page_of(request.api.resources.list(search=search or None, page_size=_PAGE_SIZE))
    return await request.page("resources/list.html", area=_AREA, resources=found, search=search, number=number)


@AREA.page("/resources/new", scope="all")
async def new_resource(request: ConsoleRequest) -> Response[str]:
    return await request.page("resources/new.html", area=_AREA, form=request.typed() or Form())


@AREA.action("/resources/new")
async def create_resource(request: ConsoleRequest, form: Form) -> Response[str]:
    try:
        created = await request.api.resources.create(
            form.value("name"), form.value("indicator").strip(), form.number("accessTokenTtl")
        )
    except (InvalidInput, Conflict) as error:
        form.refuse(error, _FIELDS)
        return await request.page("resources/new.html", area=_AREA, status=error.status, form=form)
    return await request.done(f"{PATH}/{created.id}", "created", name=created.name)


@AREA.page("/resources/{resource_id:str}")
async def resource(request: ConsoleRequest, resource_id: str) -> Response[str]:
    return await _page(request, resource_id)


@AREA.action("/resources/{resource_id:str}")
async def update_resource(request: ConsoleRequest, resource_id: str, form: Form) -> Response[str]:
    try:
        updated = await request.api.resources.update(
            resource_id,
            name=form.changed("name", Form.value),
            access_token_ttl=form.changed("accessTokenTtl", Form.number),
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error, _FIELDS)
        return await _page(request, resource_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{resource_id}", "saved", name=updated.name)


@AREA.action("/resources/{resource_id:str}/default")
async def set_default(request: ConsoleRequest, resource_id: str, form: Form) -> Response[str]:
    updated = await request.api.resources.set_default(resource_id, is_default=form.is_checked("isDefault"))
    return await request.done(f"{PATH}/{resource_id}", "saved", name=updated.name)


@AREA.page("/resources/{resource_id:str}/scopes/new", scope="all")
async def new_scope(request: ConsoleRequest, resource_id: str) -> Response[str]:
    return await _scope_page(request, resource_id, request.typed() or Form())


@AREA.action("/resources/{resource_id:str}/scopes/new")
async def create_scope(request: ConsoleRequest, resource_id: str, form: Form) -> Response[str]:
    try:
        scope = await request.api.resources.create_scope(resource_id, form.value("name"), form.optional("description"))
    except (InvalidInput, Conflict) as error:
        form.refuse(error, _FIELDS)
        return await _scope_page(request, resource_id, form, status=error.status)
    return await request.done(f"{PATH}/{resource_id}", "created", name=scope.name)


@AREA.page("/resources/{resource_id:str}/scopes/{scope_id:str}", scope="all")
async def scope(request: ConsoleRequest, resource_id: str, scope_id: str) -> Response[str]:
    return await _scope_change_page(request, resource_id, scope_id)


@AREA.action("/resources/{resource_id:str}/scopes/{scope_id:str}")
async def update_scope(request: ConsoleRequest, resource_id: str, scope_id: str, form: Form) -> Response[str]:
    try:
        updated = await request.api.resources.update_scope(
            resource_id,
            scope_id,
            name=form.changed("name", Form.value),
            description=form.changed("description", Form.optional),
        )
    except (InvalidInput, Conflict) as error:
        form.refuse(error, _FIELDS)
        return await _scope_change_page(request, resource_id, scope_id, form, status=error.status)
    return await request.done(f"{PATH}/{resource_id}", "saved", name=updated.name)


@AREA.page("/resources/{resource_id:str}/scopes/{scope_id:str}/delete", scope="all")
async def scope_deletion(request: ConsoleRequest, resource_id: str, scope_id: str) -> Response[str]:
    return await ask(request, await _scope_deletion(request, resource_id, scope_id))


@AREA.action("/resources/{resource_id:str}/scopes/{scope_id:str}/delete")
async def delete_scope(request: ConsoleRequest, resource_id: str, scope_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_scope_deletion, request, resource_id, scope_id))


@AREA.page("/resources/{resource_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, resource_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, resource_id))


@AREA.action("/resources/{resource_id:str}/delete")
async def delete_resource(request: ConsoleRequest, resource_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, resource_id))


async def _page(
    request: ConsoleRequest, resource_id: str, *, form: Form | None = None, status: int = 200
) -> Response[str]:
    number = request.page_number()
    resource, scopes, recent = await asyncio.gather(
        request.api.resources.get(resource_id),
        request.page_of(request.api.resources.scopes(resource_id, page_size=_PAGE_SIZE)),
        latest(request, target_id=resource_id),
    )
    current = Form.editing(resource.etag, name=resource.name, accessTokenTtl=resource.access_token_ttl)
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "resources/detail.html",
        area=_AREA,
        status=status,
        resource=resource,
        form=values,
        scopes=scopes,
        number=number,
        recent=recent,
    )


async def _scope(request: ConsoleRequest, resource_id: str, scope_id: str) -> tuple[Resource, Scope]:
    """Return a resource and one of its scopes.

    Raises:
        NotFound: There is no such resource.
        NoSuchPage: It has no such scope.
    """
    resource = await request.api.resources.get(resource_id)
    async for scope in request.api.resources.scopes(resource_id):
        if scope.id == scope_id:
            return resource, scope
    raise NoSuchPage


async def _scope_page(request: ConsoleRequest, resource_id: str, form: Form, *, status: int = 200) -> Response[str]:
    resource = await request.api.resources.get(resource_id)
    return await request.page("resources/new_scope.html", area=_AREA, status=status, resource=resource, form=form)


async def _scope_change_page(
    request: ConsoleRequest, resource_id: str, scope_id: str, form: Form | None = None, *, status: int = 200
) -> Response[str]:
    resource, scope = await _scope(request, resource_id, scope_id)
    return await request.page(
        "resources/scope.html",
        area=_AREA,
        status=status,
        resource=resource,
        scope=scope,
        form=form or request.typed() or Form.editing(None, name=scope.name, description=scope.description),
    )


async def _scope_deletion(request: ConsoleRequest, resource_id: str, scope_id: str) -> Deletion:
    resource, scope = await _scope(request, resource_id, scope_id)
    return Deletion(
        template="resources/delete_scope.html",
        area=_AREA,
        values={"resource_id": resource_id, "resource_name": resource.name, "scope": scope},
        name=scope.name,
        delete=functools.partial(request.api.resources.delete_scope, resource_id, scope_id),
        then=f"{PATH}/{resource_id}",
        notice="deleted",
        notice_values={"name": scope.name},
    )


async def _deletion(request: ConsoleRequest, resource_id: str) -> Deletion:
    resource, scopes = await asyncio.gather(
        request.api.resources.get(resource_id), request.api.resources.scopes(resource_id, page_size=1).page()
    )
    return Deletion(
        template="resources/delete.html",
        area=_AREA,
        values={"resource": resource, "scopes": scopes.total},
        etag=resource.etag,
        name=resource.name,
        delete=functools.partial(request.api.resources.delete, resource_id),
        then=PATH,
        notice="deleted",
        notice_values={"name": resource.name},
    )
