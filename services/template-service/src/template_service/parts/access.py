"""What guards need: who may call the Management API, and which parents exist."""

from collections.abc import Mapping
from typing import Final

from identity_common.access.management_api import Access
from identity_common.access.parents import Parents
from template_service import schema
from template_service.authentication import LiveCallers
from template_service.parts.shared import Shared
from template_service.settings import Settings

_PARENTS: Final = {
    "permission": schema.permissions,
    "role": schema.roles,
    "organization": schema.organizations,
    "organization_invitation": schema.organization_invitations,
    "user": schema.known_users,
    "application": schema.known_applications,
}


def access(settings: Settings, shared: Shared) -> Mapping[str, object]:
    """Return the dependencies of guards, by name."""
    lookups, tenant_id = shared.connections.lookups, settings.tenant_id
    return {
        "management_access": Access(
            shared.tokens.verify,
            LiveCallers(lookups, shared.fresh_reads, tenant_id=tenant_id).is_live,
            trusted_proxies=settings.trusted_proxies,
        ),
        "parents": Parents(lookups, _PARENTS, tenant_id=tenant_id),
    }
