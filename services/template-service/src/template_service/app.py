"""Builds the service from its parts (``template_service.parts``)."""

import asyncio
from pathlib import Path
from typing import Final

from litestar import Litestar
from litestar.types import ControllerRouterHandler

from identity_common.access.management_api import require_management
from identity_common.bus.connection import Bus
from identity_common.http.application import AppRouter, create_service_app
from identity_common.http.health import Readiness
from identity_common.http.layers.cors import Cors
from identity_common.http.openapi.declarations import CHANGES_DIRECTORY
from identity_common.outbox.commands import SourceCommands
from identity_common.progress import Progress
from identity_common.projection.catch_up import CATCH_UP_WAIT_S
from identity_common.serving import run_restoration
from identity_common.stores import migrations
from template_service.affected_members.routes import AffectedMembersController
from template_service.document.routes import OrganizationTemplateController
from template_service.just_in_time import routes as just_in_time
from template_service.member_permissions.routes import readable_by_any_page, scopes_routes
from template_service.members import routes as members
from template_service.organization_invitations.routes import OrganizationInvitationController
from template_service.organizations.routes import OrganizationController
from template_service.parts.access import access
from template_service.parts.member_permissions import member_permissions
from template_service.parts.shared import Shared
from template_service.parts.shared_with_commands import changes, engine_for_repairs
from template_service.parts.use_cases import use_cases
from template_service.permissions.routes import OrganizationPermissionController
from template_service.republication import WholeState
from template_service.restoration import mend
from template_service.roles.routes import (
    OrganizationRoleController,
    OrganizationRolePermissionController,
    OrganizationRoleScopeController,
)
from template_service.settings import Settings

VERSIONS: Final = Path(__file__).parent / "migrations"

_CONTROLLERS: Final[tuple[ControllerRouterHandler, ...]] = (
    OrganizationPermissionController,
    OrganizationRoleController,
    OrganizationRolePermissionController,
    OrganizationRoleScopeController,
    OrganizationTemplateController,
    AffectedMembersController,
    OrganizationController,
    *members.CONTROLLERS,
    *just_in_time.CONTROLLERS,
    OrganizationInvitationController,
)


def create_app(settings: Settings, *, catch_up_wait_s: float = CATCH_UP_WAIT_S) -> Litestar:
    """Return the ASGI app; its lifespan starts and stops everything that runs beside the requests.

    Args:
        settings: From the environment.
        catch_up_wait_s: How long a request with an unknown id waits to catch up with the bus before it is refused.
    """
    shared = Shared(settings, versions=VERSIONS, catch_up_wait_s=catch_up_wait_s)
    return create_service_app(
        service="template",
        title="Organization template",
        base_url=settings.base_url,
        route_handlers=[
            *scopes_routes(member_permissions(settings, shared)),
            AppRouter("/api", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS),
        ],
        provide={
            "base_url": settings.base_url,
            "tenant_id": settings.tenant_id,
            **access(settings, shared),
            **use_cases(settings, shared),
        },
        readiness=Readiness(shared.startup, lambda: shared.management_events.is_complete),
        registry=shared.registry,
        samples=shared.samples,
        lifespan=shared.lifespan,
        cors=lambda app: Cors(app, readable_by_any_page, methods=b"GET"),
    )


def migrate(settings: Settings) -> None:
    """Migrate the database to the latest revision. Blocks; runs its own event loop.

    Raises:
        UnknownSchemaError: Newer code has migrated it.
        OSError: The database does not answer.
        asyncpg.PostgresError: The database refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


def republish(settings: Settings) -> None:
    """Ask the service's active relay to publish the whole state again. Blocks; runs its own event loop."""
    asyncio.run(_commands(settings).republish())


def restored(settings: Settings) -> None:
    """Make a database that was restored to an earlier point safe to start with. Blocks; runs its own event loop.

    Raises:
        CommandError: The service is running, or NATS does not answer.
    """
    bus = Bus(settings.nats_url, service="template", replicas=settings.nats_replicas)
    run_restoration(_commands(settings).restore(bus, mend), service="template-service")


def _commands(settings: Settings) -> SourceCommands:
    pool, tenant_id = engine_for_repairs(settings), settings.tenant_id
    return SourceCommands(
        pool,
        changes(settings, pool, Progress()),
        steps=WholeState(tenant_id).steps,
        source="template",
        tenant_id=tenant_id,
    )
