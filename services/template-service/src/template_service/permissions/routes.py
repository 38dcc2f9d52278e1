"""``/api/organization-scopes``."""

from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.fields import Answer
from identity_common.http.listing import WHOLE, Listing
from template_service.permissions.rules import OrganizationPermissionCreation, OrganizationPermissionUpdate
from template_service.permissions.service import OrganizationPermissions
from template_service.role_contents.store import OrganizationPermission


class OrganizationPermissionAnswer(Answer):
    """An organization permission.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the organization permission.
        name: The scope token in organization tokens: printable ASCII without spaces; unique.
        description: Description, shown on the consent page.
    """

    tenant_id: str
    id: str
    name: str
    description: str | None


def organization_permission_answer(permission: OrganizationPermission) -> OrganizationPermissionAnswer:
    """Return an organization permission as the API represents it."""
    return OrganizationPermissionAnswer(
        tenant_id=permission.tenant_id,
        id=permission.id,
        name=permission.name,
        description=permission.description,
    )


class OrganizationPermissionController(Controller):
    """Organization permissions."""

    path = "/organization-scopes"
    tags = ("Organization template",)
    dependencies = WHOLE

    @post("/", operation_id="CreateOrganizationScope", summary="Create an organization permission")
    async def create_permission(
        self, data: JSONBody[OrganizationPermissionCreation], permissions: NamedDependency[OrganizationPermissions]
    ) -> OrganizationPermissionAnswer:
        """Create an organization permission, granted by no role."""
        return organization_permission_answer(await permissions.create(data))

    @get("/", operation_id="ListOrganizationScopes", summary="List organization permissions")
    async def list_permissions(
        self, listing: NamedDependency[Listing], permissions: NamedDependency[OrganizationPermissions]
    ) -> Response[list[OrganizationPermissionAnswer]]:
        """List organization permissions by name."""
        found, total = await permissions.list_permissions(listing.page)
        return listing.answer([organization_permission_answer(permission) for permission in found], total)

    @get("/{permission_id:str}", operation_id="GetOrganizationScope", summary="Get an organization permission")
    async def get_permission(
        self, permission_id: FromPath[str], permissions: NamedDependency[OrganizationPermissions]
    ) -> OrganizationPermissionAnswer:
        """Get one organization permission."""
        return organization_permission_answer(await permissions.get(permission_id))

    @patch("/{permission_id:str}", operation_id="UpdateOrganizationScope", summary="Update an organization permission")
    async def update_permission(
        self,
        permission_id: FromPath[str],
        data: JSONBody[OrganizationPermissionUpdate],
        permissions: NamedDependency[OrganizationPermissions],
    ) -> OrganizationPermissionAnswer:
        """Change the given fields; null clears the description."""
        return organization_permission_answer(await permissions.update(permission_id, data))

    @delete(
        "/{permission_id:str}",
        operation_id="DeleteOrganizationScope",
        summary="Delete an organization permission",
        status_code=204,
    )
    async def delete_permission(
        self, permission_id: FromPath[str], permissions: NamedDependency[OrganizationPermissions]
    ) -> None:
        """Delete an organization permission; roles no longer grant it."""
        await permissions.delete(permission_id)
