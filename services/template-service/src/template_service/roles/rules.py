"""The bodies that create and change an organization role."""

from msgspec import UNSET, UnsetType

from identity_common.fields import AddedIds, Body, Description, Ids, Name
from stead.event_types import OrganizationRoleType


class OrganizationRoleCreation(Body):
    """A new organization role.

    Attributes:
        name: Unique name.
        description: Description.
        type: Whether users or machine-to-machine applications hold the role; it cannot change while the role is
            assigned.
        organization_scope_ids: Organization permissions that it grants.
        resource_scope_ids: Scopes of API resources that it grants.
    """

    name: Name
    description: Description | None = None
    type: OrganizationRoleType = "User"
    organization_scope_ids: Ids = ()
    resource_scope_ids: Ids = ()


class OrganizationRoleUpdate(Body):
    """A change of an organization role; null clears the description.

    Attributes:
        name: Unique name.
        description: Description.
        type: Whether users or machine-to-machine applications hold the role; it cannot change while the role is
            assigned.
    """

    name: Name | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    type: OrganizationRoleType | UnsetType = UNSET


class OrganizationScopeIds(Body):
    """Organization permissions of an organization role.

    Attributes:
        organization_scope_ids: Ids of organization permissions.
    """

    organization_scope_ids: Ids


class ResourceScopeIds(Body):
    """Scopes of API resources of an organization role.

    Attributes:
        scope_ids: Ids of scopes of API resources.
    """

    scope_ids: Ids


class AddedOrganizationScopes(Body):
    """Organization permissions to add to an organization role; without duplicates in the response.

    Attributes:
        organization_scope_ids: Ids of organization permissions.
    """

    organization_scope_ids: AddedIds


class AddedResourceScopes(Body):
    """Scopes of API resources to add to an organization role; without duplicates in the response.

    Attributes:
        scope_ids: Ids of scopes of API resources.
    """

    scope_ids: AddedIds
