"""What guards need: who may call the Management API."""

from collections.abc import Mapping

from identity_common.access.management_api import Access
from token_service.endpoints.management_access import management_verify
from token_service.parts.shared import Shared
from token_service.settings import Settings


def access(settings: Settings, shared: Shared) -> Mapping[str, object]:
    """Return the dependencies of guards, by name."""
    return {
        "management_access": Access(
            management_verify(
                shared.directory, shared.live_tokens, management_api_resource=settings.management_api_resource
            ),
            trusted_proxies=settings.trusted_proxies,
        ),
    }
