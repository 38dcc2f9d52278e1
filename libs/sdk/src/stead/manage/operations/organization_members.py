"""Members of organizations: users, and machine-to-machine applications. Both kinds have the same operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import httpx2 as httpx
import msgspec
from msgspec import UNSET

from stead._transport.api import IfMatch, api_path, command, decode, json_request, unexpected_answer
from stead._transport.operations import Operation, Request
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.models import (
    HeldPermissions,
    OrganizationApplication,
    OrganizationMembership,
    OrganizationPermission,
    OrganizationRole,
    OrganizationUser,
)

M = TypeVar("M", OrganizationUser, OrganizationApplication)

_MAX_WAIT_S: Final = 20
_Ids: TypeAlias = list[str]  # in the class, list is an operation


class _AssignedRoles(msgspec.Struct, rename="camel"):
    organization_role_ids: _Ids


class MemberOperations(Generic[M]):
    """The operations on one kind of members, under ``/api/organizations/{id}/users`` or ``…/applications``."""

    def __init__(self, kind: Literal["users", "applications"], *, ids: str, model: type[M]) -> None:
        """Create the operations of one kind.

        Args:
            kind: The path segment.
            ids: The member of a request's body that lists the members' ids.
            model: The type of a listed member.
        """
        self._kind = kind
        self._ids = ids
        self._model: type[M] = model

    def list(
        self,
        organization_id: str,
        *,
        search: str | None = None,
        role_id: str | None = None,
        without_role_id: str | None = None,
        page_size: int = MAX_PAGE_SIZE,
    ) -> ListRequest[M]:
        """Iterate over the members of this kind with their organization roles, ordered by name.

        Args:
            organization_id: The organization.
            search: Only members with this text in their id or name; for users also in their user name, e-mail address
                or phone number.
            role_id: Only members with this organization role.
            without_role_id: Only members without this organization role.
            page_size: Items per request, 1 to 100.

        Raises:
            NotFound: The organization does not exist.
        """
        params = {"q": search, "organizationRoleId": role_id, "excludeOrganizationRoleId": without_role_id}
        return ListRequest(self._path(organization_id), self._model, page_size=page_size, params=params)

    def add(self, organization_id: str, member_ids: Iterable[str]) -> Operation[None]:
        """Add members to an organization; existing members stay as they are.

        Raises:
            NotFound: The organization does not exist.
            Conflict: A user or application does not exist, or the application is not machine-to-machine.
        """
        return command("POST", self._path(organization_id), {self._ids: list(member_ids)})

    def replace(self, organization_id: str, member_ids: Iterable[str], *, if_match: IfMatch = UNSET) -> Operation[None]:
        """Make these the only members of this kind; those who were members before keep their roles.

        Raises:
            NotFound: The organization does not exist.
            Conflict: A user or application does not exist, or the application is not machine-to-machine.
            VersionMismatch: ``if_match`` does not name the current version.
        """
        return command("PUT", self._path(organization_id), {self._ids: list(member_ids)}, if_match=if_match)

    def remove(self, organization_id: str, member_id: str) -> Operation[None]:
        """Remove a member from an organization, along with its roles there.

        Raises:
            NotFound: The organization does not exist, or has no such member.
        """
        return command("DELETE", self._path(organization_id, member_id))

    def assign_roles_to_all(
        self, organization_id: str, member_ids: Iterable[str], role_ids: Iterable[str]
    ) -> Operation[None]:
        """Assign each of these organization roles to each of these members, in addition to their other roles.

        Raises:
            NotFound: The organization does not exist.
            Conflict: One of the ids is not a member's; a role does not exist or is for the other kind of members.
        """
        body = {self._ids: list(member_ids), "organizationRoleIds": list(role_ids)}
        return command("POST", self._path(organization_id, "roles"), body)

    def roles(
        self, organization_id: str, member_id: str, *, page_size: int = MAX_PAGE_SIZE
    ) -> ListRequest[OrganizationRole]:
        """Iterate over the roles of a member in an organization, ordered by name.

        Raises:
            NotFound: The organization does not exist.
            Conflict: It has no such member.
        """
        return ListRequest(self._path(organization_id, member_id, "roles"), OrganizationRole, page_size=page_size)

    def assign_roles(
        self, organization_id: str, member_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
    ) -> Operation[_Ids]:
        """Assign organization roles, given by id or by name, to a member, in addition to its other roles.

        Returns:
            The ids of these roles.

        Raises:
            NotFound: The organization does not exist.
            InvalidInput: No role is given.
            Conflict: It has no such member; a role does not exist or is for the other kind of members.
        """
        path, body = self._path(organization_id, member_id, "roles"), _roles_body(role_ids, role_names)
        return decode((yield json_request("POST", path, body)), _AssignedRoles).organization_role_ids

    def replace_roles(
        self,
        organization_id: str,
        member_id: str,
        role_ids: Iterable[str] = (),
        *,
        role_names: Iterable[str] = (),
        if_match: IfMatch = UNSET,
    ) -> Operation[None]:
        """Make these organization roles, given by id or by name, the only ones of a member.

        Raises:
            NotFound: The organization does not exist.
            Conflict: It has no such member; a role does not exist or is for the other kind of members.
            VersionMismatch: ``if_match`` does not name the current version.
        """
        body = _roles_body(role_ids, role_names)
        return command("PUT", self._path(organization_id, member_id, "roles"), body, if_match=if_match)

    def remove_role(self, organization_id: str, member_id: str, role_id: str) -> Operation[None]:
        """Remove an organization role from a member.

        Raises:
            NotFound: The organization does not exist, or the member does not have the role.
            Conflict: The organization has no such member.
        """
        return command("DELETE", self._path(organization_id, member_id, "roles", role_id))

    def permissions(
        self, organization_id: str, member_id: str, *, known: HeldPermissions | None = None, wait_s: int = 0
    ) -> Operation[HeldPermissions]:
        """Return the organization permissions of a member; with ``known`` and ``wait_s``, wait for them to change.

        ::

            held = client.organizations.user_permissions(organization_id, user_id)
            while True:  # one request every 20 s while nothing changes
                held = client.organizations.user_permissions(organization_id, user_id, known=held, wait_s=20)

        Args:
            organization_id: The organization.
            member_id: The member.
            known: An earlier result. The same object is returned while it is current.
            wait_s: Seconds to wait for a result other than ``known``, at most 20; 0 does not wait.

        Raises:
            NotFound: The organization does not exist.
            Conflict: It has no such member, or no longer.
        """
        headers: dict[str, str] = {}
        long_poll_s = 0
        if known is not None:
            headers["If-None-Match"] = known.etag
            long_poll_s = min(max(wait_s, 0), _MAX_WAIT_S)
        if long_poll_s:
            headers["Prefer"] = f"wait={long_poll_s}"
        path = self._path(organization_id, member_id, "scopes")
        return _held_permissions(Request(method="GET", path=path, headers=headers, long_poll_s=long_poll_s), known)

    def organizations(self, member_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[OrganizationMembership]:
        """Iterate over the organizations of a user or application, with its roles there, ordered by name.

        Raises:
            NotFound: The user or application does not exist.
        """
        return ListRequest(
            api_path(self._kind, member_id, "organizations"), OrganizationMembership, page_size=page_size
        )

    def _path(self, organization_id: str, *segments: str) -> str:
        return api_path("organizations", organization_id, self._kind, *segments)


USERS: Final = MemberOperations("users", ids="userIds", model=OrganizationUser)
APPLICATIONS: Final = MemberOperations("applications", ids="applicationIds", model=OrganizationApplication)


def _roles_body(role_ids: Iterable[str], role_names: Iterable[str]) -> dict[str, list[str]]:
    return {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}


def _held_permissions(request: Request, known: HeldPermissions | None) -> Operation[HeldPermissions]:
    answer = yield request
    if known is not None and answer.status_code == httpx.codes.NOT_MODIFIED:
        return known
    permissions = decode(answer, list[OrganizationPermission])
    if not answer.headers.get("ETag"):
        raise unexpected_answer("the response has no entity tag", answer)
    return HeldPermissions(permissions=tuple(permissions), etag=answer.headers["ETag"])
