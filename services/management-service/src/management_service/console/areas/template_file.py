"""``/console/template/file``: the template as a file, to be kept, compared and applied."""

from typing import Any, Final

import msgspec
from litestar import Response

from management_service.console.console import Area
from management_service.console.forms import Form
from management_service.console.visits import Visit
from stead import TemplateReport
from stead.errors import Conflict, InvalidInput, VersionMismatch

PATH: Final = "/console/template"

_AREA: Final = "template"

AREA: Final = Area()


@AREA.page("/template/file")
async def file(visit: Visit) -> Response[str]:
    return await _page(visit, visit.typed() or Form())


@AREA.page("/template/export")
async def export(visit: Visit) -> Response[Any]:
    return await visit.download("/api/organization-template", name="organization-template.json")


@AREA.action("/template/file")
async def compare_or_apply(visit: Visit, form: Form) -> Response[str]:
    try:
        document = msgspec.json.decode(form.value("document"), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        form.errors["document"] = "json"
        return await _page(visit, form, status=422)
    template = visit.api.organization_template
    status = 200
    try:
        if form.value("step") == "save":
            try:
                await template.put(document, if_match=form.etag())
            except VersionMismatch as error:
                form.refuse(error)
                status = error.status
            else:
                return await visit.done(PATH, "template.saved")
        current = await template.get()  # before the report, which may then be newer, and is refused when it is saved
        report = await template.put(document, dry_run=True)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _page(visit, form, status=error.status)
    return await _page(visit, form, etag=current.etag, report=report, status=status)


async def _page(
    visit: Visit, form: Form, *, etag: str | None = None, report: TemplateReport | None = None, status: int = 200
) -> Response[str]:
    return await visit.page("template/file.html", area=_AREA, status=status, form=form, etag=etag or "", report=report)
