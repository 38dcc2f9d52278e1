"""Reading a member's permissions, and waiting for a change of them."""

from template_service.member_permissions.access import ReadAccess
from template_service.member_permissions.cache import PermissionCache
from template_service.member_permissions.service import MemberPermissions
from template_service.parts.shared import Shared
from template_service.settings import Settings


def member_permissions(settings: Settings, shared: Shared) -> MemberPermissions:
    """Return the reading of members' permissions."""
    access = ReadAccess(
        shared.tokens,
        PermissionCache(shared.connections.lookups, tenant_id=settings.tenant_id),
        shared.fresh_reads,
        management_api=settings.management_api_resource,
        urn_namespace=settings.urn_namespace,
    )
    return MemberPermissions(
        shared.connections.lookups,
        access,
        shared.fresh_reads,
        shared.published,
        shared.waiters,
        tenant_id=settings.tenant_id,
        revision_wait_s=settings.revision_wait_s,
    )
