"""The organization template as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stead._http import Operation, api_path, decode, json_request
from stead.models import OrganizationTemplate, TemplateReport


def get_organization_template() -> Operation[OrganizationTemplate]:
    """Return all organization permissions and roles as one document."""
    return decode((yield json_request("GET", api_path("organization-template"))), OrganizationTemplate)


def put_organization_template(
    document: OrganizationTemplate | Mapping[str, Any], *, dry_run: bool = False
) -> Operation[TemplateReport]:
    """Make the organization template what a document says, all of it or nothing, and return what that changes.

    Names identify: under another name a permission or role is another one, and what the document does not name is
    deleted. The same document a second time changes nothing.

    Args:
        document: As ``get`` returns it, or the same as decoded JSON.
        dry_run: Change nothing, and say what would change.

    Raises:
        InvalidInput: A member is not of its form, or something is said twice.
        Conflict: The document cannot be applied; ``data`` says where.
    """
    params = {"dry-run": "true"} if dry_run else None
    return decode(
        (yield json_request("PUT", api_path("organization-template"), document, params=params)), TemplateReport
    )
