"""The first client of the Management API: who may create all the others.

Idempotent but for the secret: each call makes a new one and shows it once; of the former ones a few stay valid, so
that a second call cuts nobody off at once.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from identity_common.access.management_api import SCOPE_ALL, SCOPE_SUBJECT_TOKENS
from identity_common.http.pagination import Page
from identity_common.identifiers import new_id
from identity_common.serving import CommandError
from management_service.applications.rules import ApplicationCreation, SecretCreation
from management_service.applications.service import Applications
from management_service.resources.service import Resources
from management_service.roles.assignments import Assignments
from management_service.roles.rules import RoleCreation
from management_service.roles.service import Roles

RESOURCE_NAME: Final = "Management API"
ROLE_NAME: Final = "Management API access"
APPLICATION_NAME: Final = "Management API client"
NAME_PREFIX: Final = "bootstrap-"
SECRETS_KEPT: Final = 3

_WHOLE: Final = Page(size=None)


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What the first client needs to get an access token for the Management API."""

    client_id: str
    client_secret: str
    resource: str
    scope: str


class Bootstrap:
    """Makes the Management API's resource, a role that holds it, and an application that has the role."""

    def __init__(
        self,
        *,
        resources: Resources,
        roles: Roles,
        applications: Applications,
        assignments: Assignments,
        management_api: str,
    ) -> None:
        self._resources = resources
        self._roles = roles
        self._applications = applications
        self._assignments = assignments
        self._management_api = management_api

    async def run(self) -> Credentials:
        """Make what is missing, and a new secret.

        Raises:
            CommandError: Something else has the name of the role.
        """
        scopes = await self._resources.ensure_management_api(RESOURCE_NAME, (SCOPE_ALL, SCOPE_SUBJECT_TOKENS))
        role_id = await self._ensure_role(scopes[SCOPE_ALL].id)
        application_id = await self._ensure_application(role_id)
        return Credentials(
            client_id=application_id,
            client_secret=await self._new_secret(application_id),
            resource=self._management_api,
            scope=SCOPE_ALL,
        )

    async def _ensure_role(self, scope_id: str) -> str:
        role = await self._roles.find_by_name(ROLE_NAME)
        if role is None:
            wish = RoleCreation(
                name=ROLE_NAME, description="Everything in the Management API.", type="MachineToMachine"
            )
            role, _ = await self._roles.create(wish)
        if role.type != "MachineToMachine":
            raise CommandError(f"the role {ROLE_NAME!r} exists and is of the type {role.type}: delete it first")
        await self._roles.add_scopes(role.id, [scope_id])
        return role.id

    async def _ensure_application(self, role_id: str) -> str:
        """Return the application that holds the role and has the name; its name alone gives nobody the role."""
        holders, _ = await self._assignments.list_applications(role_id, _WHOLE)
        for application in holders:
            if application.name == APPLICATION_NAME:
                return application.id
        application, _ = await self._applications.create(
            ApplicationCreation(name=APPLICATION_NAME, type="MachineToMachine")
        )
        await self._assignments.add_roles("application", application.id, [role_id])
        return application.id

    async def _new_secret(self, application_id: str) -> str:
        secrets, _ = await self._applications.list_secrets(application_id, _WHOLE)
        former = [secret.name for secret in secrets if secret.name.startswith(NAME_PREFIX)]  # by name: by time
        for name in former[: -(SECRETS_KEPT - 1)]:
            await self._applications.delete_secret(application_id, name)
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        name = f"{NAME_PREFIX}{now}-{new_id()[:4]}"
        _, value, _ = await self._applications.create_secret(application_id, SecretCreation(name=name))
        return value
