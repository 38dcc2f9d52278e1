"""``/api/organization-template``."""

from typing import Any, Final

from litestar import Controller, get, put
from litestar.di import NamedDependency
from litestar.params import JSONBody

from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import Flag, documented
from identity_common.http.pagination import read_flag
from template_service.document.rules import TemplateDocument, TemplateReport
from template_service.document.service import OrganizationTemplate

_DRY_RUN: Final = Flag("dry-run", "Report what would change, without changing anything.")
_EXAMPLE: Final[dict[str, Any]] = {
    "permissions": [
        {"name": "invite:member", "description": "May invite members"},
        {"name": "read:invoice", "description": None},
    ],
    "roles": [
        {
            "name": "administrator",
            "description": "Runs an organization",
            "type": "User",
            "permissions": ["invite:member", "read:invoice"],
            "scopes": [{"resource": "https://api.example.com", "name": "orders:read"}],
        },
        {
            "name": "bookkeeping",
            "description": None,
            "type": "MachineToMachine",
            "permissions": ["read:invoice"],
            "scopes": [],
        },
    ],
}
_REPORT_EXAMPLE: Final[dict[str, Any]] = {
    "permissions": {
        "created": ["read:invoice"],
        "updated": [{"name": "invite:member", "description": {"before": None, "after": "May invite members"}}],
        "deleted": ["read:bill"],
    },
    "roles": {
        "created": ["bookkeeping"],
        "updated": [
            {
                "name": "administrator",
                "added": [
                    {"name": "orders:read", "resource": "https://api.example.com"},
                    {"name": "read:invoice"},
                ],
                "removed": [{"name": "read:bill"}],
            }
        ],
        "deleted": [],
    },
    "members": [
        {
            "name": "orders:read",
            "resource": "https://api.example.com",
            "gaining": {"members": 7, "organizations": 3},
            "losing": {"members": 0, "organizations": 0},
        },
        {
            "name": "read:bill",
            "gaining": {"members": 0, "organizations": 0},
            "losing": {"members": 7, "organizations": 3},
        },
        {
            "name": "read:invoice",
            "gaining": {"members": 7, "organizations": 3},
            "losing": {"members": 0, "organizations": 0},
        },
    ],
}


class OrganizationTemplateController(Controller):
    """The template as a file."""

    path = "/organization-template"
    tags = ("Organization template",)

    @get(
        "/",
        operation_id="GetOrganizationTemplate",
        summary="Get the organization template as a document",
        opt=documented(example=_EXAMPLE),
    )
    async def get_template(self, template: NamedDependency[OrganizationTemplate]) -> TemplateDocument:
        """Get all organization permissions and roles, by name, with what each role grants."""
        return await template.get()

    @put(
        "/",
        operation_id="ReplaceOrganizationTemplate",
        summary="Replace the organization template with a document",
        opt=documented(body_example=_EXAMPLE, example=_REPORT_EXAMPLE, flags=(_DRY_RUN,)),
    )
    async def replace_template(
        self, request: JsonRequest, data: JSONBody[TemplateDocument], template: NamedDependency[OrganizationTemplate]
    ) -> TemplateReport:
        """Create, change and delete permissions and roles until the template equals the document.

        The request is one transaction. Names identify: a renamed permission or role is a new one, and everything that
        the document does not name is deleted. The response reports the changes, and how many members in how many
        organizations gain or lose each permission. Query parameters other than dry-run are refused.
        """
        dry_run = read_flag(request.scope["query_string"], _DRY_RUN.name)
        return await template.put(data, dry_run=dry_run)
