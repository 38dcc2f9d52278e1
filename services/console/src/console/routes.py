"""The routes of the console: sign-in, files, and the pages of every area."""

from console.areas import (
    application_secrets,
    applications,
    audit,
    claims,
    home,
    impersonation_policy,
    impersonations,
    members,
    organizations,
    person,
    resources,
    roles,
    search,
    sign_in_policy,
    template,
    template_entries,
    template_file,
    user_invitations,
    users,
)
from console.assets import ICON, SCRIPT
from console.console import SiteRoutes
from console.invitations import invitation_routes
from console.problems import problem_pages
from console.requests import ConsoleRequest
from console.sign_in import sign_in_routes
from console.signed_in import SiteContext
from identity_common.http.application import AppRouter
from identity_common.pages.assets import asset_route

_AREAS = (
    home.AREA,
    template.AREA,
    template_file.AREA,
    template_entries.AREA,
    organizations.AREA,
    members.AREA,
    users.AREA,
    person.AREA,
    user_invitations.AREA,
    roles.AREA,
    applications.AREA,
    application_secrets.AREA,
    resources.AREA,
    claims.AREA,
    sign_in_policy.AREA,
    impersonation_policy.AREA,
    impersonations.AREA,
    audit.AREA,
    search.AREA,
)


def console_router(context: SiteContext) -> AppRouter:
    """Return the routes under ``/console``."""
    console = SiteRoutes(context, ConsoleRequest)
    pages = [route for area in _AREAS for route in console.of(area)]
    files = [asset_route(context.pages.style), asset_route(ICON), asset_route(SCRIPT)]
    open_to_all = [*files, *sign_in_routes(context), *invitation_routes(context)]
    problems = problem_pages(context.pages)
    return AppRouter("/", route_handlers=[*open_to_all, *pages], exception_handlers=problems)
