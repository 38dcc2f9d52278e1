"""Effective permissions: grouped by resource and organization, with the roles that grant each. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from identity_common.failures import Conflict
from identity_common.fields import Answer
from identity_common.wire.organization_grants import GrantingRole, NamedPermission, OrganizationGrantsAnswer

Granted = TypeVar("Granted")

MAX_GRANTS: Final = 50_000
"""Most permissions in an answer, of API roles and of a page of organizations each; one counts for each of its roles."""

_BY_ADMINISTRATORS: Final = ("manual",)


class GrantingRoleAnswer(Answer):
    """A role that grants a permission.

    Attributes:
        id: Id of the API role or organization role.
        name: Its name.
    """

    id: str
    name: str


class GrantedPermissionAnswer(Answer):
    """A permission and where it comes from.

    Attributes:
        id: Id of the scope or organization permission.
        name: The scope token.
        roles: The roles that grant it, by name; at least one.
    """

    id: str
    name: str
    roles: tuple[GrantingRoleAnswer, ...]


class PermissionsForResourceAnswer(Answer):
    """Scopes of one API resource.

    Attributes:
        id: Id of the resource.
        name: Its name.
        indicator: The resource indicator; ``aud`` of its tokens.
        scopes: Its scopes that roles grant, by name.
    """

    id: str
    name: str
    indicator: str
    scopes: tuple[GrantedPermissionAnswer, ...]


class RoleInOrganizationAnswer(Answer):
    """An organization role that the user holds, and why.

    Attributes:
        id: Id of the organization role.
        name: Its name.
        origins: ``manual`` if an administrator or an invitation gave it, ``jit`` if joining just in time did, and the
            id of each connector whose groups give it.
    """

    id: str
    name: str
    origins: tuple[str, ...]


class PermissionsInOrganizationAnswer(Answer):
    """Permissions within one organization; they come from organization roles only.

    Attributes:
        id: Id of the organization.
        name: Its name.
        organization_roles: The roles that the user holds in it, by name.
        permissions: Organization permissions, by name: the scopes of organization tokens.
        resources: Scopes of API resources, by name: those of tokens for a resource within the organization.
    """

    id: str
    name: str
    organization_roles: tuple[RoleInOrganizationAnswer, ...]
    permissions: tuple[GrantedPermissionAnswer, ...]
    resources: tuple[PermissionsForResourceAnswer, ...]


class EffectivePermissionsAnswer(Answer):
    """All permissions of a user.

    Attributes:
        is_suspended: Whether the user is suspended: no token is issued for it, whatever its roles grant.
        resources: Scopes of API resources that API roles grant, by name; resources without any are left out.
        organizations: A page of the organizations that the user belongs to, by name.
    """

    is_suspended: bool
    resources: tuple[PermissionsForResourceAnswer, ...]
    organizations: tuple[PermissionsInOrganizationAnswer, ...]


class ResourceScope(NamedTuple):
    """A scope with its resource."""

    resource_id: str
    resource_name: str
    indicator: str
    id: str
    name: str


Roles = tuple[GrantingRoleAnswer, ...]
Within = tuple[tuple[GrantedPermissionAnswer, ...], tuple[PermissionsForResourceAnswer, ...]]


def too_many_permissions() -> Conflict:
    """Return the failure of an answer that would be too large."""
    message = (
        f"The user has more than {MAX_GRANTS} permissions on this page, counted once for each role that grants them,"
        " or more than fit into a message. Ask for fewer organizations with page_size, or list its roles and their"
        " permissions."
    )
    return Conflict("user.too_many_permissions", message)


def by_resource(granted: Iterable[tuple[ResourceScope, Roles]]) -> tuple[PermissionsForResourceAnswer, ...]:
    """Group scopes by their resource, both in the order of their first appearance."""
    resources: dict[str, tuple[ResourceScope, list[GrantedPermissionAnswer]]] = {}
    for scope, roles in granted:
        _, scopes = resources.setdefault(scope.resource_id, (scope, []))
        scopes.append(GrantedPermissionAnswer(id=scope.id, name=scope.name, roles=roles))
    return tuple(
        PermissionsForResourceAnswer(
            id=first.resource_id, name=first.resource_name, indicator=first.indicator, scopes=tuple(scopes)
        )
        for first, scopes in resources.values()
    )


def by_organization(
    found: OrganizationGrantsAnswer, scopes: Sequence[ResourceScope]
) -> tuple[PermissionsInOrganizationAnswer, ...]:
    """Return the permissions within each organization.

    Args:
        found: What template-service knows.
        scopes: The API scopes that exist among those that the roles grant, in the order of the answer.

    Raises:
        Conflict: ``user.too_many_permissions``.
    """
    roles = {role.id: role for role in found.roles}
    sizes = {role.id: len(role.permission_ids) + len(role.scope_ids) for role in found.roles}
    if sum(sizes[role_id] for organization in found.organizations for role_id in organization.role_ids) > MAX_GRANTS:
        raise too_many_permissions()
    permissions = {permission.id: permission for permission in found.permissions}
    known_scopes = {scope.id: scope for scope in scopes}
    # Roles belong to all organizations, so most organizations of a user have the same ones.
    shared: dict[tuple[str, ...], Within] = {}
    answers = []
    for organization in found.organizations:
        if organization.role_ids not in shared:
            held = [roles[role_id] for role_id in organization.role_ids]
            shared[organization.role_ids] = _within(held, permissions, known_scopes)
        own, resources = shared[organization.role_ids]
        answers.append(
            PermissionsInOrganizationAnswer(
                id=organization.id,
                name=organization.name,
                organization_roles=tuple(
                    RoleInOrganizationAnswer(
                        id=role_id,
                        name=roles[role_id].name,
                        origins=organization.origins.get(role_id, _BY_ADMINISTRATORS),
                    )
                    for role_id in organization.role_ids
                ),
                permissions=own,
                resources=resources,
            )
        )
    return tuple(answers)


def _within(
    held: Sequence[GrantingRole], permissions: Mapping[str, NamedPermission], scopes: Mapping[str, ResourceScope]
) -> Within:
    granted = _granting(held, permissions, lambda role: role.permission_ids)
    own = tuple(
        GrantedPermissionAnswer(id=permission.id, name=permission.name, roles=roles) for permission, roles in granted
    )
    return own, by_resource(_granting(held, scopes, lambda role: role.scope_ids))


def _granting(
    held: Sequence[GrantingRole],
    ordered: Mapping[str, Granted],
    granted_ids: Callable[[GrantingRole], tuple[str, ...]],
) -> list[tuple[Granted, Roles]]:
    """Return what these roles grant with the roles, in the order of the mapping; what it does not have is left out."""
    roles_by_id: dict[str, list[GrantingRoleAnswer]] = {}
    for role in held:
        named = GrantingRoleAnswer(id=role.id, name=role.name)
        for granted_id in granted_ids(role):
            roles_by_id.setdefault(granted_id, []).append(named)
    return [(granted, tuple(roles_by_id[key])) for key, granted in ordered.items() if key in roles_by_id]
