"""``client_credentials`` (RFC 6749 section 4.4): a machine-to-machine application gets a token for itself."""

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.clock import now_ms
from identity_common.fields import Id
from identity_common.oauth import GRANT_CLIENT_CREDENTIALS
from identity_common.wire.events import ApplicationState
from token_service.audit import AuditedTokenRequest
from token_service.claims_function import CustomClaims
from token_service.directory import Directory
from token_service.grants.claims_arguments import client_arguments
from token_service.grants.form import GrantForm, requested_scopes
from token_service.grants.holders import ScopeHolder, granted_scopes, organization_roles
from token_service.grants.oauth_errors import unauthorized_client
from token_service.grants.table import TokenRequest, TokenResponse
from token_service.grants.targets import Target, Targets
from token_service.grants.token_to_sign import TokenToSign
from token_service.tokens.issuer import Issuer, new_jti
from token_service.tokens.keys import AwaitedKey
from token_service.tokens.scopes import format_scope


class ClientCredentialsForm(GrantForm, frozen=True, kw_only=True, tag=GRANT_CLIENT_CREDENTIALS):
    """A machine-to-machine application requests a token for itself (RFC 6749 section 4.4).

    Attributes:
        grant_type: ``client_credentials``.
        client_id: Id of the application; must match the Authorization header, if present.
        client_secret: Secret of an application that sends no Authorization header.
        scope: Space-separated scope tokens; those that the subject does not hold are not granted.
        resource: Indicator of the target API; at most one (RFC 8707). Without it and ``organization_id``, the default
            resource is the target (RFC 9068 section 3).
        organization_id: Id of an organization: the target, or the organization within which a resource is the target.
    """

    client_id: str | UnsetType = UNSET
    client_secret: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    organization_id: Id | UnsetType = UNSET


class PreparedClientToken(msgspec.Struct, frozen=True):
    """A token that only needs to be signed.

    Attributes:
        audited: Facts about the request for the audit trail.
    """

    token: TokenToSign
    audited: AuditedTokenRequest


class ClientCredentialsGrant:
    """Issues tokens to machine-to-machine applications.

    Without an organization it reads only the in-memory directory, so it works while Redis is down.
    """

    grant_type = GRANT_CLIENT_CREDENTIALS

    def __init__(self, directory: Directory, targets: Targets, custom_claims: CustomClaims, issuer: Issuer) -> None:
        self._directory = directory
        self._targets = targets
        self._custom_claims = custom_claims
        self._issuer = issuer

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> PreparedClientToken:
        """Decide the target and the scopes: requested ∩ held through the client's API roles, or organization roles.

        Raises:
            OAuthError: ``unauthorized_client``, ``invalid_target``, ``access_denied``.
        """
        if client.type != "MachineToMachine":
            raise unauthorized_client("only machine-to-machine applications may use this grant")
        form = request.parameters.as_form(ClientCredentialsForm)
        target = await self._targets.requested(form, request.parameters) or await self._targets.default()
        request.audited.note_target(target.organization_id, target.indicator)
        requested, issued_at = requested_scopes(form.scope), now_ms()
        look = partial(self._holder, client, target, request.awaited)
        holder, granted = await granted_scopes(self._directory, target, requested, await look(), look)
        if not request.is_waiting:
            self._targets.report_unknown_scopes(
                target, requested=requested, granted=granted, grant_type=self.grant_type, client_id=client.id
            )
        token = TokenToSign(
            subject=client.id,
            jti=new_jti(),
            client=client,
            target=target,
            scopes=granted,
            holder=holder,
            issued_at=issued_at,
        )
        return PreparedClientToken(token, request.audited)

    async def _holder(self, client: ApplicationState, target: Target, awaited: Mapping[str, int]) -> ScopeHolder:
        """Return the client, with its API roles or its roles in the organization of the target."""
        in_memory, in_redis = self._directory.in_memory, self._directory.in_redis
        if target.organization_id is None:
            as_of = self._directory.revisions_of(target.sources, in_memory.freshness)
            return ScopeHolder(role_ids=in_memory.application_roles(client.id), permissions_as_of=as_of)
        as_of = self._directory.revisions_of(target.sources, in_memory.freshness, in_redis.freshness)
        # Non-members are refused here, so the awaited revisions must have arrived first.
        await self._directory.wait_for(awaited)
        membership = await self._directory.membership(target.organization_id, client.id, at_least=awaited)
        role_ids = organization_roles(membership, "application")
        return ScopeHolder(role_ids=role_ids, permissions_as_of=as_of, membership=membership)

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait for the in-memory directory; ``prepare`` has waited for the one in Redis if it needs it."""
        await self._directory.wait_for(awaited, self._directory.in_memory.freshness)

    async def issue(self, prepared: PreparedClientToken, key: AwaitedKey) -> TokenResponse:
        """Call the custom-claims function and sign; the client is its own subject (RFC 9068 section 2.2)."""
        token = prepared.token
        async with self._custom_claims.reserved("client-credentials") as reserved:
            extra_claims = await reserved.claims(partial(client_arguments, self._directory.in_memory, token))
        scope = format_scope(token.scopes)
        prepared.audited.note_token(token.jti, scope=scope)
        return TokenResponse(
            access_token=await self._issuer.issue(await key, token.request(extra_claims)),
            token_type="Bearer",  # noqa: S106 - a type, not a token
            expires_in=token.target.lifetime_s,
            scope=scope,
        )
