"""Builds the service from its parts (``management_service.parts``)."""

from pathlib import Path
from typing import Final

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from identity_common.access.management_api import require_management
from identity_common.access.own_sign_in import require_own_sign_in
from identity_common.http.application import AppRouter, create_service_app
from identity_common.http.health import Readiness
from identity_common.http.openapi.declarations import CHANGES_DIRECTORY
from identity_common.stores import migrations
from management_service.api_reference.routes import reference_router, status, swagger_route
from management_service.applications.routes import ApplicationController, SecretController
from management_service.audit.routes import LogController, LogKeyController, audit_jwks
from management_service.claims_function.routes import ClaimsFunctionController, ClaimsFunctionTestController
from management_service.connectors.routes import ConnectorController, IdentityController, OwnIdentityController
from management_service.effective_permissions.routes import EffectivePermissionController
from management_service.factors.routes import FactorController, OwnFactorController
from management_service.impersonation_policy.routes import ImpersonationPolicyController
from management_service.impersonations.own_routes import OwnImpersonationController, readable_by_pages
from management_service.impersonations.routes import (
    ImpersonationController,
    ImpersonationsController,
    UserImpersonationController,
)
from management_service.invitations.routes import InvitationController, OpenInvitationController, accept
from management_service.links.routes import VerificationEmailController
from management_service.mail.routes import MailController, folder_routes
from management_service.my_account.routes import MyAccountController, MyImpersonationController
from management_service.parts.access import access
from management_service.parts.mail import mail_folder
from management_service.parts.shared import Shared
from management_service.parts.subject_tokens import subject_tokens
from management_service.parts.use_cases import use_cases
from management_service.resources.routes import ResourceController, ResourceScopeController
from management_service.roles.routes import (
    ApplicationRoleController,
    RoleApplicationController,
    RoleController,
    RoleScopeController,
    RoleUserController,
    UserRoleController,
)
from management_service.search.routes import SearchController
from management_service.settings import Settings
from management_service.sign_in_policy.routes import SignInPolicyController
from management_service.subject_tokens.routes import subject_token_route
from management_service.users.routes import UserController

VERSIONS: Final = Path(__file__).parent / "migrations"
SWAGGER: Final = Path(__file__).parent / "openapi.json"
"""Generated, by ``make openapi``."""

_CONTROLLERS: Final = (
    UserController,
    UserRoleController,
    EffectivePermissionController,
    InvitationController,
    OpenInvitationController,
    VerificationEmailController,
    FactorController,
    IdentityController,
    ConnectorController,
    ApplicationController,
    SecretController,
    ApplicationRoleController,
    ResourceController,
    ResourceScopeController,
    RoleController,
    RoleScopeController,
    RoleUserController,
    RoleApplicationController,
    ImpersonationController,
    ImpersonationsController,
    UserImpersonationController,
    ImpersonationPolicyController,
    SignInPolicyController,
    ClaimsFunctionTestController,
    ClaimsFunctionController,
    LogController,
    LogKeyController,
    MailController,
    SearchController,
)
_OWN_CONTROLLERS: Final = (
    MyAccountController,
    MyImpersonationController,
    OwnFactorController,
    OwnIdentityController,
)


def create_app(settings: Settings) -> Litestar:
    """Return the ASGI app; its lifespan starts and stops everything that runs beside the requests."""
    shared = Shared(settings, versions=VERSIONS)
    return create_service_app(
        service="management",
        title="Management API",
        base_url=settings.base_url,
        route_handlers=[
            subject_token_route(
                subject_tokens(settings, shared),
                shared.tokens,
                shared.authentication,
                trusted_proxies=settings.trusted_proxies,
            ),
            *_api(settings),
            AppRouter("/", opt=CHANGES_DIRECTORY, route_handlers=[OwnImpersonationController]),
            *_mail_pages(settings),
        ],
        provide={
            "base_url": settings.base_url,
            **access(settings, shared),
            **use_cases(settings, shared),
        },
        readiness=Readiness(shared.startup),
        registry=shared.registry,
        samples=shared.samples,
        lifespan=shared.lifespan,
        cors=readable_by_pages,
    )


def migrate(settings: Settings) -> None:
    """Upgrade the database to the newest revision. Blocks; runs its own event loop.

    Raises:
        UnknownSchemaError: Newer code has migrated it.
        OSError: The database does not answer.
        asyncpg.PostgresError: It refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


def _mail_pages(settings: Settings) -> list[HTTPRouteHandler]:
    folder = mail_folder(settings)
    if folder is None:
        return []
    return folder_routes(folder, base_url=settings.base_url, trusted_proxies=settings.trusted_proxies)


def _api(settings: Settings) -> tuple[AppRouter, ...]:
    """Return three routers, not one around them: Litestar copies every route once more for each router around it."""
    reference = reference_router(settings.base_url, management_api=settings.management_api_resource)
    open_to_all = (status, swagger_route(settings.base_url, SWAGGER), audit_jwks, reference, accept)
    return (
        AppRouter("/api", route_handlers=open_to_all),
        AppRouter("/api", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS),
        AppRouter("/api", guards=[require_own_sign_in], opt=CHANGES_DIRECTORY, route_handlers=_OWN_CONTROLLERS),
    )
