"""``/console/template``: the matrix of roles and permissions, and the preview of a change."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from litestar import Response

from console.areas.template_effects import download, effects_of
from console.confirmations import SHOWN_FIELD, digest, is_as_shown
from console.console import Area
from console.forms import ETAG_FIELD, BadForm, Form
from console.requests import ConsoleRequest
from stead import OrganizationTemplate, Resource
from stead.errors import Conflict, InvalidInput, VersionMismatch
from stead.models import Scope, TemplateRole, TemplateScope

PATH: Final = "/console/template"

_AREA: Final = "template"
_RESOURCES: Final = "/console/resources"
_ROLES: Final = 12
_PERMISSIONS: Final = 40
_READ_AT_ONCE: Final = 8
"""API resources whose permissions are read at the same time."""

AREA: Final = Area()


class Permission(msgspec.Struct, frozen=True):
    """A row of the matrix.

    Attributes:
        name: Of an organization permission, or a scope token.
        resource: Indicator of the API; empty for an organization permission.
    """

    name: str
    resource: str = ""


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """One role and one permission."""

    role: str
    permission: Permission


class Undo(msgspec.Struct, frozen=True):
    """The changes of cells that undo a saved change."""

    grant: list[Cell]
    revoke: list[Cell]


class Window(msgspec.Struct, frozen=True):
    """The part of the matrix that a page shows.

    Attributes:
        roles: Columns.
        permissions: Rows.
        held: Places of the cells that are granted, as column and row.
        role_count: Columns that match the filter.
        permission_count: Rows that match the filter.
    """

    roles: Sequence[TemplateRole]
    permissions: Sequence[Permission]
    held: frozenset[str]
    role_count: int
    permission_count: int


@AREA.page("/template")
async def matrix(request: ConsoleRequest) -> Response[str]:
    return await _matrix_page(request)


@AREA.page("/template/changes", scope="all")
async def changes(request: ConsoleRequest) -> Response[str]:
    typed = request.typed()
    return await _preview(request, typed) if typed else await _matrix_page(request)


@AREA.action("/template/changes")
async def change(request: ConsoleRequest, form: Form) -> Response[Any]:
    if form.value("step") == "undo":
        return await _preview(request, await _undoing(request, form))
    if not _is_previewed(form):
        return await _preview(request, form)
    granted, revoked = _cells(form, "grant"), _cells(form, "revoke")
    template = request.api.organization_template
    after = changed(await template.get(), granted, revoked)
    try:
        if form.value("step") == "members":
            return await download(request, after)
        form.is_overtaken = not is_as_shown(form, await effects_of(request, after))
        if form.is_overtaken:
            return await _preview(request, form, status=412)
        await template.put(after, if_match=form.etag())
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _preview(request, form, status=error.status)
    return await request.done(PATH, "template.saved", undo=_encode(Undo(grant=revoked, revoke=granted)))


def grants(role: TemplateRole, permission: Permission) -> bool:
    """Return whether a role grants a permission."""
    if permission.resource:
        return TemplateScope(resource=permission.resource, name=permission.name) in role.scopes
    return permission.name in role.permissions


def _permissions(role: TemplateRole) -> list[Permission]:
    return [*map(Permission, role.permissions), *(Permission(scope.name, scope.resource) for scope in role.scopes)]


def changed(document: OrganizationTemplate, granted: Iterable[Cell], revoked: Iterable[Cell]) -> OrganizationTemplate:
    """Return the document with some cells changed; a cell whose role is gone is ignored."""
    added, removed = list(granted), list(revoked)
    changing = {cell.role for cell in (*added, *removed)}

    def role_after(role: TemplateRole) -> TemplateRole:
        if role.name not in changing:
            return role
        more = [cell.permission for cell in added if cell.role == role.name]
        fewer = {cell.permission for cell in removed if cell.role == role.name}
        after = [each for each in dict.fromkeys([*_permissions(role), *more]) if each not in fewer]
        return msgspec.structs.replace(
            role,
            permissions=[each.name for each in after if not each.resource],
            scopes=[TemplateScope(resource=each.resource, name=each.name) for each in after if each.resource],
        )

    return msgspec.structs.replace(document, roles=[role_after(role) for role in document.roles])


async def _matrix_page(request: ConsoleRequest) -> Response[str]:
    document, offered = await asyncio.gather(request.api.organization_template.get(), _api_permissions(request))
    described = {Permission(each.name): each.description for each in document.permissions}
    described |= _granted(document) if offered is None else offered
    kind = "MachineToMachine" if request.parameter("type") == "MachineToMachine" else "User"
    role_filter, permission_filter = request.parameter("roles"), request.parameter("permissions")
    roles = [role for role in document.roles if role.type == kind and role_filter.lower() in role.name.lower()]
    rows = [each for each in described if permission_filter.lower() in f"{each.name} {each.resource}".lower()]
    column, row = _offset(request, "column", len(roles)), _offset(request, "row", len(rows))
    columns, shown = roles[column : column + _ROLES], rows[row : row + _PERMISSIONS]
    window = Window(columns, shown, _held(columns, shown), len(roles), len(rows))
    return await request.page(
        "template/matrix.html",
        area=_AREA,
        window=window,
        described_as=described,
        type=kind,
        role_filter=role_filter,
        permission_filter=permission_filter,
        column=column,
        row=row,
        column_size=_ROLES,
        row_size=_PERMISSIONS,
        is_empty=not document.roles and not document.permissions,
        form=Form.of(etag=document.etag),
        encoded=_encode,
    )


async def _undoing(request: ConsoleRequest, form: Form) -> Form:
    """Return the form that undoes a change, on the template as it is now.

    Raises:
        BadForm: None of our pages sends this change.
    """
    try:
        undo = msgspec.json.decode(form.value("undo"), type=Undo)
    except msgspec.MsgspecError:
        raise BadForm from None
    document = await request.api.organization_template.get()
    return Form(
        {
            "step": ["save"],
            ETAG_FIELD: [document.etag or ""],
            "grant": [_encode(cell) for cell in undo.grant],
            "revoke": [_encode(cell) for cell in undo.revoke],
        }
    )


async def _preview(request: ConsoleRequest, form: Form, *, status: int = 200) -> Response[str]:
    """Show the effect of the changed cells."""
    document = await request.api.organization_template.get()
    others: tuple[list[Cell], list[Cell]] = ([], [])
    if _is_previewed(form):
        granted, revoked = _cells(form, "grant"), _cells(form, "revoke")
    else:
        granted, revoked = _differences(form)
        form.is_overtaken = form.etag() != document.etag
        if form.is_overtaken:
            others = _changed_by_others(form, document)
    form.merge(Form.of(etag=document.etag))
    granted, done = _split(granted, document, held=False)
    revoked, undone = _split(revoked, document, held=True)
    effects = None
    if status == 200 or form.is_overtaken:
        try:
            effects = await effects_of(request, changed(document, granted, revoked))
        except (InvalidInput, Conflict) as error:
            form.refuse(error)
            status = error.status
    return await request.page(
        "template/changes.html",
        area=_AREA,
        status=status,
        form=form,
        effects=effects,
        granted=granted,
        revoked=revoked,
        needless=[*done, *undone],
        carried={SHOWN_FIELD: digest(effects)} if effects else {},
        granted_by_others=others[0],
        revoked_by_others=others[1],
        encoded=_encode,
    )


def _is_previewed(form: Form) -> bool:
    """Return whether a form is that of the preview, which names the cells that change."""
    return "save" in form.all("step")


def _held(roles: Sequence[TemplateRole], permissions: Sequence[Permission]) -> frozenset[str]:
    granted = [set(_permissions(role)) for role in roles]
    return frozenset(
        f"{column}.{row}"
        for column, held in enumerate(granted)
        for row, permission in enumerate(permissions)
        if permission in held
    )


async def _api_permissions(request: ConsoleRequest) -> dict[Permission, str | None] | None:
    """Return the scopes of all API resources, with their descriptions; no organization role grants the Management API.

    None for an administrator who may not see API resources.
    """
    if not request.may(_RESOURCES):
        return None
    turns = asyncio.Semaphore(_READ_AT_ONCE)

    async def scopes_of(resource: Resource) -> list[Scope]:
        async with turns:
            return [scope async for scope in request.api.resources.scopes(resource.id)]

    resources = [each async for each in request.api.resources.list() if each.indicator != request.management_api]
    found = await asyncio.gather(*map(scopes_of, resources))
    return {
        Permission(scope.name, resource.indicator): scope.description
        for resource, scopes in zip(resources, found, strict=True)
        for scope in scopes
    }


def _granted(document: OrganizationTemplate) -> dict[Permission, None]:
    """Return the scopes of API resources that roles grant."""
    granted = {Permission(scope.name, scope.resource) for role in document.roles for scope in role.scopes}
    return dict.fromkeys(sorted(granted, key=lambda each: (each.resource, each.name)))


def _differences(form: Form) -> tuple[list[Cell], list[Cell]]:
    """Return the cells that were checked and those that were cleared, compared with what the page showed.

    A browser sends every cell that is checked; the console's script sends the cells that differ instead.

    Raises:
        BadForm: A cell is not in the part of the matrix that the form names.
    """
    places, shown = _places(form), _shown(form)
    differs = form.all("differs")
    checked = shown ^ set(differs[-1].split()) if differs else set(form.all("cell"))
    if not (shown | checked) <= places.keys():
        raise BadForm
    return [places[each] for each in sorted(checked - shown)], [places[each] for each in sorted(shown - checked)]


def _changed_by_others(form: Form, document: OrganizationTemplate) -> tuple[list[Cell], list[Cell]]:
    """Return the cells that were granted and those that were revoked since the page showed them."""
    roles, shown = {role.name: role for role in document.roles}, _shown(form)
    granted: list[Cell] = []
    revoked: list[Cell] = []
    for place, cell in _places(form).items():
        is_held = cell.role in roles and grants(roles[cell.role], cell.permission)
        if is_held != (place in shown):
            (granted if is_held else revoked).append(cell)
    return granted, revoked


def _split(cells: Iterable[Cell], document: OrganizationTemplate, *, held: bool) -> tuple[list[Cell], list[Cell]]:
    """Split cells into those in the expected state, granted if ``held``, and those that need no change any more."""
    roles = {role.name: role for role in document.roles}
    found: list[Cell] = []
    rest: list[Cell] = []
    for cell in cells:
        is_as_expected = cell.role in roles and grants(roles[cell.role], cell.permission) == held
        (found if is_as_expected else rest).append(cell)
    return found, rest


def _shown(form: Form) -> set[str]:
    """Return the places of the cells that the page showed as granted."""
    return set(form.value("was").split())


def _places(form: Form) -> dict[str, Cell]:
    """Return the cells of the part of the matrix that the page shows, by column and row."""
    rows = [_permission(text) for text in form.all("permission")]
    return {
        f"{column}.{row}": Cell(role, permission)
        for column, role in enumerate(_role_names(form))
        for row, permission in enumerate(rows)
    }


def _role_names(form: Form) -> list[str]:
    """Return the names of the columns, which are JSON in the form: a name may have line breaks."""
    try:
        return [msgspec.json.decode(text, type=str) for text in form.all("role")]
    except msgspec.MsgspecError:
        raise BadForm from None


def _permission(text: str) -> Permission:
    name, _, resource = text.partition(" ")
    return Permission(name, resource)


def _cells(form: Form, name: str) -> list[Cell]:
    try:
        return [msgspec.json.decode(text, type=Cell) for text in form.all(name)]
    except msgspec.MsgspecError:
        raise BadForm from None


def _encode(value: Cell | Undo | str) -> str:
    return msgspec.json.encode(value).decode()


def _offset(request: ConsoleRequest, name: str, count: int) -> int:
    """Return the offset of a window from the URL; 0 if it is outside the list."""
    text = request.parameter(name)
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
    return number if number < count else 0
