"""The target of a token request: a resource (RFC 8707), an organization, or a resource within an organization.

Owns what a token is bound to, and whose roles count for it. Does not own who may ask for it: each grant says that.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from identity_common.oauth import OAuthError, access_denied, invalid_target
from identity_common.revisions import Source
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ResourceState
from stead.event_types import MemberType
from token_service.directory import Directory, InMemoryDirectory, Membership
from token_service.grants.form import FormParameters, TargetForm
from token_service.presented_tokens.liveness import why_no_member
from token_service.tokens.claims import organization_audience
from token_service.tokens.scopes import userinfo_scopes

_log = get_logger(__name__)

USERINFO_TOKEN_TTL_S: Final = 3600
ORGANIZATION_TOKEN_TTL_S: Final = 3600
"""Fixed: there is no setting, and no resource whose lifetime would count."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a token is bound to; for a userinfo token neither a resource nor an organization.

    Attributes:
        audience: Becomes ``aud``.
        lifetime_s: Of the token, in seconds.
        resource: The API.
        organization_id: The organization of which the subject must be a member; its roles there count, and no API role.
        open_scopes: Scopes that need no role: those about oneself, of a userinfo token.
    """

    audience: str
    lifetime_s: int
    resource: ResourceState | None = None
    organization_id: str | None = None
    open_scopes: frozenset[str] = frozenset()

    @property
    def organization_claim(self) -> str | None:
        """The claim ``organization_id``, of a token for a resource; one for the organization says it in ``aud``."""
        return self.organization_id if self.resource is not None else None

    @property
    def sources(self) -> tuple[Source, ...]:
        """Whose changes decide about the scopes; nobody's about those of a userinfo token."""
        if self.organization_id is None:
            return () if self.resource is None else ("management",)
        return ("template",) if self.resource is None else ("management", "template")


class Targets:
    """Finds the target that a form names.

    Attributes:
        userinfo: What a token is bound to that is for the userinfo endpoint.
    """

    def __init__(
        self, directory: Directory, *, userinfo_audience: str, urn_namespace: str, management_api_resource: str
    ) -> None:
        self.userinfo = Target(
            audience=userinfo_audience, lifetime_s=USERINFO_TOKEN_TTL_S, open_scopes=userinfo_scopes(urn_namespace)
        )
        self._directory = directory
        self._urn_namespace = urn_namespace
        self._management_api_resource = management_api_resource

    async def requested(self, form: TargetForm, parameters: FormParameters) -> Target | None:
        """Return the target that the form names, or none when it names none.

        Whether there is such an organization is not looked at here: only who is a member of it may know.

        Raises:
            OAuthError: ``invalid_target``; ``temporarily_unavailable`` while nothing is known of organizations.
        """
        _refuse_unsupported(parameters)
        organization_id = form.organization_id or None
        if organization_id is not None:
            self._directory.require_organizations()
        if form.resource:
            resource = await self._directory.resource(form.resource)
            if organization_id is not None and self.is_management_api(resource):
                raise invalid_target("a token for the Management API belongs to no organization")
            return Target(
                audience=resource.indicator,
                lifetime_s=resource.access_token_ttl_s,
                resource=resource,
                organization_id=organization_id,
            )
        if organization_id is not None:
            return Target(
                audience=organization_audience(self._urn_namespace, organization_id),
                lifetime_s=ORGANIZATION_TOKEN_TTL_S,
                organization_id=organization_id,
            )
        return None

    def is_management_api(self, resource: ResourceState) -> bool:
        """Return whether a token for this resource would open ``/api``."""
        return resource.indicator == self._management_api_resource


def _refuse_unsupported(parameters: FormParameters) -> None:
    """Refuse what would widen or change the target if it were ignored (lesson L2)."""
    if parameters.get("audience") is not None:
        raise invalid_target("audience is not supported; name a resource")
    if len(parameters.resources) > 1:
        raise invalid_target("a token is bound to one resource")


def organization_roles(membership: Membership | None, member_type: MemberType) -> tuple[str, ...]:
    """Return the roles of a member in its organization.

    Args:
        membership: From records that are fresh enough.
        member_type: Who asks: a user by a token exchange, or an application for itself.

    Raises:
        OAuthError: ``access_denied``, with one description also when there is no such organization.
    """
    reason = why_no_member(membership, member_type)
    if membership is None or reason is not None:
        _log.info("organization.refused", reason=reason, member_type=member_type)
        raise no_member(member_type)
    return membership.member.role_ids


def no_member(member_type: MemberType) -> OAuthError:
    """The one refusal of an organization, whether it is there or not."""
    who = "application" if member_type == "application" else "subject"
    return access_denied(f"the {who} is not a member of this organization")


def held_scopes(
    in_memory: InMemoryDirectory, target: Target, role_ids: Iterable[str], requested: frozenset[str]
) -> frozenset[str]:
    """Return which of the requested scopes these roles grant for this target.

    Args:
        in_memory: Knows what the roles contain.
        target: What the token is bound to.
        role_ids: Organization roles of the member where the target is in an organization, else API roles.
        requested: Scope tokens.
    """
    if target.organization_id is not None:
        return in_memory.held_in_organization(target.resource, role_ids, requested)
    if target.resource is not None:
        return in_memory.held_scopes(target.resource, role_ids, requested)
    return requested & target.open_scopes
