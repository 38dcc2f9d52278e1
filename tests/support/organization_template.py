"""Organizations, members of both kinds and the template that they share, by short names; tokens of one member."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Final, Literal

import httpx2 as httpx

from identity_common.revisions import HEADER
from stead import ManagementClient, Unavailable
from stead.event_types import MemberType
from tests.support.impersonation import Impersonation

ROLE_TYPE: Final[dict[MemberType, Literal["User", "MachineToMachine"]]] = {
    "user": "User",
    "application": "MachineToMachine",
}


class OrganizationTemplate:
    """Writes through the Management API."""

    def __init__(self, management: ManagementClient) -> None:
        self._management = management

    @property
    def last_revision(self) -> str:
        """``Identity-Revision`` of the last writes to both sources."""
        return self._management.last_revision or ""

    def permission(self, name: str) -> str:
        """Create an organization permission."""
        return self._management.organization_permissions.create(name).id

    def rename_permission(self, permission_id: str, name: str) -> None:
        self._management.organization_permissions.update(permission_id, name=name)

    def delete_permission(self, permission_id: str) -> None:
        self._management.organization_permissions.delete(permission_id)

    def role(
        self, kind: MemberType = "user", *, permission_ids: Sequence[str] = (), scope_ids: Sequence[str] = ()
    ) -> str:
        """Create an organization role for members of this kind."""
        name = f"Role {secrets.token_hex(8)}"
        roles = self._management.organization_roles
        return roles.create(
            name, type=ROLE_TYPE[kind], permission_ids=list(permission_ids), resource_scope_ids=list(scope_ids)
        ).id

    def replace_contents(
        self, role_id: str, *, permission_ids: Sequence[str] = (), scope_ids: Sequence[str] = ()
    ) -> None:
        """Replace everything that a role grants."""
        self._management.organization_roles.replace_permissions(role_id, permission_ids)
        self._management.organization_roles.replace_resource_scopes(role_id, scope_ids)

    def delete_role(self, role_id: str) -> None:
        self._management.organization_roles.delete(role_id)

    def organization(self) -> str:
        """Create an organization."""
        return self._management.organizations.create("Organization").id

    def delete_organization(self, organization_id: str) -> None:
        self._management.organizations.delete(organization_id)

    def member(self, organization_id: str, member_id: str, *role_ids: str, kind: MemberType = "user") -> None:
        """Add a member with these roles, or replace the roles of a member."""
        organizations = self._management.organizations
        if kind == "user":
            organizations.add_users(organization_id, [member_id])
            organizations.replace_user_roles(organization_id, member_id, role_ids)
        else:
            organizations.add_applications(organization_id, [member_id])
            organizations.replace_application_roles(organization_id, member_id, role_ids)

    def remove_member(self, organization_id: str, member_id: str, *, kind: MemberType = "user") -> None:
        if kind == "user":
            self._management.organizations.remove_user(organization_id, member_id)
        else:
            self._management.organizations.remove_application(organization_id, member_id)


class Caller:
    """Requests organization tokens for its own member, in its own organization.

    Args:
        kind: Users get their tokens by exchange, applications by client credentials.
        name: The name of the permission; unique to this member.
        http: Sends the requests.
        management: Creates everything, and mints the subject tokens.
        impersonation: Its application exchanges them.

    Attributes:
        role: An organization role that grants the permission, and that the member holds.
        other_role: A role that grants nothing.
    """

    def __init__(
        self,
        kind: MemberType,
        name: str,
        *,
        http: httpx.AsyncClient,
        management: ManagementClient,
        impersonation: Impersonation,
    ) -> None:
        self.kind = kind
        self.name = name
        self.template = OrganizationTemplate(management)
        self._http = http
        self._management = management
        self._impersonation = impersonation
        self._auth: Any = impersonation.auth
        if kind == "user":
            self.member = management.users.create(name="Member").id
        else:
            self.member = management.applications.create(name="Member", type="MachineToMachine").id
            self._auth = (self.member, management.applications.create_secret(self.member, "first").value or "")
        self.organization = self.template.organization()
        self.permission = self.template.permission(name)
        self.role = self.template.role(kind, permission_ids=[self.permission])
        self.other_role = self.template.role(kind)
        self.hold(self.role)

    def hold(self, role_id: str) -> None:
        """Let the member hold exactly this role; a removed member is added again."""
        self.template.member(self.organization, self.member, role_id, kind=self.kind)

    def remove(self) -> None:
        """Remove the member."""
        self.template.remove_member(self.organization, self.member, kind=self.kind)

    async def holds(self, url: str, *, revision: str | None = None) -> bool | None:
        """Return whether a token carries the permission; None when the answer is a 503.

        A subject that is not a member gets no token, and holds nothing.
        """
        try:
            form = {"organization_id": self.organization, "scope": self.name, **await self._grant()}
        except Unavailable:
            return None
        headers = {HEADER: revision} if revision else {}
        answer = await self._http.post(f"{url}/oidc/token", data=form, auth=self._auth, headers=headers)
        if answer.status_code == 503:
            return None
        if answer.status_code == 403:
            assert answer.json()["error"] == "access_denied"
            return False
        assert answer.status_code == 200, answer.text
        assert answer.json()["scope"] in {self.name, ""}
        return bool(answer.json()["scope"])

    async def _grant(self) -> dict[str, str]:
        if self.kind == "application":
            return {"grant_type": "client_credentials"}
        minted = await asyncio.to_thread(self._management.subject_tokens.create, self.member)
        form = self._impersonation.form(minted.token)
        return {name: value for name, value in form.items() if name not in {"resource", "scope"}}
