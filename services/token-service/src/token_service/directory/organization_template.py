"""Organization permissions and roles, in memory. Pure."""

from collections.abc import Iterable

from stead.event_types import OrganizationPermissionState, OrganizationRoleState
from token_service.directory.permissions import NameIndex, RoleContents, held


class OrganizationTemplate:
    """Organization permissions and roles, as of the last event.

    A role may grant organization permissions, API permissions (scopes of resources), or both.

    Attributes:
        permissions: Organization permissions, by name.
        role_permissions: The organization permissions of each role.
        role_scopes: The API permissions of each role.
        role_names: The name of each role.
    """

    def __init__(self) -> None:
        self.permissions = NameIndex[str]()
        self.role_permissions = RoleContents()
        self.role_scopes = RoleContents()
        self.role_names: dict[str, str] = {}

    def put_permission(self, permission: OrganizationPermissionState) -> None:
        """Apply the new state of an organization permission."""
        if permission.deleted:
            self.permissions.remove(permission.id)
        else:
            self.permissions.put(permission.id, permission.name, permission.description)

    def put_role(self, role: OrganizationRoleState) -> None:
        """Apply the new state of an organization role."""
        if role.deleted:
            self.role_permissions.remove(role.id)
            self.role_scopes.remove(role.id)
            self.role_names.pop(role.id, None)
        else:
            self.role_permissions.put(role.id, role.permission_ids)
            self.role_scopes.put(role.id, role.scope_ids)
            self.role_names[role.id] = role.name

    def held_permissions(self, role_ids: Iterable[str], among: frozenset[str]) -> frozenset[str]:
        """Return which of the named organization permissions these organization roles grant."""
        return frozenset(held(self.permissions, among, self.role_permissions.of(role_ids)))
