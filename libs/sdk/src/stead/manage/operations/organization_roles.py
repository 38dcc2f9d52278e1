"""Organization roles and what they grant."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import RoleType, create_body, patch_body
from stead.models import OrganizationPermission, OrganizationRole, ResourceScope


def create_organization_role(
    name: str,
    description: str | None = None,
    type: RoleType = "User",  # noqa: A002 - the API's name
    *,
    permission_ids: Iterable[str] | None = None,
    resource_scope_ids: Iterable[str] | None = None,
) -> Operation[OrganizationRole]:
    """Create a role that every organization can assign.

    Args:
        name: Unique.
        description: Free text.
        type: Which kind of members can have it.
        permission_ids: Organization permissions that it grants initially.
        resource_scope_ids: Scopes of API resources that it grants initially; none of the Management API.

    Raises:
        Conflict: The name is taken or not valid, or a permission or scope does not exist.
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
    """Return an organization role, without what it grants: see the lists ``permissions`` and ``resource_scopes``.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("organization-roles", role_id))), OrganizationRole)


def list_organization_roles(
    *,
    search: str | None = None,
    ids: Iterable[str] = (),
    type: RoleType | None = None,  # noqa: A002 - the API's name
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[OrganizationRole]:
    """Iterate over the organization roles and what they grant, ordered by name.

    Args:
        search: Only roles with this text in their name or description.
        ids: Only roles with one of these ids, 100 at most; empty for all.
        type: Only roles of this type.
        page_size: Items per request, 1 to 100.
    """
    params = {"q": search, "ids": list(ids), "type": type}
    return ListRequest(api_path("organization-roles"), OrganizationRole, page_size=page_size, params=params)


def update_organization_role(
    role_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    type: RoleType | UnsetType = UNSET,  # noqa: A002 - the API's name
    if_match: IfMatch = UNSET,
) -> Operation[OrganizationRole]:
    """Change the given members; None clears a member.

    Raises:
        NotFound: The id is unknown.
        Conflict: The name is taken or not valid, or the type would change while members have the role.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body, path = patch_body(name=name, description=description, type=type), api_path("organization-roles", role_id)
    return decode((yield json_request("PATCH", path, body, if_match=if_match)), OrganizationRole)


def delete_organization_role(role_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an organization role. Every member loses it.

    Raises:
        NotFound: The id is unknown.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("organization-roles", role_id), if_match=if_match)


def list_organization_role_permissions(
    role_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationPermission]:
    """Iterate over the organization permissions that a role grants, ordered by name.

    Raises:
        NotFound: The role does not exist.
    """
    path = api_path("organization-roles", role_id, "scopes")
    return ListRequest(path, OrganizationPermission, page_size=page_size)


def assign_organization_role_permissions(role_id: str, permission_ids: Iterable[str]) -> Operation[None]:
    """Add organization permissions to those that a role grants.

    Raises:
        NotFound: The role does not exist.
        Conflict: A permission does not exist.
    """
    body = {"organizationScopeIds": list(permission_ids)}
    return command("POST", api_path("organization-roles", role_id, "scopes"), body)


def replace_organization_role_permissions(
    role_id: str, permission_ids: Iterable[str], *, if_match: IfMatch = UNSET
) -> Operation[None]:
    """Make these the only organization permissions that a role grants.

    Raises:
        NotFound: The role does not exist.
        Conflict: A permission does not exist.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = {"organizationScopeIds": list(permission_ids)}
    return command("PUT", api_path("organization-roles", role_id, "scopes"), body, if_match=if_match)


def remove_organization_role_permission(role_id: str, permission_id: str) -> Operation[None]:
    """Remove an organization permission from a role.

    Raises:
        NotFound: The role does not exist, or does not grant the permission.
    """
    return command("DELETE", api_path("organization-roles", role_id, "scopes", permission_id))


def list_organization_role_resource_scopes(
    role_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[ResourceScope]:
    """Iterate over the scopes of API resources that a role grants, ordered by name.

    Raises:
        NotFound: The role does not exist.
    """
    path = api_path("organization-roles", role_id, "resource-scopes")
    return ListRequest(path, ResourceScope, page_size=page_size)


def assign_organization_role_resource_scopes(role_id: str, scope_ids: Iterable[str]) -> Operation[None]:
    """Add scopes of API resources to those that a role grants; none of the Management API.

    Raises:
        NotFound: The role does not exist.
        Conflict: A scope does not exist, or belongs to the Management API.
    """
    body = {"scopeIds": list(scope_ids)}
    return command("POST", api_path("organization-roles", role_id, "resource-scopes"), body)


def replace_organization_role_resource_scopes(
    role_id: str, scope_ids: Iterable[str], *, if_match: IfMatch = UNSET
) -> Operation[None]:
    """Make these the only scopes of API resources that a role grants; none of the Management API.

    Raises:
        NotFound: The role does not exist.
        Conflict: A scope does not exist, or belongs to the Management API.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = {"scopeIds": list(scope_ids)}
    return command("PUT", api_path("organization-roles", role_id, "resource-scopes"), body, if_match=if_match)


def remove_organization_role_resource_scope(role_id: str, scope_id: str) -> Operation[None]:
    """Remove a scope of an API resource from a role.

    Raises:
        NotFound: The role does not exist, or does not grant the scope.
    """
    return command("DELETE", api_path("organization-roles", role_id, "resource-scopes", scope_id))
