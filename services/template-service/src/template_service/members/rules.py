"""The bodies of requests about members, and which roles each kind of member may hold."""

from typing import Annotated, Final

import msgspec

from identity_common.fields import AddedIds, Body, Ids
from stead.event_types import MemberType, OrganizationRoleType

RoleName = Annotated[str, msgspec.Meta(max_length=256)]

ROLE_TYPE_OF: Final[dict[MemberType, OrganizationRoleType]] = {"user": "User", "application": "MachineToMachine"}
"""The type of the organization roles that each kind of member may hold."""

MAX_ASSIGNMENTS: Final = 250_000
"""Members times roles of one request. It is one transaction, which takes a fraction of the statement timeout."""


class MemberUsers(Body):
    """Users that belong to an organization.

    Attributes:
        ids: Ids of users.
    """

    ids: Ids = msgspec.field(name="userIds")


class MemberApplications(Body):
    """Machine-to-machine applications that belong to an organization.

    Attributes:
        ids: Ids of machine-to-machine applications.
    """

    ids: Ids = msgspec.field(name="applicationIds")


class AddedMemberUsers(Body):
    """Users to add to an organization; without duplicates in the response.

    Attributes:
        ids: Ids of users.
    """

    ids: AddedIds = msgspec.field(name="userIds")


class AddedMemberApplications(Body):
    """Machine-to-machine applications to add to an organization; without duplicates in the response.

    Attributes:
        ids: Ids of machine-to-machine applications.
    """

    ids: AddedIds = msgspec.field(name="applicationIds")


class UserAssignments(Body):
    """Member users, and organization roles to assign to each of them; without duplicates in the response.

    Attributes:
        ids: Ids of users that are members.
        organization_role_ids: Ids of organization roles of the type ``User``.
    """

    ids: AddedIds = msgspec.field(name="userIds")
    organization_role_ids: AddedIds


class ApplicationAssignments(Body):
    """Member applications, and organization roles to assign to each of them; without duplicates in the response.

    Attributes:
        ids: Ids of applications that are members.
        organization_role_ids: Ids of organization roles of the type ``MachineToMachine``.
    """

    ids: AddedIds = msgspec.field(name="applicationIds")
    organization_role_ids: AddedIds


class MemberRoles(Body):
    """Organization roles of a member, by id, by name, or both; repetitions are ignored.

    Attributes:
        organization_role_ids: Ids of organization roles.
        organization_role_names: Names of organization roles.
    """

    organization_role_ids: Ids = ()
    organization_role_names: tuple[RoleName, ...] = ()


class AddedMemberRoles(Body):
    """Organization roles that were assigned to a member, including those named by name.

    Attributes:
        organization_role_ids: Ids of organization roles.
    """

    organization_role_ids: Ids
