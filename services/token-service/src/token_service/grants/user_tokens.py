"""The tokens of an authorization, issued for a code or a refresh token.

Owns the target, the scopes, and whether an ID token comes with the access token. The scopes are those that the user has
consented to *and* holds at this moment.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.audit import AuditedTokenRequest
from token_service.authorizations import Authorization, Consented, Consents
from token_service.claims_function import CustomClaims, Reservation
from token_service.directory import Directory, Person
from token_service.grants.claims_arguments import user_arguments
from token_service.grants.form import TargetForm
from token_service.grants.holders import UserHolder, granted_scopes, not_a_member
from token_service.grants.oauth_errors import (
    OAuthError,
    insufficient_scope,
    invalid_grant,
    invalid_scope,
    invalid_target,
)
from token_service.grants.sign_in_demands import SignInDemands
from token_service.grants.table import TokenRequest, TokenResponse
from token_service.grants.targets import Target, Targets
from token_service.grants.token_to_sign import TokenToSign
from token_service.presented_tokens.liveness import why_user_not_live
from token_service.tokens.claims import SignInClaims
from token_service.tokens.identity import PersonClaims
from token_service.tokens.issuer import Issuer, new_jti
from token_service.tokens.scopes import format_scope, organizations_scope
from token_service.tokens.signing import SigningKey
from token_service.tokens.user_claims import UserClaims

_log = get_logger(__name__)


class RequestedToken(msgspec.Struct, frozen=True, kw_only=True):
    """The access token that a client requests.

    Attributes:
        target: What the token will be bound to; the userinfo endpoint by default.
        scopes: The requested scope tokens; None for all that were consented to.
        awaited: Revisions that the user's records must include.
        checked: Management's revision that the checks of client and target include.
        audited: Facts about the request for the audit trail.
    """

    target: Target
    scopes: frozenset[str] | None
    awaited: Mapping[str, int]
    checked: int
    audited: AuditedTokenRequest


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the tokens to sign.

    Attributes:
        person: The user.
        signed_in: How the user signed in.
        token: The access token.
        offline_access: Whether a userinfo token has ``offline_access`` beside it: both requested and consented to.
        awaited: Revisions that the user's records must include.
        claims: The ID token's claims; None if no ID token is issued.
        extra_claims: Claims that the custom-claims function adds to the access token.
    """

    authorization: Authorization
    person: Person
    signed_in: SignInClaims
    token: TokenToSign
    offline_access: bool
    awaited: Mapping[str, int]
    claims: PersonClaims | None
    extra_claims: Mapping[str, Any] = {}


class UserTokens:
    """Decides which tokens an authorization yields, and signs them."""

    def __init__(
        self,
        directory: Directory,
        targets: Targets,
        user_claims: UserClaims,
        consents: Consents,
        custom_claims: CustomClaims,
        issuer: Issuer,
        demands: SignInDemands,
        *,
        urn_namespace: str,
        clock: Clock = now_ms,
    ) -> None:
        self._directory = directory
        self._targets = targets
        self._user_claims = user_claims
        self._consents = consents
        self._custom_claims = custom_claims
        self._issuer = issuer
        self._demands = demands
        self._urn_namespace = urn_namespace
        self._organizations_scope = organizations_scope(urn_namespace)
        self._clock = clock

    async def requested_token(
        self, form: TargetForm, request: TokenRequest, client: ApplicationState, *, scopes: frozenset[str] | None
    ) -> RequestedToken:
        """Return which access token is requested.

        Args:
            form: The grant's form.
            request: The whole request.
            client: The authenticated client.
            scopes: See ``RequestedToken``.

        Raises:
            OAuthError: ``invalid_target``.
        """
        checked = self._directory.revision_of_checks(request.awaited)
        target = await self._targets.requested(form, request.parameters) or self._targets.userinfo
        request.audited.note_target(target.organization_id, target.indicator)
        if target.resource is not None:
            await self._targets.require_open_to_users_of(client, target.resource)
        return RequestedToken(
            target=target, scopes=scopes, awaited=request.awaited, checked=checked, audited=request.audited
        )

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait for both parts of the directory."""
        await self._directory.wait_for(awaited)

    async def wait_for_records(self, awaited: Mapping[str, int]) -> None:
        """Wait until the part in memory, and the records that are in Redis now, include the awaited revisions."""
        await self._directory.wait_for_records(awaited)

    async def decide(
        self, authorization: Authorization, client: ApplicationState, requested_token: RequestedToken
    ) -> Decision:
        """Decide which tokens an authorization yields now; nothing is written.

        Raises:
            OAuthError: ``invalid_grant`` when the user or the sign-in is no longer valid; ``invalid_scope``,
                ``invalid_target``, ``insufficient_scope``, ``access_denied``.
        """
        audited = requested_token.audited
        audited.note_user(authorization.user_id)
        _require_user_consent(authorization, client)
        consented, target = authorization.consented, requested_token.target
        requested = self._requested(consented, requested_token)
        picked = None
        if self._user_claims.opens_organizations(consented.scopes):
            picked = await self._consents.picked(authorization.user_id, client)
        self._require_consented(consented, picked, target)
        wanted = requested & _consented_for(consented, target)
        issued_at = self._clock()
        look = partial(self._live_user, authorization, requested_token)
        holder, scopes = await granted_scopes(self._directory, target, wanted, await look(), look)
        organization = holder.membership.organization if holder.membership else None
        self._demands.require_of_user(authorization.authentication, client, organization)
        token = TokenToSign(
            subject=holder.person.user.id,
            jti=new_jti(authorization.id),
            client=client,
            target=target,
            scopes=scopes,
            holder=holder,
            issued_at=issued_at,
        )
        audited.note_token(token.jti, scope=format_scope(scopes))
        return Decision(
            authorization=authorization,
            person=holder.person,
            signed_in=SignInClaims.of(authorization.authentication, urn_namespace=self._urn_namespace),
            token=token,
            offline_access=target is self._targets.userinfo and "offline_access" in requested & consented.scopes,
            awaited=requested_token.awaited,
            claims=await self._claims(holder.person, requested & consented.scopes, picked, requested_token.awaited),
        )

    def reserved(self) -> Reservation:
        """Return a reservation of a custom-claims worker; enter it before anything is spent."""
        return self._custom_claims.reserved("access-token")

    async def customized(self, decision: Decision, reserved: Reservation, *, grant_type: str) -> Decision:
        """Return the decision with the claims that the custom-claims function adds."""
        extra_claims = await reserved.claims(
            partial(
                user_arguments,
                self._directory,
                decision.token,
                decision.person,
                grant_type=grant_type,
                at_least=decision.awaited,
                signed_in=decision.signed_in,
                factors=decision.authorization.authentication.factors,
            )
        )
        return msgspec.structs.replace(decision, extra_claims=extra_claims) if extra_claims else decision

    async def sign(
        self, decision: Decision, key: SigningKey, *, refresh_token: str | None, nonce: str | None = None
    ) -> TokenResponse:
        """Sign the tokens of a decision.

        Args:
            decision: From ``decide``.
            key: The signing key.
            refresh_token: The refresh token to return with them, if any.
            nonce: The authorization request's nonce, for the ID token.
        """
        token = decision.token
        access_token = await self._issuer.issue(key, token.request(decision.extra_claims, signed_in=decision.signed_in))
        id_token = None
        if decision.claims is not None:
            id_token = await self._issuer.issue_id_token(
                key,
                decision.claims,
                client_id=token.client.id,
                issued_at=token.issued_at,
                lifetime_s=token.client.id_token_ttl_s,
                signed_in=decision.signed_in,
                nonce=nonce,
                session_id=decision.authorization.session_id,
                access_token=access_token,
            )
        granted = token.scopes
        if refresh_token is not None and decision.offline_access:
            granted |= {"offline_access"}  # no token carries it, but clients compare this scope with the requested one
        return TokenResponse(
            access_token=access_token,
            token_type="Bearer",  # noqa: S106 - a type, not a token
            expires_in=token.target.lifetime_s,
            scope=format_scope(granted),
            refresh_token=refresh_token,
            id_token=id_token,
        )

    def _requested(self, consented: Consented, requested_token: RequestedToken) -> frozenset[str]:
        """Return the requested scopes; refuse one that was not consented to.

        Source:
            RFC 6749 section 6 (no scope that was not originally granted; omitted means all of them).
        """
        everything = consented.everything()
        if requested_token.scopes is None:
            return everything
        if not requested_token.scopes <= everything:
            raise invalid_scope("a requested scope was not consented to")
        return requested_token.scopes

    def _require_consented(self, consented: Consented, picked: frozenset[str] | None, target: Target) -> None:
        if target.resource is not None and target.resource.indicator not in consented.resource_scopes:
            raise invalid_target("the resource was not part of the authorization request")
        if target.organization_id is None:
            return
        if self._organizations_scope not in consented.scopes:
            raise insufficient_scope(f"this needs the scope {self._organizations_scope}")
        if picked is not None and target.organization_id not in picked:
            raise not_a_member("user")

    async def _live_user(self, authorization: Authorization, requested_token: RequestedToken) -> UserHolder:
        """Return the live user with the roles that grant the target's scopes."""
        target = requested_token.target
        over = self._directory.in_memory.connectors.why_over(
            authorization.authentication.provider, signed_in_at=authorization.auth_time, now=self._clock()
        )
        if over is not None:
            _log.info("authorization.refused", reason=over, authorization_id=authorization.id)
            raise not_acceptable()
        permissions_as_of = self._directory.revisions_of(target.sources)
        subject = await self._directory.subject(
            authorization.user_id, target.organization_id, at_least=requested_token.awaited
        )
        person = subject.person
        reason = why_user_not_live(person, issued_at_ms=authorization.authentication.valid_since)
        if person is None or reason is not None:
            _log.info("authorization.refused", reason=reason, authorization_id=authorization.id)
            raise not_acceptable()
        return UserHolder.of(target, person, subject.membership, permissions_as_of)

    async def _claims(
        self, person: Person, scopes: frozenset[str], picked: frozenset[str] | None, awaited: Mapping[str, int]
    ) -> PersonClaims | None:
        if "openid" not in scopes:
            return None
        return await self._user_claims.claims(person, scopes, picked=picked, at_least=awaited)


def _require_user_consent(authorization: Authorization, client: ApplicationState) -> None:
    """Refuse an authorization that a third-party application got while it was first-party, without the user's consent.

    Raises:
        OAuthError: ``invalid_grant``.
    """
    if not client.is_third_party or not authorization.first_party:
        return
    _log.info("authorization.refused", reason="begun as a first party", authorization_id=authorization.id)
    raise not_acceptable()


def _consented_for(consented: Consented, target: Target) -> frozenset[str]:
    """Return the scopes consented to for the target; elsewhere, the same name is a different scope."""
    if target.resource is not None:
        return consented.resource_scopes[target.resource.indicator]
    return consented.scopes if target.organization_id is None else consented.organization_permissions


def not_acceptable() -> OAuthError:
    """Return the refusal of a code or refresh token, the same for every reason (RFC 6749 section 5.2)."""
    return invalid_grant("the code or refresh token is not acceptable")
