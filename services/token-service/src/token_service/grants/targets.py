"""The target of a token request: a resource (RFC 8707), an organization, or a resource within an organization.

Owns what a token is bound to. Does not own who may request it (each grant does), nor who holds scopes (``holders``).
"""

from typing import Final

import msgspec
from prometheus_client import Counter

from identity_common.revisions import Source
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState, ResourceState
from token_service.directory import Directory
from token_service.grants.form import FormParameters, TargetForm
from token_service.grants.oauth_errors import invalid_target
from token_service.tokens.claims import organization_audience
from token_service.tokens.lengths import require_scopes_fit
from token_service.tokens.scopes import userinfo_scopes

_log = get_logger(__name__)

USERINFO_TOKEN_TTL_S: Final = 3600
ORGANIZATION_TOKEN_TTL_S: Final = 3600
"""Fixed, because no resource sets a lifetime."""

MANAGEMENT_API_CLOSED: Final = "the application may not request the Management API for its users (allowManagementApi)"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a token is bound to; a userinfo token has neither a resource nor an organization.

    Attributes:
        audience: Becomes ``aud``.
        lifetime_s: The token's lifetime in seconds.
        resource: The API.
        organization_id: The subject must be a member of it; its roles there grant the scopes, instead of API roles.
        open_scopes: Scopes that need no role: those of a userinfo token.
    """

    audience: str
    lifetime_s: int
    resource: ResourceState | None = None
    organization_id: str | None = None
    open_scopes: frozenset[str] = frozenset()

    @property
    def indicator(self) -> str | None:
        """The resource's indicator, if there is a resource."""
        return None if self.resource is None else self.resource.indicator

    @property
    def organization_claim(self) -> str | None:
        """The claim ``organization_id`` of a token for a resource; an organization's own token has it in ``aud``."""
        return self.organization_id if self.resource is not None else None

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources whose changes affect the scopes; none for a userinfo token."""
        if self.organization_id is None:
            return () if self.resource is None else ("management",)
        return ("template",) if self.resource is None else ("management", "template")


class Targets:
    """Resolves the target that a form names.

    Attributes:
        userinfo: The userinfo endpoint.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        userinfo_audience: str,
        urn_namespace: str,
        management_api_resource: str,
        unknown_scopes: Counter,
    ) -> None:
        self.userinfo = Target(
            audience=userinfo_audience, lifetime_s=USERINFO_TOKEN_TTL_S, open_scopes=userinfo_scopes(urn_namespace)
        )
        self._directory = directory
        self._urn_namespace = urn_namespace
        self._management_api_resource = management_api_resource
        self._unknown_scopes = unknown_scopes

    async def requested(self, form: TargetForm, parameters: FormParameters) -> Target | None:
        """Return the target that the form names, if any.

        An organization that does not exist is not refused here: only members may learn whether it exists.

        Raises:
            OAuthError: ``invalid_target``.
            TemporarilyUnavailable: Organizations are being loaded.
        """
        _refuse_unsupported(parameters)
        organization_id = form.organization_id or None
        if organization_id is not None:
            self._directory.require_organizations()
        if form.resource:
            resource = await self._directory.find_resource(form.resource)
            if resource is None:
                raise invalid_target("the resource is unknown")
            if organization_id is not None and self.is_management_api(resource):
                raise invalid_target("a token for the Management API cannot belong to an organization")
            return _resource_target(resource, organization_id)
        if organization_id is not None:
            return Target(
                audience=organization_audience(self._urn_namespace, organization_id),
                lifetime_s=ORGANIZATION_TOKEN_TTL_S,
                organization_id=organization_id,
            )
        return None

    async def default(self) -> Target:
        """Return the target of a client's request for itself that names none: the default resource.

        Raises:
            OAuthError: ``invalid_target`` if no resource is the default.

        Source:
            RFC 9068 section 3 (without ``resource``, a default resource indicator becomes ``aud``).
        """
        resource = await self._directory.default_resource()
        if resource is None:
            raise invalid_target("name a resource or an organization: no resource is the default")
        return _resource_target(resource)

    def report_unknown_scopes(
        self, target: Target, *, requested: frozenset[str], granted: frozenset[str], grant_type: str, client_id: str
    ) -> None:
        """Log and count a request that names only unknown scopes: the client is misconfigured, and gets no scopes.

        A known scope that the subject does not hold is not an error.
        """
        if granted or not requested or self._existing(target, requested):
            return
        self._unknown_scopes.labels(grant_type).inc()
        _log.warning(
            "scopes.unknown",
            grant_type=grant_type,
            client_id=client_id,
            resource_id=None if target.resource is None else target.resource.id,
            organization_id=target.organization_id,
            count=len(requested),
        )

    def require_scopes_fit(self, target: Target, requested: frozenset[str]) -> None:
        """Refuse a request for more scopes than a token holds, before its subject, who may hold them all, is known.

        Raises:
            OAuthError: ``invalid_scope``.
        """
        require_scopes_fit(self._existing(target, requested), audience=target.audience)

    def _existing(self, target: Target, among: frozenset[str]) -> frozenset[str]:
        if target.resource is not None:
            return self._directory.in_memory.existing_scopes(target.resource, among)
        if target.organization_id is not None:
            return self._directory.in_memory.existing_permissions(among)
        return among & target.open_scopes

    async def require_open_to_users_of(self, client: ApplicationState, resource: ResourceState) -> None:
        """Refuse the Management API as the target of a client's request for a user, unless the client is allowed to.

        Raises:
            OAuthError: ``invalid_target``.
        """
        if self.is_management_api(resource) and not await self._directory.may_manage_for_users(client):
            raise invalid_target(MANAGEMENT_API_CLOSED)

    def is_management_api(self, resource: ResourceState) -> bool:
        """Return whether a token for this resource gives access to ``/api``."""
        return resource.indicator == self._management_api_resource


def _resource_target(resource: ResourceState, organization_id: str | None = None) -> Target:
    return Target(
        audience=resource.indicator,
        lifetime_s=resource.access_token_ttl_s,
        resource=resource,
        organization_id=organization_id,
    )


def _refuse_unsupported(parameters: FormParameters) -> None:
    """Refuse unsupported parameters that cannot be ignored without widening or changing the target."""
    if parameters.get("audience") is not None:
        raise invalid_target("audience is not supported; name a resource")
    if len(parameters.resources) > 1:
        raise invalid_target("a token is bound to one resource")
