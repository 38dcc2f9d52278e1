"""The administrators' console."""

from pathlib import Path

from identity_common.pages.cookies import Cookies
from identity_common.signed_values import SignedValues
from identity_common.stores.address_limit import AddressLimit
from identity_common.telemetry.metrics import counter
from management_service.console.credentials import ConsoleCredentials
from management_service.console.pending import PENDING_TTL_S, PendingSignIns
from management_service.console.rendering import Look, Pages
from management_service.console.requests import ConsoleContext
from management_service.console.sessions import Sessions
from management_service.parts.shared import Shared
from management_service.settings import Settings


def console(settings: Settings, shared: Shared) -> ConsoleContext:
    """Return what the pages of the console share."""
    connections = shared.connections
    begun = AddressLimit(
        connections.commands,
        "console-sign-ins",
        tenant_id=settings.tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.pending_requests_per_address,
        throttled=counter(shared.registry, "throttled", "Attempts beyond a limit, by limit.", "limit"),
    )
    return ConsoleContext(
        base_url=settings.base_url,
        resource=settings.management_api_resource,
        trusted_proxies=settings.trusted_proxies,
        sessions=Sessions(connections.commands, tenant_id=settings.tenant_id),
        pending=PendingSignIns(connections.commands, tenant_id=settings.tenant_id),
        begun=begun,
        marks=SignedValues(settings.audit_head_keys, purpose=f"console cookie of {settings.tenant_id}"),
        credentials=ConsoleCredentials(Path(settings.console_credentials) if settings.console_credentials else None),
        cookies=Cookies(secure=settings.base_url.startswith("https:")),
        pages=Pages(Look(settings.console_name, settings.console_color, settings.console_logo_uri)),
        http=connections.console_http,
    )
