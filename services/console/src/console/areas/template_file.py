"""``/console/template/file``: the template as a file: export, compare, apply and undo."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec
from litestar import Response

from console.areas.template_effects import Effects, download, effects_of
from console.confirmations import SHOWN_FIELD, digest, is_as_shown
from console.console import Area
from console.forms import ETAG_FIELD, MAX_BYTES, Form, InvalidField
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import OrganizationTemplate
from stead.errors import Conflict, InvalidInput, VersionMismatch

PATH: Final = "/console/template"

_AREA: Final = "template"
_UNDO: Final = f"{PATH}/file/undo"
_OTHER_FIELDS: Final = 1024
"""Upper bound, in bytes, of the fields beside the document."""

AREA: Final = Area()


@AREA.page("/template/file")
async def file(request: ConsoleRequest) -> Response[str]:
    return await _page(request, request.typed() or Form())


@AREA.page("/template/export")
async def export(request: ConsoleRequest) -> Response[Any]:
    return await request.download("/api/organization-template", name="organization-template.json")


@AREA.page("/template/file/undo", scope="all")
async def undo(request: ConsoleRequest) -> Response[str]:
    """Preview the return to the template that a file has replaced."""
    former = await request.session.kept()
    if former is None:
        raise NoSuchPage
    return await _compare_or_apply(request, Form({"document": [former.decode()]}))


@AREA.action("/template/file")
async def compare_or_apply(request: ConsoleRequest, form: Form) -> Response[Any]:
    return await _compare_or_apply(request, form)


async def _compare_or_apply(request: ConsoleRequest, form: Form) -> Response[Any]:
    try:
        document = form.json_object("document")
    except InvalidField:
        return await _page(request, form, status=422)
    try:
        if form.value("step") == "members":
            return await download(request, document)
        current, effects = await _compared(request, document)
        if form.value("step") == "save":
            form.is_overtaken = not is_as_shown(form, effects) or form.version() != current.etag
            if not form.is_overtaken:
                await request.api.organization_template.put(document, if_match=current.etag)
                return await _applied(request, current)
    except VersionMismatch as error:  # changed a moment ago
        form.refuse(error)
        current, effects = await _compared(request, document)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _page(request, form, status=error.status)
    return await _page(request, form, current=current, effects=effects, status=412 if form.is_overtaken else 200)


async def _compared(request: ConsoleRequest, document: Mapping[str, Any]) -> tuple[OrganizationTemplate, Effects]:
    """Return the current template, and what a file changes.

    The template is read first, so saving is refused if it changes before the comparison.

    Raises:
        InvalidInput: The file is not a template.
        Conflict: The file cannot be applied.
    """
    return await request.api.organization_template.get(), await effects_of(request, document)


async def _applied(request: ConsoleRequest, former: OrganizationTemplate) -> Response[str]:
    content = msgspec.json.encode(former)
    is_kept = len(quote_plus(content)) < MAX_BYTES - _OTHER_FIELDS
    if is_kept:
        await request.session.keep(content)
    return await request.done(PATH, "template.replaced", undo=_UNDO if is_kept else "")


async def _page(
    request: ConsoleRequest,
    form: Form,
    *,
    current: OrganizationTemplate | None = None,
    effects: Effects | None = None,
    status: int = 200,
) -> Response[str]:
    return await request.page(
        "template/file.html",
        area=_AREA,
        status=status,
        form=form,
        carried={SHOWN_FIELD: digest(effects), ETAG_FIELD: current.etag} if current else {},
        effects=effects,
    )
