"""Creates the first client of the Management API, which can create all others, and the roles of the console's users.

Idempotent except for the secret: each call creates a new one and shows it once, unless it is given credentials that are
still valid. A few earlier secrets stay valid, so that another call does not lock out a running client.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Self

import msgspec

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.paging import Page
from identity_common.rights.roles import SEEDED_ROLES
from identity_common.rights.scopes import SCOPE_ALL
from identity_common.serving import CommandError
from management_service.applications.rules import ApplicationCreation, SecretCreation
from management_service.applications.service import Applications
from management_service.resources.service import Resources
from management_service.resources.store import Scope
from management_service.roles.assignments import Assignments
from management_service.roles.rules import RoleCreation
from management_service.roles.service import Roles

RESOURCE_NAME: Final = "Management API"
APPLICATION_NAME: Final = "Management API client"
NAME_PREFIX: Final = "bootstrap-"
SECRETS_KEPT: Final = 3
ACCESS: Final = RoleCreation(
    name="Management API access", description="Full access to the Management API.", type="MachineToMachine"
)

_WHOLE: Final = Page(size=None)


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of an access token request for the Management API."""

    client_id: str
    client_secret: str
    resource: str
    scope: str

    def __repr__(self) -> str:
        """Hide the secret."""
        return "Credentials(…)"

    @classmethod
    def from_values(cls, values: Mapping[str, str] | None) -> Self | None:
        """Return the credentials in these values; None if they are not complete."""
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError:
            return None


class Bootstrap:
    """Creates the Management API's resource, the seeded roles, and an application that holds the scope ``all``."""

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

    async def run(self, earlier: Credentials | None = None) -> Credentials:
        """Create what is missing, and a new secret unless the earlier credentials are still valid; return valid ones.

        Raises:
            CommandError: Another role has the name.
        """
        scopes = await self._resources.ensure_management_api(RESOURCE_NAME)
        await self._ensure_seeded_roles(scopes)
        role_id = await role_granting(self._roles, ACCESS, scopes[SCOPE_ALL].id)
        application_id = await self._ensure_application(role_id)
        known = earlier.client_secret if earlier else None
        client_secret = await ClientSecrets(self._applications).valid(application_id, known)
        return Credentials(
            client_id=application_id, client_secret=client_secret, resource=self._management_api, scope=SCOPE_ALL
        )

    async def _ensure_seeded_roles(self, scopes: Mapping[str, Scope]) -> None:
        """Create the roles for users of the console; a role that has the name, of whatever kind, is left as it is."""
        for name, description, granted in SEEDED_ROLES:
            if await self._roles.find_by_name(name) is None:
                scope_ids = tuple(scopes[each].id for each in granted)
                await self._roles.create(
                    RoleCreation(name=name, description=description, type="User", scope_ids=scope_ids)
                )

    async def _ensure_application(self, role_id: str) -> str:
        """Return the application of this name that holds the role, or create one: a name alone proves nothing."""
        holders, _ = await self._assignments.list_applications(role_id, _WHOLE)
        for application in holders:
            if application.name == APPLICATION_NAME:
                return application.id
        application = await self._applications.create(
            ApplicationCreation(name=APPLICATION_NAME, type="MachineToMachine")
        )
        await self._assignments.add_roles("application", application.id, [role_id])
        return application.id


async def role_granting(roles: Roles, creation: RoleCreation, scope_id: str) -> str:
    """Return the id of the role of this name and type that grants a scope, creating it if no role has the name.

    A name alone proves nothing: callers of the Management API may choose it, but not the scopes that they lack.

    Raises:
        CommandError: A role has the name, but another type, or without the scope.
    """
    role = await roles.find_by_name(creation.name)
    if role is None:
        role = await roles.create(msgspec.structs.replace(creation, scope_ids=(scope_id,)))
        return role.id
    granted, _ = await roles.list_scopes(role.id, _WHOLE)
    if role.type != creation.type:
        why = f"has the type {role.type}"
    elif all(scope.id != scope_id for scope in granted):
        why = f"does not grant the scope {SCOPE_ALL!r}"
    else:
        return role.id
    raise CommandError(
        f"the role {role.name!r} ({role.id}) {why}: rename or delete it, so that one of this name can be created"
    )


class ClientSecrets:
    """Replaces the known secret of an application if it is not valid."""

    def __init__(self, applications: Applications) -> None:
        self._applications = applications

    async def valid(self, application_id: str, known: str | None) -> str:
        """Return the known secret if it is valid, or else a new one; a few earlier ones stay valid.

        Args:
            application_id: The application.
            known: A value that may be one of its secrets.
        """
        if known is not None and await self._is_secret(application_id, known):
            return known
        return await self._new_secret(application_id)

    async def _is_secret(self, application_id: str, value: str) -> bool:
        """Return whether this is a secret of the application that has not expired."""
        secrets, _ = await self._applications.list_secrets(application_id, _WHOLE)
        sha256, now = hashlib.sha256(value.encode()).hexdigest(), now_ms()
        return any(
            secret.sha256 == sha256 and (secret.expires_at is None or now < secret.expires_at) for secret in secrets
        )

    async def _new_secret(self, application_id: str) -> str:
        secrets, _ = await self._applications.list_secrets(application_id, _WHOLE)
        earlier = [secret.name for secret in secrets if secret.name.startswith(NAME_PREFIX)]
        # Names contain the time of creation, and are sorted.
        for name in earlier[: -(SECRETS_KEPT - 1)]:
            await self._applications.delete_secret(application_id, name)
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        name = f"{NAME_PREFIX}{now}-{new_id()[:4]}"
        _, value = await self._applications.create_secret(application_id, SecretCreation(name=name))
        return value
