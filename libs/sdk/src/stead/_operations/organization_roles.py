"""Organization roles and what they grant."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from stead._http import Operation, api_path, command, decode, json_request
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._bodies import RoleType, create_body, patch_body
from stead.models import OrganizationPermission, OrganizationRole, ResourceScope


def create_organization_role(
    name: str,
    description: str | None = None,
    type: RoleType = "User",  # noqa: A002 - the word of the API
    *,
    permission_ids: Iterable[str] | None = None,
    resource_scope_ids: Iterable[str] | None = None,
) -> Operation[OrganizationRole]:
    """Define a role for all organizations.

    Args:
        name: Unique.
        description: For people.
        type: What kind of member can have it.
        permission_ids: Organization permissions that it grants from the start.
        resource_scope_ids: Scopes of API resources that it grants from the start; none of the Management API.

    Raises:
        Conflict: The name is taken, or something that it shall grant does not exist.
    """
    body = create_body(
        name=name,
        description=description,
        type=type,
        organizationScopeIds=None if permission_ids is None else list(permission_ids),
        resourceScopeIds=None if resource_scope_ids is None else list(resource_scope_ids),
    )
    return decode((yield json_request("POST", api_path("organization-roles"), body)), OrganizationRole)


def get_organization_role(role_id: str) -> Operation[OrganizationRole]:
    """Return an organization role; what it grants is read with ``permissions`` and ``resource_scopes``.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("organization-roles", role_id))), OrganizationRole)


def list_organization_roles(
    *, search: str | None = None, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationRole]:
    """Go through the organization roles with what they grant, by name.

    Args:
        search: Part of a name or description; all of them if not given.
        page_size: How many items one answer brings, 1 to 100.
    """
    path = api_path("organization-roles")
    return ListRequest(path, OrganizationRole, page_size=page_size, params={"q": search})


def update_organization_role(
    role_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    type: RoleType | UnsetType = UNSET,  # noqa: A002 - the word of the API
) -> Operation[OrganizationRole]:
    """Change what is given and keep the rest; None clears.

    Raises:
        NotFound: There is none with this id.
        Conflict: The name is taken, or somebody has the role whose type shall change.
    """
    body, path = patch_body(name=name, description=description, type=type), api_path("organization-roles", role_id)
    return decode((yield json_request("PATCH", path, body)), OrganizationRole)


def delete_organization_role(role_id: str) -> Operation[None]:
    """Delete an organization role; whoever had it no longer does.

    Raises:
        NotFound: There is none with this id.
    """
    return command("DELETE", api_path("organization-roles", role_id))


def list_organization_role_permissions(
    role_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationPermission]:
    """Go through the organization permissions that a role grants, by name.

    Raises:
        NotFound: There is no such role.
    """
    path = api_path("organization-roles", role_id, "scopes")
    return ListRequest(path, OrganizationPermission, page_size=page_size)


def assign_organization_role_permissions(role_id: str, permission_ids: Iterable[str]) -> Operation[None]:
    """Let a role grant organization permissions beside those that it grants.

    Raises:
        NotFound: There is no such role.
        Conflict: A permission does not exist.
    """
    body = {"organizationScopeIds": list(permission_ids)}
    return command("POST", api_path("organization-roles", role_id, "scopes"), body)


def replace_organization_role_permissions(role_id: str, permission_ids: Iterable[str]) -> Operation[None]:
    """Let a role grant these organization permissions and no others.

    Raises:
        NotFound: There is no such role.
        Conflict: A permission does not exist.
    """
    body = {"organizationScopeIds": list(permission_ids)}
    return command("PUT", api_path("organization-roles", role_id, "scopes"), body)


def remove_organization_role_permission(role_id: str, permission_id: str) -> Operation[None]:
    """Let a role no longer grant an organization permission.

    Raises:
        NotFound: There is no such role, or it does not grant the permission.
    """
    return command("DELETE", api_path("organization-roles", role_id, "scopes", permission_id))


def list_organization_role_resource_scopes(
    role_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[ResourceScope]:
    """Go through the scopes of API resources that a role grants, by name.

    Raises:
        NotFound: There is no such role.
    """
    path = api_path("organization-roles", role_id, "resource-scopes")
    return ListRequest(path, ResourceScope, page_size=page_size)


def assign_organization_role_resource_scopes(role_id: str, scope_ids: Iterable[str]) -> Operation[None]:
    """Let a role grant scopes of API resources beside those that it grants; none of the Management API.

    Raises:
        NotFound: There is no such role.
        Conflict: A scope does not exist, or belongs to the Management API.
    """
    body = {"scopeIds": list(scope_ids)}
    return command("POST", api_path("organization-roles", role_id, "resource-scopes"), body)


def replace_organization_role_resource_scopes(role_id: str, scope_ids: Iterable[str]) -> Operation[None]:
    """Let a role grant these scopes of API resources and no others; none of the Management API.

    Raises:
        NotFound: There is no such role.
        Conflict: A scope does not exist, or belongs to the Management API.
    """
    body = {"scopeIds": list(scope_ids)}
    return command("PUT", api_path("organization-roles", role_id, "resource-scopes"), body)


def remove_organization_role_resource_scope(role_id: str, scope_id: str) -> Operation[None]:
    """Let a role no longer grant a scope of an API resource.

    Raises:
        NotFound: There is no such role, or it does not grant the scope.
    """
    return command("DELETE", api_path("organization-roles", role_id, "resource-scopes", scope_id))
