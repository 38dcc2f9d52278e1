"""Organization permissions."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import create_body, patch_body
from stead.models import OrganizationPermission


def create_organization_permission(name: str, description: str | None = None) -> Operation[OrganizationPermission]:
    """Create a permission that organization roles can grant.

    Args:
        name: Unique; the scope token in organization tokens.
        description: Shown on the consent page, at most 256 characters.

    Raises:
        Conflict: The name is taken; or ``scope.invalid_name``, also for a reserved one.
    """
    body = create_body(name=name, description=description)
    return decode((yield json_request("POST", api_path("organization-scopes"), body)), OrganizationPermission)


def get_organization_permission(permission_id: str) -> Operation[OrganizationPermission]:
    """Return an organization permission.

    Raises:
        NotFound: The id is unknown.
    """
    path = api_path("organization-scopes", permission_id)
    return decode((yield json_request("GET", path)), OrganizationPermission)


def list_organization_permissions(
    *, search: str | None = None, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationPermission]:
    """Iterate over the organization permissions, ordered by name.

    Args:
        search: Only permissions with this text in their name or description.
        page_size: Items per request, 1 to 100.
    """
    path = api_path("organization-scopes")
    return ListRequest(path, OrganizationPermission, page_size=page_size, params={"q": search})


def update_organization_permission(
    permission_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[OrganizationPermission]:
    """Change the given members; None clears a member. Every role that grants it grants the new name.

    Raises:
        NotFound: The id is unknown.
        Conflict: The name is taken; or ``scope.invalid_name``, also for a reserved one.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body, path = patch_body(name=name, description=description), api_path("organization-scopes", permission_id)
    return decode((yield json_request("PATCH", path, body, if_match=if_match)), OrganizationPermission)


def delete_organization_permission(permission_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an organization permission, also from the roles that grant it.

    Raises:
        NotFound: The id is unknown.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("organization-scopes", permission_id), if_match=if_match)
