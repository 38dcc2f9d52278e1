"""Organizations, members of both kinds and the template that they share, by short names."""

import secrets
from collections.abc import Sequence
from typing import Final, Literal

from stead import ManagementClient
from stead.event_types import MemberType

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
