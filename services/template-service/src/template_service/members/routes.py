"""``/api/organizations/{id}/users`` and ``/applications``, and the organizations of each of these.

Users and machine-to-machine applications are members in the same way: ``_Kind`` holds what differs.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from litestar import Controller, Request, Response, delete, get, post, put
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody
from msgspec import structs

from identity_common.access.parents import parent_exists
from identity_common.answers import UserAnswer
from identity_common.failures import Issue, invalid_input
from identity_common.fields import Answer, FreeFormAnswer, each_once
from identity_common.http.listing import PAGED, WHOLE, Listing
from identity_common.http.openapi.declarations import Filter, documented
from identity_common.wire.events import ApplicationType
from stead.event_types import MemberType
from template_service.members.guards import known_parent_exists
from template_service.members.rules import (
    AddedMemberApplications,
    AddedMemberRoles,
    AddedMemberUsers,
    ApplicationAssignments,
    MemberApplications,
    MemberRoles,
    MemberUsers,
    UserAssignments,
)
from template_service.members.service import Members
from template_service.members.store import HeldRole, Member, Membership, RoleOfMember, decode_application, decode_user
from template_service.organizations.routes import OrganizationAnswer, organization_answer
from template_service.roles.routes import OrganizationRoleAnswer, organization_role_answer

_ROLE: Final = Filter("organizationRoleId", "Only members that hold this organization role.")
_WITHOUT_ROLE: Final = Filter("excludeOrganizationRoleId", "Only members that do not hold this organization role.")


class UserMemberAnswer(UserAnswer):
    """A user, as ``/api/users`` shows it, and the roles that it holds in the organization.

    Attributes:
        organization_roles: The roles that it holds in the organization.
    """

    organization_roles: tuple[HeldRole, ...]


class ApplicationMemberAnswer(Answer):
    """A machine-to-machine application in short, and the roles that it holds in the organization.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the application; its ``client_id``.
        name: Display name.
        type: Kind of client, which decides how it authenticates and what it may do; it never changes.
        is_third_party: Whether the application belongs to a third party: users are asked for consent, and it may not
            exchange tokens.
        custom_data: Free-form object for the integrator.
        organization_roles: The roles that it holds in the organization.
    """

    tenant_id: str
    id: str
    name: str
    type: ApplicationType
    is_third_party: bool
    custom_data: FreeFormAnswer
    organization_roles: tuple[HeldRole, ...]


class MemberRoleAnswer(OrganizationRoleAnswer):
    """An organization role of a member, and why it holds it.

    Attributes:
        origins: Why it holds the role: ``manual`` if an administrator or an invitation gave it, ``jit`` if joining just
            in time did, and the id of each connector whose groups give it.
    """

    origins: tuple[str, ...]


class MembershipAnswer(OrganizationAnswer):
    """An organization, and the roles that a member holds in it.

    Attributes:
        organization_roles: The roles that the member holds in it.
    """

    organization_roles: tuple[HeldRole, ...]


def _user_answer(member: Member, tenant_id: str) -> UserMemberAnswer:
    user = structs.asdict(decode_user(member.state))
    del user["deleted"], user["tokens_valid_after"], user["second_factors"]
    return UserMemberAnswer(tenant_id=tenant_id, organization_roles=member.roles, **user)


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


def _member_role_answer(held: RoleOfMember) -> MemberRoleAnswer:
    return MemberRoleAnswer(origins=held.origins, **structs.asdict(organization_role_answer(held.role)))


def _membership_answer(membership: Membership) -> MembershipAnswer:
    organization = structs.asdict(organization_answer(membership.organization))
    return MembershipAnswer(organization_roles=membership.roles, **organization)


class _Kind(NamedTuple):
    """A kind of member.

    Attributes:
        member_type: Also names their path (``users``) and its parameter (``user_id``).
        noun: With its article, for the OpenAPI document.
        ids: The body that names all members.
        added: The body, of request and response, that names new members.
        assignments: The body, of request and response, that names members and roles.
        answer: Renders a member.
        answer_type: What ``answer`` returns.
    """

    member_type: MemberType
    noun: str
    ids: type[MemberUsers | MemberApplications]
    added: type[AddedMemberUsers | AddedMemberApplications]
    assignments: type[UserAssignments | ApplicationAssignments]
    answer: Callable[[Member, str], Answer]
    answer_type: type[Answer]

    @property
    def parameter(self) -> str:
        """The path parameter that identifies a member."""
        return f"{self.member_type}_id"

    @property
    def member_id(self) -> dict[str, Provide]:
        """The dependency ``member_id``: the value of that parameter."""

        def member_id(request: Request[Any, Any, Any]) -> str:
            value: str = request.path_params[self.parameter]
            return value

        return {"member_id": Provide(member_id, sync_to_thread=False)}


def _member_controller(kind: _Kind) -> type[Controller]:
    """Return the controller of the members of an organization that are of one kind."""
    one, some, name = kind.noun, f"{kind.member_type}s", kind.member_type.capitalize()

    class MemberController(Controller):
        path = f"/organizations/{{organization_id:str}}/{some}"
        tags = ("Organizations",)
        dependencies = PAGED
        guards = (parent_exists("organization"),)

        @get(
            "/",
            operation_id=f"ListOrganization{name}s",
            summary=f"List the {some} of an organization",
            description=f"List the {some} that belong to an organization by name, "
            "with the organization roles that they hold.",
            opt=documented(filters=(_ROLE, _WITHOUT_ROLE), answer=list[kind.answer_type]),  # type: ignore[name-defined]
        )
        async def list_members(
            self,
            organization_id: FromPath[str],
            listing: NamedDependency[Listing],
            members: NamedDependency[Members],
            tenant_id: NamedDependency[str],
        ) -> Response[list[Answer]]:
            found, total = await members.list_members(
                kind.member_type,
                organization_id,
                listing.page,
                role_id=listing.filter(_ROLE.name),
                without_role_id=listing.filter(_WITHOUT_ROLE.name),
            )
            return listing.answer([kind.answer(member, tenant_id) for member in found], total)

        @post(
            "/",
            operation_id=f"AddOrganization{name}s",
            summary=f"Add {some} to an organization",
            description=f"Add {some} to an organization; existing members stay.",
        )
        async def add_members(
            self,
            organization_id: FromPath[str],
            data: JSONBody[kind.added],  # type: ignore[name-defined]
            members: NamedDependency[Members],
        ) -> kind.added:  # type: ignore[name-defined]
            await members.add(kind.member_type, organization_id, data.ids)
            return kind.added(ids=each_once(data.ids))

        @put(
            "/",
            operation_id=f"ReplaceOrganization{name}s",
            summary=f"Replace the {some} of an organization",
            description=f"Make exactly these {some} members of an organization; existing members keep their roles.",
            status_code=204,
        )
        async def replace_members(
            self,
            organization_id: FromPath[str],
            data: JSONBody[kind.ids],  # type: ignore[name-defined]
            members: NamedDependency[Members],
        ) -> None:
            await members.replace(kind.member_type, organization_id, data.ids)

        @delete(
            f"/{{{kind.parameter}:str}}",
            operation_id=f"RemoveOrganization{name}",
            summary=f"Remove {one} from an organization",
            description=f"Remove {one} and its roles from an organization.",
            status_code=204,
            dependencies=kind.member_id,
        )
        async def remove_member(
            self,
            organization_id: FromPath[str],
            member_id: NamedDependency[str],
            members: NamedDependency[Members],
        ) -> None:
            await members.remove(kind.member_type, organization_id, member_id)

        @post(
            "/roles",
            operation_id=f"AssignOrganizationRolesTo{name}s",
            summary=f"Assign roles to {some} of an organization",
            description=f"Assign each of these organization roles to each of these {some}; existing roles are kept.",
        )
        async def assign_roles(
            self,
            organization_id: FromPath[str],
            data: JSONBody[kind.assignments],  # type: ignore[name-defined]
            members: NamedDependency[Members],
        ) -> kind.assignments:  # type: ignore[name-defined]
            ids, role_ids = each_once(data.ids), each_once(data.organization_role_ids)
            await members.assign(kind.member_type, organization_id, ids, role_ids)
            return kind.assignments(ids=ids, organization_role_ids=role_ids)

    return MemberController


def _member_role_controller(kind: _Kind) -> type[Controller]:
    """Return the controller of the roles of one member of an organization."""
    one, name = kind.noun, kind.member_type.capitalize()

    class MemberRoleController(Controller):
        path = f"/organizations/{{organization_id:str}}/{kind.member_type}s/{{{kind.parameter}:str}}/roles"
        tags = ("Organizations",)
        dependencies = WHOLE | kind.member_id
        guards = (parent_exists("organization"),)

        @get(
            "/",
            operation_id=f"ListOrganization{name}Roles",
            summary=f"List the roles of {one} in an organization",
            description=f"List the organization roles that {one} holds in an organization, by name, and why it does.",
            opt=documented(refuses=(422,)),
        )
        async def list_roles(
            self,
            organization_id: FromPath[str],
            member_id: NamedDependency[str],
            listing: NamedDependency[Listing],
            members: NamedDependency[Members],
        ) -> Response[list[MemberRoleAnswer]]:
            found, total = await members.list_roles(kind.member_type, organization_id, member_id, listing.page)
            return listing.answer([_member_role_answer(held) for held in found], total)

        @post(
            "/",
            operation_id=f"AddOrganization{name}Roles",
            summary=f"Assign roles to {one} in an organization",
            description=f"Assign further organization roles to {one}, by id or by name.",
        )
        async def add_roles(
            self,
            organization_id: FromPath[str],
            member_id: NamedDependency[str],
            data: JSONBody[MemberRoles],
            members: NamedDependency[Members],
        ) -> AddedMemberRoles:
            if not data.organization_role_ids and not data.organization_role_names:
                raise invalid_input(Issue(path="organizationRoleIds", message="name a role by id or by name"))
            role_ids = await members.assign(
                kind.member_type, organization_id, [member_id], data.organization_role_ids, data.organization_role_names
            )
            return AddedMemberRoles(organization_role_ids=tuple(sorted(role_ids)))

        @put(
            "/",
            operation_id=f"ReplaceOrganization{name}Roles",
            summary=f"Replace the roles of {one} in an organization",
            description=f"Replace the organization roles of {one}, by id or by name; those that groups give it stay.",
            status_code=204,
        )
        async def replace_roles(
            self,
            organization_id: FromPath[str],
            member_id: NamedDependency[str],
            data: JSONBody[MemberRoles],
            members: NamedDependency[Members],
        ) -> None:
            await members.replace_roles(
                kind.member_type, organization_id, member_id, data.organization_role_ids, data.organization_role_names
            )

        @delete(
            "/{organization_role_id:str}",
            operation_id=f"RemoveOrganization{name}Role",
            summary=f"Remove a role from {one} in an organization",
            description=f"Remove an organization role from {one}; 404 for a role that groups alone give it.",
            status_code=204,
            opt=documented(refuses=(422,)),
        )
        async def remove_role(
            self,
            organization_id: FromPath[str],
            member_id: NamedDependency[str],
            organization_role_id: FromPath[str],
            members: NamedDependency[Members],
        ) -> None:
            await members.remove_role(kind.member_type, organization_id, member_id, organization_role_id)

    return MemberRoleController


def _membership_controller(kind: _Kind) -> type[Controller]:
    """Return the controller of the organizations that a user or application belongs to."""
    one, name = kind.noun, kind.member_type.capitalize()

    class MembershipController(Controller):
        path = f"/{kind.member_type}s/{{{kind.parameter}:str}}/organizations"
        tags = (f"{name}s",)
        dependencies = WHOLE | kind.member_id
        guards = (known_parent_exists(kind.member_type),)

        @get(
            "/",
            operation_id=f"List{name}Organizations",
            summary=f"List the organizations of {one}",
            description=f"List the organizations that {one} belongs to by name, with the roles that it holds there.",
        )
        async def list_organizations(
            self,
            member_id: NamedDependency[str],
            listing: NamedDependency[Listing],
            members: NamedDependency[Members],
        ) -> Response[list[MembershipAnswer]]:
            found, total = await members.list_memberships(kind.member_type, member_id, listing.page)
            return listing.answer([_membership_answer(membership) for membership in found], total)

    return MembershipController


_KINDS: Final = (
    _Kind("user", "a user", MemberUsers, AddedMemberUsers, UserAssignments, _user_answer, UserMemberAnswer),
    _Kind(
        "application",
        "an application",
        MemberApplications,
        AddedMemberApplications,
        ApplicationAssignments,
        _application_answer,
        ApplicationMemberAnswer,
    ),
)

CONTROLLERS: Final = tuple(
    controller(kind)
    for kind in _KINDS
    for controller in (_member_controller, _member_role_controller, _membership_controller)
)
