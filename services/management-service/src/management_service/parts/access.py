"""What guards need: who may call the Management API, and which parents exist."""

import functools
from collections.abc import Mapping
from typing import Final

from identity_common.access.management_api import Access
from identity_common.access.parents import Parents
from management_service import schema
from management_service.parts.shared import Shared
from management_service.settings import Settings

_PARENTS: Final = {
    "user": schema.users,
    "application": schema.applications,
    "resource": schema.resources,
    "role": schema.roles,
}


def access(settings: Settings, shared: Shared) -> Mapping[str, object]:
    """Return the dependencies of guards, by name."""
    tokens, authentication = shared.tokens, shared.authentication
    return {
        "management_access": Access(tokens.verify, authentication.is_live, trusted_proxies=settings.trusted_proxies),
        "urn_namespace": settings.urn_namespace,
        "person_access": Access(
            functools.partial(tokens.verify, audience=f"{settings.issuer}/me"),
            authentication.is_live,
            trusted_proxies=settings.trusted_proxies,
        ),
        "parents": Parents(shared.connections.lookups, _PARENTS, tenant_id=settings.tenant_id),
    }
