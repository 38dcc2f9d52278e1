"""What the pages of a site share."""

from pathlib import Path

from console.credentials import ClientCredentials
from console.parts.shared import Shared
from console.pending import PENDING_TTL_S, PendingSignIns
from console.sessions import Sessions
from console.settings import Settings
from console.signed_in import Site, SiteContext
from identity_common.pages.cookies import Cookies
from identity_common.signed_values import SignedValues
from identity_common.stores.source_limit import SourceLimit


def site_context(settings: Settings, shared: Shared, site: Site) -> SiteContext:
    """Return what the pages of a site share."""
    commands, tenant_id = shared.connections.commands, settings.tenant_id
    begun = SourceLimit(
        commands,
        f"{site.name}-sign-ins",
        tenant_id=tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.pending_requests_per_address,
        throttled=shared.throttled,
    )
    return SiteContext(
        site=site,
        base_url=settings.base_url,
        trusted_proxies=settings.trusted_proxies,
        sessions=Sessions(commands, site=site.name, tenant_id=tenant_id),
        pending=PendingSignIns(commands, site=site.name, tenant_id=tenant_id),
        begun=begun,
        marks=SignedValues(settings.cookie_keys, purpose=f"{site.name} cookie of {tenant_id}"),
        credentials=ClientCredentials(Path(settings.console_credentials) if settings.console_credentials else None),
        cookies=Cookies(secure=settings.base_url.startswith("https:")),
        pages=shared.pages.at(site.home),
        http=shared.connections.http,
    )
