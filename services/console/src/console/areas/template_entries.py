"""``/console/template/roles`` and ``/console/template/permissions``: the columns and rows of the matrix."""

import asyncio
import functools
from typing import Any, Final

import msgspec
from litestar import Response

from console.areas.template_effects import download, effects_of
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import latest
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import OrganizationTemplate
from stead.errors import Conflict, InvalidInput, VersionMismatch

PATH: Final = "/console/template"

_AREA: Final = "template"
_ROLES: Final = "roles"
_PERMISSIONS: Final = "permissions"
_PAGE_SIZE: Final = 25

AREA: Final = Area()


@AREA.page("/template/{kind:str}")
async def entries(request: ConsoleRequest, kind: str) -> Response[str]:
    search, number = request.parameter("search"), request.page_number()
    found = await request.page_of(_api(request, kind).list(search=search or None, page_size=_PAGE_SIZE))
    return await request.page(
        "template/entries.html", area=_AREA, kind=kind, entries=found, search=search, number=number
    )


@AREA.page("/template/{kind:str}/new", scope="all")
async def new_entry(request: ConsoleRequest, kind: str) -> Response[str]:
    return await _new_page(request, kind, request.typed() or Form())


@AREA.action("/template/{kind:str}/new")
async def create_entry(request: ConsoleRequest, kind: str, form: Form) -> Response[str]:
    more = {"type": form.value("type")} if kind == _ROLES else {}
    try:
        created = await _api(request, kind).create(form.value("name"), form.optional("description"), **more)
    except (InvalidInput, Conflict) as error:
        form.refuse(error, _name_in_use(error))
        return await _new_page(request, kind, form, status=error.status)
    return await request.done(f"{PATH}/{kind}", "created", name=created.name)


@AREA.page("/template/{kind:str}/{entry_id:str}")
async def entry(request: ConsoleRequest, kind: str, entry_id: str) -> Response[str]:
    return await _page(request, kind, entry_id)


@AREA.action("/template/{kind:str}/{entry_id:str}")
async def update_entry(request: ConsoleRequest, kind: str, entry_id: str, form: Form) -> Response[str]:
    try:
        updated = await _api(request, kind).update(
            entry_id,
            name=form.changed("name", Form.value),
            description=form.changed("description", Form.optional),
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error, _name_in_use(error))
        return await _page(request, kind, entry_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{kind}", "saved", name=updated.name)


@AREA.page("/template/{kind:str}/{entry_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, kind: str, entry_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, kind, entry_id))


@AREA.action("/template/{kind:str}/{entry_id:str}/delete")
async def delete_entry(request: ConsoleRequest, kind: str, entry_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, kind, entry_id))


@AREA.page("/template/{kind:str}/{entry_id:str}/delete/export", scope="all")
async def export_affected_members(request: ConsoleRequest, kind: str, entry_id: str) -> Response[Any]:
    found = await _api(request, kind).get(entry_id)
    return await download(request, without(await request.api.organization_template.get(), kind, found.name))


def without(document: OrganizationTemplate, kind: str, name: str) -> OrganizationTemplate:
    """Return the document without a role, or without a permission and its grants."""
    if kind == _ROLES:
        return msgspec.structs.replace(document, roles=[role for role in document.roles if role.name != name])
    return msgspec.structs.replace(
        document,
        permissions=[each for each in document.permissions if each.name != name],
        roles=[
            msgspec.structs.replace(role, permissions=[each for each in role.permissions if each != name])
            for role in document.roles
        ],
    )


def _api(request: ConsoleRequest, kind: str) -> Any:
    """Return the API's operations on roles or permissions, which have the same names.

    Raises:
        NoSuchPage: The kind is neither.
    """
    if kind == _ROLES:
        return request.api.organization_roles
    if kind == _PERMISSIONS:
        return request.api.organization_permissions
    raise NoSuchPage


def _name_in_use(error: InvalidInput | Conflict | VersionMismatch) -> dict[str, str]:
    """Map a conflict to the field of the name: a name in use is the only possible one."""
    return {error.code: "name"} if isinstance(error, Conflict) else {}


async def _new_page(request: ConsoleRequest, kind: str, form: Form, *, status: int = 200) -> Response[str]:
    _api(request, kind)
    return await request.page("template/new.html", area=_AREA, status=status, kind=kind, form=form)


async def _page(
    request: ConsoleRequest, kind: str, entry_id: str, *, form: Form | None = None, status: int = 200
) -> Response[str]:
    found, recent = await asyncio.gather(_api(request, kind).get(entry_id), latest(request, target_id=entry_id))
    current = Form.editing(found.etag, name=found.name, description=found.description)
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "template/entry.html",
        area=_AREA,
        status=status,
        kind=kind,
        entry=found,
        form=values,
        recent=recent,
    )


async def _deletion(request: ConsoleRequest, kind: str, entry_id: str) -> Deletion:
    found = await _api(request, kind).get(entry_id)
    document = await request.api.organization_template.get()
    effects = await effects_of(request, without(document, kind, found.name))
    return Deletion(
        template="template/delete.html",
        area=_AREA,
        values={"kind": kind, "entry": found, "effects": effects},
        etag=found.etag,
        name=found.name,
        delete=functools.partial(_api(request, kind).delete, entry_id),
        then=f"{PATH}/{kind}",
        notice="deleted",
        notice_values={"name": found.name},
    )
