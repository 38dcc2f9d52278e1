"""The organization template as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from stead._transport.api import IfMatch, api_path, decode, json_request
from stead._transport.operations import Operation
from stead.models import AffectedMembers, OrganizationTemplate, TemplateReport


def get_organization_template() -> Operation[OrganizationTemplate]:
    """Return all organization permissions and roles as one document, without ids."""
    return decode((yield json_request("GET", api_path("organization-template"))), OrganizationTemplate)


def put_organization_template(
    document: OrganizationTemplate | Mapping[str, Any], *, dry_run: bool = False, if_match: IfMatch = UNSET
) -> Operation[TemplateReport]:
    """Replace the organization template with a document, atomically, and return the changes.

    Permissions and roles are identified by name: a renamed one is a new one, and what the document does not name is
    deleted. The operation is idempotent.

    ::

        template = json.loads(Path("template.json").read_text())
        report = client.organization_template.put(template, dry_run=True)
        for effect in report.members:
            print(effect.name, effect.gaining.members, effect.losing.members)

    Args:
        document: As returned by ``get``, or the same as decoded JSON.
        dry_run: Change nothing; return what would change.
        if_match: The ``etag`` of the document as it was read.

    Raises:
        InvalidInput: A member of the document is invalid, or a name occurs twice.
        Conflict: The document cannot be applied; ``data`` says where.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    params = {"dry-run": "true"} if dry_run else None
    return decode(
        (yield json_request("PUT", api_path("organization-template"), document, params=params, if_match=if_match)),
        TemplateReport,
    )


def list_affected_members(
    document: OrganizationTemplate | Mapping[str, Any], *, limit: int = 50
) -> Operation[AffectedMembers]:
    """Return the first members that would gain or lose permissions if the document replaced the template.

    Args:
        document: As ``put`` takes it.
        limit: Members at most, from 1 to 100.

    Raises:
        InvalidInput: A member of the document is invalid, or a name occurs twice.
        Conflict: The document cannot be applied; ``data`` says where.
    """
    path = api_path("organization-template", "affected-members")
    return decode((yield json_request("POST", path, document, params={"limit": limit})), AffectedMembers)
