"""The routes of the sites: sign-in, files, and the pages of every area."""

from collections.abc import Sequence

from litestar.handlers import HTTPRouteHandler

from console.account import applications as account_applications
from console.account import email as account_email
from console.account import factors as account_factors
from console.account import identities as account_identities
from console.account import impersonations as account_impersonations
from console.account import password as account_password
from console.account import profile as account_profile
from console.account import sessions as account_sessions
from console.account_requests import AccountRequest
from console.areas import (
    application_secrets,
    applications,
    audit,
    claims,
    connectors,
    home,
    impersonation_policy,
    impersonations,
    joining,
    mail,
    members,
    organization_invitations,
    organizations,
    person,
    resources,
    roles,
    search,
    sign_in_policy,
    template,
    template_entries,
    template_file,
    user_factors,
    user_identities,
    user_invitations,
    user_sessions,
    users,
)
from console.assets import ICON, SCRIPT
from console.console import Area, SiteRoutes
from console.invitations import invitation_routes
from console.problems import problem_pages
from console.requests import ConsoleRequest
from console.sign_in import sign_in_routes
from console.signed_in import SignedInRequest, SiteContext
from identity_common.http.application import AppRouter
from identity_common.pages.assets import asset_route

_AREAS = (
    home.AREA,
    template.AREA,
    template_file.AREA,
    template_entries.AREA,
    organizations.AREA,
    organization_invitations.AREA,
    joining.AREA,
    members.AREA,
    users.AREA,
    person.AREA,
    user_factors.AREA,
    user_identities.AREA,
    user_invitations.AREA,
    user_sessions.AREA,
    roles.AREA,
    applications.AREA,
    application_secrets.AREA,
    resources.AREA,
    claims.AREA,
    connectors.AREA,
    sign_in_policy.AREA,
    impersonation_policy.AREA,
    impersonations.AREA,
    mail.AREA,
    audit.AREA,
    search.AREA,
)
_ACCOUNT = (
    account_profile.AREA,
    account_password.AREA,
    account_email.AREA,
    account_factors.AREA,
    account_identities.AREA,
    account_sessions.AREA,
    account_applications.AREA,
    account_impersonations.AREA,
)


def console_router(context: SiteContext) -> AppRouter:
    """Return the routes under ``/console``, and the files of all pages."""
    files = [asset_route(context.pages.style), asset_route(ICON), asset_route(SCRIPT)]
    return _router(context, ConsoleRequest, _AREAS, [*files, *invitation_routes(context)])


def account_router(context: SiteContext) -> AppRouter:
    """Return the routes under ``/account``."""
    return _router(context, AccountRequest, _ACCOUNT, [])


def _router(
    context: SiteContext, kind: type[SignedInRequest], areas: Sequence[Area], open_to_all: Sequence[HTTPRouteHandler]
) -> AppRouter:
    site = SiteRoutes(context, kind)
    pages = [route for area in areas for route in site.of(area)]
    handlers = [*open_to_all, *sign_in_routes(context), *pages]
    return AppRouter("/", route_handlers=handlers, exception_handlers=problem_pages(context.pages))
