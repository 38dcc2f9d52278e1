"""``/api/organizations/{id}/users`` and ``/applications``, and the organizations that somebody belongs to."""

from typing import Final

from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import structs

from identity_common.fields import Answer, FreeFormAnswer
from identity_common.http.listing import PAGED, WHOLE, Listing
from identity_common.http.openapi import Filter, documented
from identity_common.stores.parents import parent_exists
from identity_common.wire.events import ApplicationType
from template_service.known.guards import known_parent_exists
from template_service.members.rules import (
    ApplicationAssignments,
    MemberApplications,
    MemberRoles,
    MemberUsers,
    UserAssignments,
)
from template_service.members.service import Members
from template_service.members.store import Member, Membership, decode_application, decode_user
from template_service.organizations.routes import OrganizationAnswer, organization_answer
from template_service.roles.routes import NO_BODY, OrganizationRoleAnswer, organization_role_answer
from template_service.roles.store import Named

_ROLE: Final = Filter("organizationRoleId", "Only members that hold this organization role.")


class UserMemberAnswer(Answer):
    """A user, as ``/api/users`` shows it, and the roles that it holds in the organization."""

    tenant_id: str
    id: str
    username: str | None
    primary_email: str | None
    primary_phone: str | None
    name: str | None
    avatar: str | None
    custom_data: FreeFormAnswer
    profile: FreeFormAnswer
    is_email_verified: bool
    is_suspended: bool
    has_password: bool
    created_at: int
    updated_at: int
    organization_roles: tuple[Named, ...]


class ApplicationMemberAnswer(Answer):
    """A machine-to-machine application in short, and the roles that it holds in the organization."""

    tenant_id: str
    id: str
    name: str
    type: ApplicationType
    is_third_party: bool
    custom_data: FreeFormAnswer
    organization_roles: tuple[Named, ...]


class MembershipAnswer(OrganizationAnswer):
    """An organization, and the roles that somebody holds in it."""

    organization_roles: tuple[Named, ...]


def _user_answer(member: Member, tenant_id: str) -> UserMemberAnswer:
    members = structs.asdict(decode_user(member.state))
    del members["deleted"], members["tokens_valid_after"]
    return UserMemberAnswer(tenant_id=tenant_id, organization_roles=member.roles, **members)


def _application_answer(member: Member, tenant_id: str) -> ApplicationMemberAnswer:
    state = decode_application(member.state)
    return ApplicationMemberAnswer(
        tenant_id=tenant_id,
        id=state.id,
        name=state.name,
        type=state.type,
        is_third_party=state.is_third_party,
        custom_data=state.custom_data,
        organization_roles=member.roles,
    )


def _membership_answer(membership: Membership) -> MembershipAnswer:
    organization = structs.asdict(organization_answer(membership.organization))
    return MembershipAnswer(organization_roles=membership.roles, **organization)


class OrganizationUserController(Controller):
    """Users that belong to an organization."""

    path = "/organizations/{organization_id:str}/users"
    tags = ("Organizations",)
    dependencies = PAGED
    guards = (parent_exists("organization"),)

    @get(
        "/",
        operation_id="ListOrganizationUsers",
        summary="List the users of an organization",
        opt=documented(filters=(_ROLE,)),
    )
    async def list_users(
        self,
        organization_id: FromPath[str],
        listing: NamedDependency[Listing],
        members: NamedDependency[Members],
        tenant_id: NamedDependency[str],
    ) -> Response[list[UserMemberAnswer]]:
        """List the users that belong to an organization by name, with the organization roles that they hold."""
        found, total = await members.list_members(
            "user", organization_id, listing.page, role_id=listing.filter(_ROLE.name)
        )
        return listing.answer([_user_answer(member, tenant_id) for member in found], total)

    @post("/", operation_id="AddOrganizationUsers", summary="Add users to an organization", media_type=NO_BODY)
    async def add_users(
        self, organization_id: FromPath[str], data: JSONBody[MemberUsers], members: NamedDependency[Members]
    ) -> Response[None]:
        """Let these users belong to an organization too."""
        return Response(None, headers=await members.add("user", organization_id, data.user_ids))

    @put("/", operation_id="ReplaceOrganizationUsers", summary="Replace the users of an organization", status_code=204)
    async def replace_users(
        self, organization_id: FromPath[str], data: JSONBody[MemberUsers], members: NamedDependency[Members]
    ) -> Response[None]:
        """Let these users and no others belong to an organization; who did already keeps the roles."""
        return Response(None, headers=await members.replace("user", organization_id, data.user_ids))

    @delete(
        "/{user_id:str}",
        operation_id="RemoveOrganizationUser",
        summary="Remove a user from an organization",
        status_code=204,
    )
    async def remove_user(
        self, organization_id: FromPath[str], user_id: FromPath[str], members: NamedDependency[Members]
    ) -> Response[None]:
        """Let a user no longer belong to an organization; the roles that it held are gone with it."""
        return Response(None, headers=await members.remove("user", organization_id, user_id))

    @post(
        "/roles",
        operation_id="AssignOrganizationRolesToUsers",
        summary="Give roles to users of an organization",
        media_type=NO_BODY,
    )
    async def assign_roles(
        self, organization_id: FromPath[str], data: JSONBody[UserAssignments], members: NamedDependency[Members]
    ) -> Response[None]:
        """Give each of these users each of these organization roles too."""
        headers = await members.assign("user", organization_id, data.user_ids, data.organization_role_ids)
        return Response(None, headers=headers)


class OrganizationUserRoleController(Controller):
    """Organization roles of a user that belongs to an organization."""

    path = "/organizations/{organization_id:str}/users/{user_id:str}/roles"
    tags = ("Organizations",)
    dependencies = WHOLE
    guards = (parent_exists("organization"),)

    @get(
        "/",
        operation_id="ListOrganizationUserRoles",
        summary="List the roles of a user in an organization",
        opt=documented(refuses=(422,)),
    )
    async def list_roles(
        self,
        organization_id: FromPath[str],
        user_id: FromPath[str],
        listing: NamedDependency[Listing],
        members: NamedDependency[Members],
    ) -> Response[list[OrganizationRoleAnswer]]:
        """List the organization roles that a user holds in an organization, by name."""
        found, total = await members.list_roles("user", organization_id, user_id, listing.page)
        return listing.answer([organization_role_answer(role) for role in found], total)

    @post(
        "/",
        operation_id="AddOrganizationUserRoles",
        summary="Give roles to a user in an organization",
        media_type=NO_BODY,
    )
    async def add_roles(
        self,
        organization_id: FromPath[str],
        user_id: FromPath[str],
        data: JSONBody[MemberRoles],
        members: NamedDependency[Members],
    ) -> Response[None]:
        """Give a user these organization roles too, named by id or by name."""
        headers = await members.assign(
            "user", organization_id, [user_id], data.organization_role_ids, data.organization_role_names
        )
        return Response(None, headers=headers)

    @put(
        "/",
        operation_id="ReplaceOrganizationUserRoles",
        summary="Replace the roles of a user in an organization",
        status_code=204,
    )
    async def replace_roles(
        self,
        organization_id: FromPath[str],
        user_id: FromPath[str],
        data: JSONBody[MemberRoles],
        members: NamedDependency[Members],
    ) -> Response[None]:
        """Give a user these organization roles and no others, named by id or by name."""
        headers = await members.replace_roles(
            "user", organization_id, user_id, data.organization_role_ids, data.organization_role_names
        )
        return Response(None, headers=headers)

    @delete(
        "/{organization_role_id:str}",
        operation_id="RemoveOrganizationUserRole",
        summary="Take a role from a user in an organization",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def remove_role(
        self,
        organization_id: FromPath[str],
        user_id: FromPath[str],
        organization_role_id: FromPath[str],
        members: NamedDependency[Members],
    ) -> Response[None]:
        """Take an organization role from a user."""
        headers = await members.remove_role("user", organization_id, user_id, organization_role_id)
        return Response(None, headers=headers)


class UserOrganizationController(Controller):
    """Organizations that a user belongs to."""

    path = "/users/{user_id:str}/organizations"
    tags = ("Users",)
    dependencies = PAGED
    guards = (known_parent_exists("user"),)

    @get("/", operation_id="ListUserOrganizations", summary="List the organizations of a user")
    async def list_organizations(
        self, user_id: FromPath[str], listing: NamedDependency[Listing], members: NamedDependency[Members]
    ) -> Response[list[MembershipAnswer]]:
        """List the organizations that a user belongs to by name, with the roles that it holds there."""
        found, total = await members.list_memberships("user", user_id, listing.page)
        return listing.answer([_membership_answer(membership) for membership in found], total)


class OrganizationApplicationController(Controller):
    """Machine-to-machine applications that belong to an organization."""

    path = "/organizations/{organization_id:str}/applications"
    tags = ("Organizations",)
    dependencies = PAGED
    guards = (parent_exists("organization"),)

    @get(
        "/",
        operation_id="ListOrganizationApplications",
        summary="List the applications of an organization",
        opt=documented(filters=(_ROLE,)),
    )
    async def list_applications(
        self,
        organization_id: FromPath[str],
        listing: NamedDependency[Listing],
        members: NamedDependency[Members],
        tenant_id: NamedDependency[str],
    ) -> Response[list[ApplicationMemberAnswer]]:
        """List the applications that belong to an organization by name, with the organization roles that they hold."""
        found, total = await members.list_members(
            "application", organization_id, listing.page, role_id=listing.filter(_ROLE.name)
        )
        return listing.answer([_application_answer(member, tenant_id) for member in found], total)

    @post(
        "/",
        operation_id="AddOrganizationApplications",
        summary="Add applications to an organization",
        media_type=NO_BODY,
    )
    async def add_applications(
        self, organization_id: FromPath[str], data: JSONBody[MemberApplications], members: NamedDependency[Members]
    ) -> Response[None]:
        """Let these machine-to-machine applications belong to an organization too."""
        return Response(None, headers=await members.add("application", organization_id, data.application_ids))

    @put(
        "/",
        operation_id="ReplaceOrganizationApplications",
        summary="Replace the applications of an organization",
        status_code=204,
    )
    async def replace_applications(
        self, organization_id: FromPath[str], data: JSONBody[MemberApplications], members: NamedDependency[Members]
    ) -> Response[None]:
        """Let these applications and no others belong to an organization; who did already keeps the roles."""
        return Response(None, headers=await members.replace("application", organization_id, data.application_ids))

    @delete(
        "/{application_id:str}",
        operation_id="RemoveOrganizationApplication",
        summary="Remove an application from an organization",
        status_code=204,
    )
    async def remove_application(
        self, organization_id: FromPath[str], application_id: FromPath[str], members: NamedDependency[Members]
    ) -> Response[None]:
        """Let an application no longer belong to an organization; the roles that it held are gone with it."""
        return Response(None, headers=await members.remove("application", organization_id, application_id))

    @post(
        "/roles",
        operation_id="AssignOrganizationRolesToApplications",
        summary="Give roles to applications of an organization",
        media_type=NO_BODY,
    )
    async def assign_roles(
        self, organization_id: FromPath[str], data: JSONBody[ApplicationAssignments], members: NamedDependency[Members]
    ) -> Response[None]:
        """Give each of these applications each of these organization roles too."""
        headers = await members.assign("application", organization_id, data.application_ids, data.organization_role_ids)
        return Response(None, headers=headers)


class OrganizationApplicationRoleController(Controller):
    """Organization roles of an application that belongs to an organization."""

    path = "/organizations/{organization_id:str}/applications/{application_id:str}/roles"
    tags = ("Organizations",)
    dependencies = WHOLE
    guards = (parent_exists("organization"),)

    @get(
        "/",
        operation_id="ListOrganizationApplicationRoles",
        summary="List the roles of an application in an organization",
        opt=documented(refuses=(422,)),
    )
    async def list_roles(
        self,
        organization_id: FromPath[str],
        application_id: FromPath[str],
        listing: NamedDependency[Listing],
        members: NamedDependency[Members],
    ) -> Response[list[OrganizationRoleAnswer]]:
        """List the organization roles that an application holds in an organization, by name."""
        found, total = await members.list_roles("application", organization_id, application_id, listing.page)
        return listing.answer([organization_role_answer(role) for role in found], total)

    @post(
        "/",
        operation_id="AddOrganizationApplicationRoles",
        summary="Give roles to an application in an organization",
        media_type=NO_BODY,
    )
    async def add_roles(
        self,
        organization_id: FromPath[str],
        application_id: FromPath[str],
        data: JSONBody[MemberRoles],
        members: NamedDependency[Members],
    ) -> Response[None]:
        """Give an application these organization roles too, named by id or by name."""
        headers = await members.assign(
            "application", organization_id, [application_id], data.organization_role_ids, data.organization_role_names
        )
        return Response(None, headers=headers)

    @put(
        "/",
        operation_id="ReplaceOrganizationApplicationRoles",
        summary="Replace the roles of an application in an organization",
        status_code=204,
    )
    async def replace_roles(
        self,
        organization_id: FromPath[str],
        application_id: FromPath[str],
        data: JSONBody[MemberRoles],
        members: NamedDependency[Members],
    ) -> Response[None]:
        """Give an application these organization roles and no others, named by id or by name."""
        headers = await members.replace_roles(
            "application", organization_id, application_id, data.organization_role_ids, data.organization_role_names
        )
        return Response(None, headers=headers)

    @delete(
        "/{organization_role_id:str}",
        operation_id="RemoveOrganizationApplicationRole",
        summary="Take a role from an application in an organization",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def remove_role(
        self,
        organization_id: FromPath[str],
        application_id: FromPath[str],
        organization_role_id: FromPath[str],
        members: NamedDependency[Members],
    ) -> Response[None]:
        """Take an organization role from an application."""
        headers = await members.remove_role("application", organization_id, application_id, organization_role_id)
        return Response(None, headers=headers)


class ApplicationOrganizationController(Controller):
    """Organizations that an application belongs to."""

    path = "/applications/{application_id:str}/organizations"
    tags = ("Applications",)
    dependencies = PAGED
    guards = (known_parent_exists("application"),)

    @get("/", operation_id="ListApplicationOrganizations", summary="List the organizations of an application")
    async def list_organizations(
        self, application_id: FromPath[str], listing: NamedDependency[Listing], members: NamedDependency[Members]
    ) -> Response[list[MembershipAnswer]]:
        """List the organizations that an application belongs to by name, with the roles that it holds there."""
        found, total = await members.list_memberships("application", application_id, listing.page)
        return listing.answer([_membership_answer(membership) for membership in found], total)
