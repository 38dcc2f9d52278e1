"""What guards need: who may call the Management API, and what is about the caller."""

from collections.abc import Mapping

from identity_common.access.management_api import Access
from token_service.endpoints.management_access import api_verify
from token_service.parts.shared import Shared
from token_service.settings import Settings


def access(settings: Settings, shared: Shared) -> Mapping[str, object]:
    """Return the dependencies of guards, by name."""
    return {
        "management_access": Access(
            api_verify(shared.directory, shared.live_tokens, audience=settings.management_api_resource),
            trusted_proxies=settings.trusted_proxies,
        ),
        "urn_namespace": settings.urn_namespace,
        "person_access": Access(
            api_verify(shared.directory, shared.live_tokens, audience=shared.live_tokens.userinfo_audience),
            trusted_proxies=settings.trusted_proxies,
        ),
    }
