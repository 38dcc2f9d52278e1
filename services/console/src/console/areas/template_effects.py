"""What a change of the template does to members: how many it affects, the first of them, and all of them as a file."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar.response import Stream

from console.requests import HOME, ConsoleRequest
from stead import AffectedMembers, OrganizationTemplate, TemplateReport

_ON_A_PAGE: Final = 50
_EXPORT: Final = "/api/organization-template/affected-members/export"
_FILE: Final = "affected-members.csv"

Document = OrganizationTemplate | Mapping[str, Any]


class Effects(msgspec.Struct, frozen=True):
    """What a document changes.

    Attributes:
        report: The changes of the template, and how many members gain or lose something.
        affected: The first of these members; None if there are none, or the administrator may not see organizations.
    """

    report: TemplateReport
    affected: AffectedMembers | None


async def effects_of(request: ConsoleRequest, document: Document) -> Effects:
    """Return what a document changes.

    Raises:
        InvalidInput, Conflict: It cannot be applied.
    """
    template = request.api.organization_template
    report = await template.put(document, dry_run=True)
    if not report.members or not request.may(f"{HOME}/organizations"):
        return Effects(report, None)
    return Effects(report, await template.affected_members(document, limit=_ON_A_PAGE))


async def download(request: ConsoleRequest, document: Document) -> Stream:
    """Answer with the file of all members that a document affects.

    Raises:
        ApiError: The document cannot be applied, or the administrator may not see organizations.
    """
    await request.api.organization_template.affected_members(document, limit=1)  # a stream cannot show a refusal
    return await request.download(_EXPORT, name=_FILE, sent=document)
