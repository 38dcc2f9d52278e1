"""Reads the current organization permissions of a member from the Management API."""

from __future__ import annotations

from stead.errors import Conflict, NotFound
from stead.event_types import GrantedPermission, MemberType, permission_order
from stead.manage.clients import AsyncManagementClient


async def organization_permissions(
    management: AsyncManagementClient, organization_id: str, member_id: str, member_type: MemberType
) -> tuple[GrantedPermission, ...]:
    """Return a member's organization permissions, sorted; empty if there is no such member or organization.

    Raises:
        IdentityError: The service refused for another reason, or did not answer.
    """
    organizations = management.organizations
    read = organizations.user_permissions if member_type == "user" else organizations.application_permissions
    try:
        held = await read(organization_id, member_id)
    except NotFound:
        return ()
    except Conflict as error:
        if error.code == "organization.require_membership":
            return ()
        raise
    return tuple(sorted((GrantedPermission(each.name) for each in held.permissions), key=permission_order))
