"""``/api/roles``, and the roles of users and applications."""

from typing import Final, get_args

import msgspec
from litestar import Controller, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.parents import parent_exists
from identity_common.fields import Answer, each_once
from identity_common.http.listing import PAGED, WHOLE, Listing
from identity_common.http.openapi.declarations import Filter, documented
from identity_common.wire.events import RoleType
from management_service.applications.routes import ApplicationAnswer, application_answer
from management_service.resources.routes import ScopeAnswer, scope_answer
from management_service.roles.assignments import Assignments
from management_service.roles.rules import (
    AddedApplications,
    AddedScopes,
    AddedUsers,
    ApplicationIds,
    AssignedRoles,
    RoleCreation,
    RoleIds,
    RoleUpdate,
    ScopeIds,
    UserIds,
)
from management_service.roles.service import Roles
from management_service.roles.store import Role, RoleFilter
from management_service.users.routes import ManagedUserAnswer, user_answer

_TYPE: Final = Filter("type", "Only roles of this type.", get_args(RoleType))
_NOT_OF_USER: Final = Filter("excludeUserId", "Only roles that this user does not hold.")
_NOT_OF_APPLICATION: Final = Filter("excludeApplicationId", "Only roles that this application does not hold.")


class RoleAnswer(Answer):
    """An API role.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the role.
        name: Unique name.
        description: Description.
        type: Whether users or machine-to-machine applications hold the role; it never changes.
        is_default: Whether every new user gets the role; only for the type ``User``.
    """

    tenant_id: str
    id: str
    name: str
    description: str
    type: RoleType
    is_default: bool


def role_answer(role: Role) -> RoleAnswer:
    """Return a role as the API shows it."""
    return msgspec.convert(role, RoleAnswer, from_attributes=True)


class RoleController(Controller):
    """API roles."""

    path = "/roles"
    tags = ("Roles",)
    dependencies = PAGED

    @post("/", operation_id="CreateRole", summary="Create a role", status_code=200)
    async def create_role(self, data: JSONBody[RoleCreation], roles: NamedDependency[Roles]) -> RoleAnswer:
        """Create an API role that grants the given scopes."""
        return role_answer(await roles.create(data))

    @get(
        "/",
        operation_id="ListRoles",
        summary="List roles",
        opt=documented(filters=(_TYPE, _NOT_OF_USER, _NOT_OF_APPLICATION)),
    )
    async def list_roles(
        self, listing: NamedDependency[Listing], roles: NamedDependency[Roles]
    ) -> Response[list[RoleAnswer]]:
        """List API roles by name."""
        only = RoleFilter(*(listing.filter(each.name) for each in (_TYPE, _NOT_OF_USER, _NOT_OF_APPLICATION)))
        found, total = await roles.list_roles(listing.page, only)
        return listing.answer([role_answer(role) for role in found], total)

    @get("/{role_id:str}", operation_id="GetRole", summary="Get a role")
    async def get_role(self, role_id: FromPath[str], roles: NamedDependency[Roles]) -> RoleAnswer:
        """Get one API role."""
        return role_answer(await roles.get(role_id))

    @patch("/{role_id:str}", operation_id="UpdateRole", summary="Update a role")
    async def update_role(
        self, role_id: FromPath[str], data: JSONBody[RoleUpdate], roles: NamedDependency[Roles]
    ) -> RoleAnswer:
        """Change the given fields; the type never changes."""
        return role_answer(await roles.update(role_id, data))

    @delete(
        "/{role_id:str}",
        operation_id="DeleteRole",
        summary="Delete a role",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def delete_role(self, role_id: FromPath[str], roles: NamedDependency[Roles]) -> None:
        """Delete an API role; its holders lose it."""
        await roles.delete(role_id)


class RoleScopeController(Controller):
    """Scopes that a role grants."""

    path = "/roles/{role_id:str}/scopes"
    tags = ("Roles",)
    dependencies = PAGED
    guards = (parent_exists("role"),)

    @post("/", operation_id="AddRoleScopes", summary="Add scopes to a role")
    async def add_scopes(
        self, role_id: FromPath[str], data: JSONBody[AddedScopes], roles: NamedDependency[Roles]
    ) -> list[ScopeAnswer]:
        """Add scopes to a role; the response lists all scopes of the role, by name."""
        return [scope_answer(scope) for scope in await roles.add_scopes(role_id, data.scope_ids)]

    @get("/", operation_id="ListRoleScopes", summary="List the scopes of a role")
    async def list_scopes(
        self, role_id: FromPath[str], listing: NamedDependency[Listing], roles: NamedDependency[Roles]
    ) -> Response[list[ScopeAnswer]]:
        """List the scopes that a role grants, by name."""
        found, total = await roles.list_scopes(role_id, listing.page)
        return listing.answer([scope_answer(scope) for scope in found], total)

    @put("/", operation_id="ReplaceRoleScopes", summary="Replace the scopes of a role", status_code=204)
    async def replace_scopes(
        self, role_id: FromPath[str], data: JSONBody[ScopeIds], roles: NamedDependency[Roles]
    ) -> None:
        """Replace the scopes that a role grants."""
        await roles.replace_scopes(role_id, data.scope_ids)

    @delete(
        "/{scope_id:str}",
        operation_id="RemoveRoleScope",
        summary="Remove a scope from a role",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def remove_scope(
        self, role_id: FromPath[str], scope_id: FromPath[str], roles: NamedDependency[Roles]
    ) -> None:
        """Remove a scope from a role."""
        await roles.remove_scope(role_id, scope_id)


class RoleUserController(Controller):
    """Users that hold a role."""

    path = "/roles/{role_id:str}/users"
    tags = ("Roles",)
    dependencies = PAGED
    guards = (parent_exists("role"),)

    @post("/", operation_id="AddRoleUsers", summary="Assign a role to users")
    async def add_users(
        self, role_id: FromPath[str], data: JSONBody[AddedUsers], assignments: NamedDependency[Assignments]
    ) -> AddedUsers:
        """Assign a role to these users."""
        await assignments.add_holders("user", role_id, data.user_ids)
        return AddedUsers(user_ids=each_once(data.user_ids))

    @get("/", operation_id="ListRoleUsers", summary="List the users of a role")
    async def list_users(
        self, role_id: FromPath[str], listing: NamedDependency[Listing], assignments: NamedDependency[Assignments]
    ) -> Response[list[ManagedUserAnswer]]:
        """List the users that hold a role, by name."""
        found, total = await assignments.list_users(role_id, listing.page)
        return listing.answer([user_answer(user) for user in found], total)

    @put("/", operation_id="ReplaceRoleUsers", summary="Replace the users of a role", status_code=204)
    async def replace_users(
        self, role_id: FromPath[str], data: JSONBody[UserIds], assignments: NamedDependency[Assignments]
    ) -> None:
        """Assign a role to these users, and remove it from all others."""
        await assignments.replace_holders("user", role_id, data.user_ids)

    @delete(
        "/{user_id:str}",
        operation_id="RemoveRoleUser",
        summary="Remove a role from a user",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def remove_user(
        self, role_id: FromPath[str], user_id: FromPath[str], assignments: NamedDependency[Assignments]
    ) -> None:
        """Remove a role from a user."""
        await assignments.remove_role("user", user_id, role_id)


class RoleApplicationController(Controller):
    """Machine-to-machine applications that hold a role."""

    path = "/roles/{role_id:str}/applications"
    tags = ("Roles",)
    dependencies = PAGED
    guards = (parent_exists("role"),)

    @post("/", operation_id="AddRoleApplications", summary="Assign a role to applications")
    async def add_applications(
        self, role_id: FromPath[str], data: JSONBody[AddedApplications], assignments: NamedDependency[Assignments]
    ) -> AddedApplications:
        """Assign a role to these machine-to-machine applications."""
        await assignments.add_holders("application", role_id, data.application_ids)
        return AddedApplications(application_ids=each_once(data.application_ids))

    @get("/", operation_id="ListRoleApplications", summary="List the applications of a role")
    async def list_applications(
        self, role_id: FromPath[str], listing: NamedDependency[Listing], assignments: NamedDependency[Assignments]
    ) -> Response[list[ApplicationAnswer]]:
        """List the applications that hold a role, by name."""
        found, total = await assignments.list_applications(role_id, listing.page)
        return listing.answer([application_answer(application) for application in found], total)

    @put("/", operation_id="ReplaceRoleApplications", summary="Replace the applications of a role", status_code=204)
    async def replace_applications(
        self, role_id: FromPath[str], data: JSONBody[ApplicationIds], assignments: NamedDependency[Assignments]
    ) -> None:
        """Assign a role to these machine-to-machine applications, and remove it from all others."""
        await assignments.replace_holders("application", role_id, data.application_ids)

    @delete(
        "/{application_id:str}",
        operation_id="RemoveRoleApplication",
        summary="Remove a role from an application",
        status_code=204,
    )
    async def remove_application(
        self, role_id: FromPath[str], application_id: FromPath[str], assignments: NamedDependency[Assignments]
    ) -> None:
        """Remove a role from an application."""
        await assignments.remove_role("application", application_id, role_id)


class UserRoleController(Controller):
    """Roles of a user."""

    path = "/users/{user_id:str}/roles"
    tags = ("Users",)
    dependencies = PAGED
    guards = (parent_exists("user"),)

    @get("/", operation_id="ListUserRoles", summary="List the roles of a user")
    async def list_roles(
        self, user_id: FromPath[str], listing: NamedDependency[Listing], assignments: NamedDependency[Assignments]
    ) -> Response[list[RoleAnswer]]:
        """List the API roles of a user, by name."""
        found, total = await assignments.list_roles("user", user_id, listing.page)
        return listing.answer([role_answer(role) for role in found], total)

    @post("/", operation_id="AddUserRoles", summary="Assign roles to a user")
    async def add_roles(
        self, user_id: FromPath[str], data: JSONBody[RoleIds], assignments: NamedDependency[Assignments]
    ) -> AssignedRoles:
        """Assign further roles to a user."""
        added = await assignments.add_roles("user", user_id, data.role_ids)
        return AssignedRoles(role_ids=each_once(data.role_ids), added_role_ids=added)

    @put("/", operation_id="ReplaceUserRoles", summary="Replace the roles of a user", status_code=204)
    async def replace_roles(
        self, user_id: FromPath[str], data: JSONBody[RoleIds], assignments: NamedDependency[Assignments]
    ) -> None:
        """Replace the roles of a user."""
        await assignments.replace_roles("user", user_id, data.role_ids)

    @delete(
        "/{role_id:str}",
        operation_id="RemoveUserRole",
        summary="Remove a role from a user",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def remove_role(
        self, user_id: FromPath[str], role_id: FromPath[str], assignments: NamedDependency[Assignments]
    ) -> None:
        """Remove a role from a user."""
        await assignments.remove_role("user", user_id, role_id)


class ApplicationRoleController(Controller):
    """Roles of a machine-to-machine application."""

    path = "/applications/{application_id:str}/roles"
    tags = ("Applications",)
    dependencies = WHOLE
    guards = (parent_exists("application"),)

    @get("/", operation_id="ListApplicationRoles", summary="List the roles of an application")
    async def list_roles(
        self,
        application_id: FromPath[str],
        listing: NamedDependency[Listing],
        assignments: NamedDependency[Assignments],
    ) -> Response[list[RoleAnswer]]:
        """List the API roles of an application, by name."""
        found, total = await assignments.list_roles("application", application_id, listing.page)
        return listing.answer([role_answer(role) for role in found], total)

    @post("/", operation_id="AddApplicationRoles", summary="Assign roles to an application")
    async def add_roles(
        self, application_id: FromPath[str], data: JSONBody[RoleIds], assignments: NamedDependency[Assignments]
    ) -> AssignedRoles:
        """Assign further roles to a machine-to-machine application."""
        added = await assignments.add_roles("application", application_id, data.role_ids)
        return AssignedRoles(role_ids=each_once(data.role_ids), added_role_ids=added)

    @put("/", operation_id="ReplaceApplicationRoles", summary="Replace the roles of an application", status_code=204)
    async def replace_roles(
        self, application_id: FromPath[str], data: JSONBody[RoleIds], assignments: NamedDependency[Assignments]
    ) -> None:
        """Replace the roles of a machine-to-machine application."""
        await assignments.replace_roles("application", application_id, data.role_ids)

    @delete(
        "/{role_id:str}",
        operation_id="RemoveApplicationRole",
        summary="Remove a role from an application",
        status_code=204,
    )
    async def remove_role(
        self, application_id: FromPath[str], role_id: FromPath[str], assignments: NamedDependency[Assignments]
    ) -> None:
        """Remove a role from an application."""
        await assignments.remove_role("application", application_id, role_id)
