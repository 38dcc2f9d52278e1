"""What the pages of the console share."""

from pathlib import Path

from console.credentials import ConsoleCredentials
from console.parts.shared import Shared
from console.pending import PENDING_TTL_S, PendingSignIns
from console.rendering import Look, Pages
from console.requests import ConsoleContext
from console.sessions import Sessions
from console.settings import Settings
from identity_common.pages.cookies import Cookies
from identity_common.signed_values import SignedValues
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.metrics import counter


def console_context(settings: Settings, shared: Shared) -> ConsoleContext:
    """Return what the pages share."""
    connections = shared.connections
    begun = SourceLimit(
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
        marks=SignedValues(settings.cookie_keys, purpose=f"console cookie of {settings.tenant_id}"),
        credentials=ConsoleCredentials(Path(settings.console_credentials) if settings.console_credentials else None),
        cookies=Cookies(secure=settings.base_url.startswith("https:")),
        pages=Pages(
            Look(
                settings.console_name,
                settings.console_color,
                settings.console_logo_uri,
                settings.console_ticket_url,
            )
        ),
        http=connections.http,
    )
