"""``/api/users/{id}/effective-permissions``."""

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.access.parents import parent_exists
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import documented
from management_service.effective_permissions.rules import EffectivePermissionsAnswer
from management_service.effective_permissions.service import EffectivePermissions


class EffectivePermissionController(Controller):
    """Effective permissions of a user."""

    path = "/users/{user_id:str}/effective-permissions"
    tags = ("Users",)
    dependencies = PAGED
    guards = (parent_exists("user"),)

    @get(
        "/",
        operation_id="GetUserEffectivePermissions",
        summary="Get a user's effective permissions",
        opt=documented(refuses=(422,)),
    )
    async def get_effective_permissions(
        self,
        user_id: FromPath[str],
        listing: NamedDependency[Listing],
        effective_permissions: NamedDependency[EffectivePermissions],
    ) -> Response[EffectivePermissionsAnswer]:
        """Get all permissions of a user, each with the roles that it comes from, as tokens may carry them now.

        By API resource, from API roles; and by organization, from organization roles. The organizations are in pages,
        by name: ``Total-Number`` counts them, and ``q`` searches their ids, names and descriptions. Every page has all
        API resources.

        A user with more than 50,000 permissions from API roles, or within the organizations of the page, counted once
        for each role that grants them, is refused.
        """
        found = await effective_permissions.read(user_id, listing.page)
        return Response(found.permissions, headers=listing.headers(found.total))
