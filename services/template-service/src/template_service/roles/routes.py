"""``/api/organization-roles``, and what these roles grant."""

from typing import Final, get_args

from litestar import Controller, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.parents import parent_exists
from identity_common.fields import Answer, each_once
from identity_common.http.listing import PAGED, WHOLE, Listing
from identity_common.http.openapi.declarations import Filter, documented
from stead.event_types import OrganizationRoleType
from template_service.permissions.routes import OrganizationPermissionAnswer, organization_permission_answer
from template_service.role_contents.store import GrantedScope
from template_service.roles.rules import (
    AddedOrganizationScopes,
    AddedResourceScopes,
    OrganizationRoleCreation,
    OrganizationRoleUpdate,
    OrganizationScopeIds,
    ResourceScopeIds,
)
from template_service.roles.service import OrganizationRoles
from template_service.roles.store import Named, NamedScope, OrganizationRole, OrganizationRoleWithContents


class OrganizationRoleAnswer(Answer):
    """An organization role.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the organization role.
        name: Unique name.
        description: Description.
        type: Whether users or machine-to-machine applications hold the role; it cannot change while the role is
            assigned.
    """

    tenant_id: str
    id: str
    name: str
    description: str | None
    type: OrganizationRoleType


class OrganizationRoleListAnswer(OrganizationRoleAnswer):
    """An organization role and what it grants: organization permissions, and scopes of API resources.

    Attributes:
        scopes: The organization permissions that it grants.
        resource_scopes: The scopes of API resources that it grants.
    """

    scopes: tuple[Named, ...]
    resource_scopes: tuple[NamedScope, ...]


class GrantedScopeAnswer(Answer):
    """A scope of an API resource that an organization role grants.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the scope.
        name: The scope token.
        resource_id: Id of the API resource.
        resource: The API resource.
    """

    tenant_id: str
    id: str
    name: str
    resource_id: str
    resource: Named


def organization_role_answer(role: OrganizationRole) -> OrganizationRoleAnswer:
    """Return an organization role as the API represents it."""
    return OrganizationRoleAnswer(
        tenant_id=role.tenant_id, id=role.id, name=role.name, description=role.description, type=role.type
    )


def _list_answer(found: OrganizationRoleWithContents) -> OrganizationRoleListAnswer:
    role = found.role
    return OrganizationRoleListAnswer(
        tenant_id=role.tenant_id,
        id=role.id,
        name=role.name,
        description=role.description,
        type=role.type,
        scopes=found.permissions,
        resource_scopes=found.scopes,
    )


def _scope_answer(scope: GrantedScope) -> GrantedScopeAnswer:
    return GrantedScopeAnswer(
        tenant_id=scope.tenant_id,
        id=scope.id,
        name=scope.name,
        resource_id=scope.resource_id,
        resource=Named(scope.resource_id, scope.resource_name),
    )


_IDS: Final = Filter("ids", "Only roles with one of these ids.", is_repeatable=True)
_TYPE: Final = Filter("type", "Only roles of this type.", get_args(OrganizationRoleType))


class OrganizationRoleController(Controller):
    """Organization roles."""

    path = "/organization-roles"
    tags = ("Organization template",)
    dependencies = PAGED

    @post("/", operation_id="CreateOrganizationRole", summary="Create an organization role")
    async def create_role(
        self, data: JSONBody[OrganizationRoleCreation], roles: NamedDependency[OrganizationRoles]
    ) -> OrganizationRoleAnswer:
        """Create an organization role that grants the given permissions and scopes, in one transaction."""
        return organization_role_answer(await roles.create(data))

    @get(
        "/",
        operation_id="ListOrganizationRoles",
        summary="List organization roles",
        opt=documented(filters=(_IDS, _TYPE)),
    )
    async def list_roles(
        self, listing: NamedDependency[Listing], roles: NamedDependency[OrganizationRoles]
    ) -> Response[list[OrganizationRoleListAnswer]]:
        """List organization roles by name, with what they grant."""
        ids, role_type = listing.filters(_IDS.name), listing.filter(_TYPE.name)
        found, total = await roles.list_roles(listing.page, ids=ids, role_type=role_type)
        return listing.answer([_list_answer(role) for role in found], total)

    @get("/{role_id:str}", operation_id="GetOrganizationRole", summary="Get an organization role")
    async def get_role(
        self, role_id: FromPath[str], roles: NamedDependency[OrganizationRoles]
    ) -> OrganizationRoleAnswer:
        """Get one organization role."""
        return organization_role_answer(await roles.get(role_id))

    @patch("/{role_id:str}", operation_id="UpdateOrganizationRole", summary="Update an organization role")
    async def update_role(
        self,
        role_id: FromPath[str],
        data: JSONBody[OrganizationRoleUpdate],
        roles: NamedDependency[OrganizationRoles],
    ) -> OrganizationRoleAnswer:
        """Change the given fields; the type of a role cannot change while a member holds it."""
        return organization_role_answer(await roles.update(role_id, data))

    @delete(
        "/{role_id:str}", operation_id="DeleteOrganizationRole", summary="Delete an organization role", status_code=204
    )
    async def delete_role(self, role_id: FromPath[str], roles: NamedDependency[OrganizationRoles]) -> None:
        """Delete an organization role; members no longer hold it."""
        await roles.delete(role_id)


class OrganizationRolePermissionController(Controller):
    """Organization permissions that an organization role grants."""

    path = "/organization-roles/{role_id:str}/scopes"
    tags = ("Organization template",)
    dependencies = WHOLE
    guards = (parent_exists("role"),)

    @post(
        "/",
        operation_id="AddOrganizationRoleScopes",
        summary="Add permissions to an organization role",
    )
    async def add_permissions(
        self, role_id: FromPath[str], data: JSONBody[AddedOrganizationScopes], roles: NamedDependency[OrganizationRoles]
    ) -> AddedOrganizationScopes:
        """Add organization permissions to an organization role."""
        await roles.add("permission", role_id, data.organization_scope_ids)
        return AddedOrganizationScopes(organization_scope_ids=each_once(data.organization_scope_ids))

    @get("/", operation_id="ListOrganizationRoleScopes", summary="List the permissions of an organization role")
    async def list_permissions(
        self, role_id: FromPath[str], listing: NamedDependency[Listing], roles: NamedDependency[OrganizationRoles]
    ) -> Response[list[OrganizationPermissionAnswer]]:
        """List the organization permissions that an organization role grants, by name."""
        found, total = await roles.list_permissions(role_id, listing.page)
        return listing.answer([organization_permission_answer(permission) for permission in found], total)

    @put(
        "/",
        operation_id="ReplaceOrganizationRoleScopes",
        summary="Replace the permissions of an organization role",
        status_code=204,
    )
    async def replace_permissions(
        self, role_id: FromPath[str], data: JSONBody[OrganizationScopeIds], roles: NamedDependency[OrganizationRoles]
    ) -> None:
        """Replace the organization permissions that an organization role grants."""
        await roles.replace("permission", role_id, data.organization_scope_ids)

    @delete(
        "/{permission_id:str}",
        operation_id="RemoveOrganizationRoleScope",
        summary="Remove a permission from an organization role",
        status_code=204,
    )
    async def remove_permission(
        self, role_id: FromPath[str], permission_id: FromPath[str], roles: NamedDependency[OrganizationRoles]
    ) -> None:
        """Remove an organization permission from an organization role."""
        await roles.remove("permission", role_id, permission_id)


class OrganizationRoleScopeController(Controller):
    """Scopes of API resources that an organization role grants."""

    path = "/organization-roles/{role_id:str}/resource-scopes"
    tags = ("Organization template",)
    dependencies = WHOLE
    guards = (parent_exists("role"),)

    @post(
        "/",
        operation_id="AddOrganizationRoleResourceScopes",
        summary="Add API permissions to an organization role",
    )
    async def add_scopes(
        self, role_id: FromPath[str], data: JSONBody[AddedResourceScopes], roles: NamedDependency[OrganizationRoles]
    ) -> AddedResourceScopes:
        """Add scopes of API resources, except the Management API, to an organization role."""
        await roles.add("scope", role_id, data.scope_ids)
        return AddedResourceScopes(scope_ids=each_once(data.scope_ids))

    @get(
        "/",
        operation_id="ListOrganizationRoleResourceScopes",
        summary="List the API permissions of an organization role",
    )
    async def list_scopes(
        self, role_id: FromPath[str], listing: NamedDependency[Listing], roles: NamedDependency[OrganizationRoles]
    ) -> Response[list[GrantedScopeAnswer]]:
        """List the scopes of API resources that an organization role grants, by name; ``q`` finds resources too."""
        found, total = await roles.list_scopes(role_id, listing.page)
        return listing.answer([_scope_answer(scope) for scope in found], total)

    @put(
        "/",
        operation_id="ReplaceOrganizationRoleResourceScopes",
        summary="Replace the API permissions of an organization role",
        status_code=204,
    )
    async def replace_scopes(
        self, role_id: FromPath[str], data: JSONBody[ResourceScopeIds], roles: NamedDependency[OrganizationRoles]
    ) -> None:
        """Replace the scopes of API resources that an organization role grants; none of the Management API."""
        await roles.replace("scope", role_id, data.scope_ids)

    @delete(
        "/{scope_id:str}",
        operation_id="RemoveOrganizationRoleResourceScope",
        summary="Remove an API permission from an organization role",
        status_code=204,
    )
    async def remove_scope(
        self, role_id: FromPath[str], scope_id: FromPath[str], roles: NamedDependency[OrganizationRoles]
    ) -> None:
        """Remove a scope of an API resource from an organization role."""
        await roles.remove("scope", role_id, scope_id)
