"""The access that an authorization request asks for, as far as it exists now, and as pages describe it."""

from collections.abc import Mapping, Sequence

import msgspec

from identity_common.wire.events import ApplicationState
from stead.event_types import OrganizationState
from token_service.authorizations import Consented
from token_service.directory import Directory
from token_service.sign_in.request import AuthorizationRequest
from token_service.sign_in.requested_access import requested_access, without_organizations
from token_service.sign_in.steps import SignedIn
from token_service.tokens.scopes import organizations_scope


class Descriptions(msgspec.Struct, frozen=True):
    """Descriptions of what is requested, written by administrators.

    Attributes:
        resources: Names of resources, by indicator.
        scopes: Descriptions of the resources' scopes, by indicator and name.
        permissions: Descriptions of organization permissions, by name.
    """

    resources: Mapping[str, str]
    scopes: Mapping[tuple[str, str], str | None]
    permissions: Mapping[str, str | None]


class RequestableAccess:
    """Limits what is requested to what exists."""

    def __init__(self, directory: Directory, *, urn_namespace: str) -> None:
        self._directory = directory
        self._urn_namespace = urn_namespace

    def wanted(self, request: AuthorizationRequest, application: ApplicationState) -> Consented:
        """Return the requested access, limited to what exists now for an application."""
        in_memory = self._directory.in_memory
        existing = {}
        for indicator in request.resources:
            resource = in_memory.resource(indicator)
            if resource is not None:
                existing[indicator] = in_memory.existing_scopes(resource, request.scopes)
        return requested_access(
            request.scopes,
            request.resources,
            urn_namespace=self._urn_namespace,
            is_third_party=application.is_third_party,
            existing_scopes=existing,
            existing_permissions=in_memory.existing_permissions(request.scopes),
        )

    def descriptions(self, wanted: Consented) -> Descriptions:
        """Return the descriptions of what is requested."""
        in_memory = self._directory.in_memory
        resources: dict[str, str] = {}
        scopes: dict[tuple[str, str], str | None] = {}
        for indicator, names in wanted.resource_scopes.items():
            resource = in_memory.resource(indicator)
            if resource is not None:
                resources[indicator] = resource.name
                scopes |= {(indicator, name): in_memory.scope_description(resource, name) for name in names}
        permissions = {name: in_memory.permission_description(name) for name in wanted.organization_permissions}
        return Descriptions(resources, scopes, permissions)

    async def pickable(
        self, request: AuthorizationRequest, who: SignedIn, application: ApplicationState
    ) -> Sequence[OrganizationState] | None:
        """Return the organizations that a user may pick for an application, by name; None without any."""
        if (
            not application.is_third_party
            or organizations_scope(self._urn_namespace) not in self.wanted(request, application).scopes
        ):
            return None
        memberships = await self._directory.memberships_of(who.person.user.id, at_least={})
        return [each.organization for each in memberships] or None

    async def concerning(self, wanted: Consented, who: SignedIn) -> Consented:
        """Return the access that applies to a user: a user without organizations is not asked about them."""
        rest = without_organizations(wanted, urn_namespace=self._urn_namespace)
        if rest == wanted or await self._directory.memberships_of(who.person.user.id, at_least={}):
            return wanted
        return rest
