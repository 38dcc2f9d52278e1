"""Organization permissions."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stead._http import Operation, api_path, command, decode, json_request
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._bodies import create_body, patch_body
from stead.models import OrganizationPermission


def create_organization_permission(name: str, description: str | None = None) -> Operation[OrganizationPermission]:
    """Define a permission for all organizations; no role grants it yet.

    Args:
        name: Unique; the scope token of organization tokens.
        description: For people, at most 256 characters.

    Raises:
        Conflict: The name is taken, or none that a permission can have.
    """
    body = create_body(name=name, description=description)
    return decode((yield json_request("POST", api_path("organization-scopes"), body)), OrganizationPermission)


def get_organization_permission(permission_id: str) -> Operation[OrganizationPermission]:
    """Return an organization permission.

    Raises:
        NotFound: There is none with this id.
    """
    path = api_path("organization-scopes", permission_id)
    return decode((yield json_request("GET", path)), OrganizationPermission)


def list_organization_permissions(
    *, search: str | None = None, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationPermission]:
    """Go through the organization permissions, by name.

    Args:
        search: Part of a name or description; all of them if not given.
        page_size: How many items one answer brings, 1 to 100.
    """
    path = api_path("organization-scopes")
    return ListRequest(path, OrganizationPermission, page_size=page_size, params={"q": search})


def update_organization_permission(
    permission_id: str, *, name: str | UnsetType = UNSET, description: str | UnsetType | None = UNSET
) -> Operation[OrganizationPermission]:
    """Change what is given and keep the rest; None clears. Another name holds for every role that grants it.

    Raises:
        NotFound: There is none with this id.
        Conflict: The name is taken, or none that a permission can have.
    """
    body, path = patch_body(name=name, description=description), api_path("organization-scopes", permission_id)
    return decode((yield json_request("PATCH", path, body)), OrganizationPermission)


def delete_organization_permission(permission_id: str) -> Operation[None]:
    """Delete an organization permission; the roles that grant it grant one permission less.

    Raises:
        NotFound: There is none with this id.
    """
    return command("DELETE", api_path("organization-scopes", permission_id))
