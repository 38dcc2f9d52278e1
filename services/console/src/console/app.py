"""Builds the service from its parts (``console.parts``)."""

from litestar import Litestar

from console.account_requests import account_site
from console.parts.context import site_context
from console.parts.shared import Shared
from console.problems import wrong_addresses
from console.requests import console_site
from console.routes import account_router, console_router
from console.settings import Settings
from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness


def create_app(settings: Settings) -> Litestar:
    """Return the ASGI app; its lifespan closes the connections. It is ready at once: nothing is loaded at the start."""
    shared = Shared(settings)
    console = site_context(settings, shared, console_site(settings.management_api_resource))
    account = site_context(settings, shared, account_site())
    return create_service_app(
        service="console",
        title="Console",
        base_url=settings.base_url,
        route_handlers=[console_router(console), account_router(account)],
        provide={},
        readiness=Readiness(),
        registry=shared.registry,
        samples=shared.samples,
        lifespan=shared.lifespan,
        exception_handlers=wrong_addresses(shared.pages),
    )
