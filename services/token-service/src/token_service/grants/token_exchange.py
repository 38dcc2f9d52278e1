"""Token exchange (RFC 8693): a one-time subject token becomes an access token that speaks for its user.

Checks that do not need the subject come before the subject token is taken, so that a request which fails them leaves it
usable; they are made again if the token was minted after what they have seen. Checks that need the subject spend it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from identity_common.clock import now_ms
from identity_common.fields import Id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN, TOKEN_TYPE_ID_TOKEN
from identity_common.wire.events import ApplicationState
from token_service.claims_function import CustomClaims, Reservation
from token_service.claims_function.context import MOST_ORGANIZATIONS
from token_service.directory import Directory
from token_service.grants.claims_arguments import user_arguments
from token_service.grants.form import (
    AccessTokenType,
    ActorTokenType,
    FormParameters,
    GrantForm,
    requested_scopes,
    unsupported,
)
from token_service.grants.holders import UserHolder, granted_scopes
from token_service.grants.oauth_errors import OAuthError, invalid_request, invalid_target, unauthorized_client
from token_service.grants.sign_in_demands import SignInDemands
from token_service.grants.table import ChecksOutdatedError, TokenRequest, TokenResponse
from token_service.grants.targets import Target, Targets
from token_service.grants.token_to_sign import TokenToSign
from token_service.presented_tokens.actor_tokens import ActingParty, ActorTokens, NotAcceptable
from token_service.presented_tokens.subject_token_taker import SecondFactorRequired, UnspentSubjectToken
from token_service.presented_tokens.subject_tokens import Exchange, SubjectTokens, TakenSubjectToken
from token_service.tokens.issuer import Issuer
from token_service.tokens.keys import AwaitedKey
from token_service.tokens.scopes import format_scope

_NOT_ACCEPTABLE: Final = "the subject token or the actor token is not acceptable"
"""One description for both tokens and every reason (RFC 8693 section 2.2.2), so that it gives nothing away."""


class TokenExchangeForm(GrantForm, frozen=True, kw_only=True, tag=GRANT_TOKEN_EXCHANGE):
    """An application exchanges a one-time subject token for an access token of its user (RFC 8693).

    Attributes:
        grant_type: ``urn:ietf:params:oauth:grant-type:token-exchange``.
        subject_token: As returned by ``POST /api/subject-tokens``.
        subject_token_type: ``urn:ietf:params:oauth:token-type:access_token`` or
            ``urn:<namespace>:token-type:impersonation_token``.
        client_id: Id of the application; must match the Authorization header, if present.
        scope: Space-separated scope tokens; those that the subject does not hold are not granted.
        resource: Indicator of the target API; at most one (RFC 8707).
        organization_id: Id of an organization: the target, or the organization within which a resource is the target.
        actor_token: A userinfo token of the actor, with the scope ``openid``; or an ID token, at most 300 seconds old,
            of a provider whose connector is trusted for actors. Requires ``actor_token_type``. The actor must not be
            the subject.
        actor_token_type: Kind of the actor token, ``urn:ietf:params:oauth:token-type:access_token`` or
            ``urn:ietf:params:oauth:token-type:id_token``; required with it.
        requested_token_type: Kind of the token to issue; always an access token.
    """

    subject_token: Annotated[str, Meta(min_length=1)]
    subject_token_type: Annotated[str, Meta(pattern=r"^urn:[^\u0000]+$")]
    client_id: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    organization_id: Id | UnsetType = UNSET
    actor_token: str | UnsetType = UNSET
    actor_token_type: ActorTokenType | UnsetType = UNSET
    requested_token_type: AccessTokenType | UnsetType = UNSET


class PreparedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """A checked exchange whose subject token has not been taken yet.

    Attributes:
        requested: The requested scope tokens.
        issued_at: See ``TokenToSign``.
        exchange: Facts that taking the subject token needs.
    """

    client: ApplicationState
    subject_token: str
    target: Target
    requested: frozenset[str]
    issued_at: int
    exchange: Exchange

    def __repr__(self) -> str:
        """Hide the token."""
        return "PreparedExchange(…)"


class TokenExchangeGrant:
    """Exchanges subject tokens."""

    grant_type = GRANT_TOKEN_EXCHANGE

    def __init__(
        self,
        directory: Directory,
        subject_tokens: SubjectTokens,
        actor_tokens: ActorTokens,
        targets: Targets,
        custom_claims: CustomClaims,
        issuer: Issuer,
        demands: SignInDemands,
        *,
        urn_namespace: str,
    ) -> None:
        self._directory = directory
        self._subject_tokens = subject_tokens
        self._actor_tokens = actor_tokens
        self._targets = targets
        self._custom_claims = custom_claims
        self._issuer = issuer
        self._demands = demands
        self._subject_token_types = {TOKEN_TYPE_ACCESS_TOKEN, f"urn:{urn_namespace}:token-type:impersonation_token"}

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> PreparedExchange:
        """Check everything but the subject.

        Raises:
            OAuthError: ``unauthorized_client``, ``invalid_request``, ``invalid_target``; ``access_denied`` if the actor
                must sign in first.
        """
        if client.is_third_party or not client.allow_token_exchange:
            raise unauthorized_client("this application may not exchange tokens")
        form = request.parameters.as_form(TokenExchangeForm)
        checked = self._directory.revision_of_checks(request.awaited, with_people=bool(form.actor_token))
        issued_at = now_ms()
        self._require_token_types(form)
        requested = requested_scopes(form.scope)
        target = await self._target(form, request.parameters, requested)
        self._targets.require_scopes_fit(target, requested)
        audited = request.audited
        audited.note_target(target.organization_id, target.indicator)
        self._directory.require_people()
        at_least = {} if request.is_waiting else request.awaited
        actor = await self._actor(form, at_least) if form.actor_token else None
        if actor is not None:
            audited.note_actor(actor.claim.sub)
        self._require_by_policy(actor)
        exchange = Exchange(
            client_id=client.id,
            organization_id=target.organization_id,
            actor=actor,
            awaited=request.awaited,
            checked=checked,
            audited=audited,
        )
        return PreparedExchange(
            client=client,
            subject_token=form.subject_token,
            target=target,
            requested=requested,
            issued_at=issued_at,
            exchange=exchange,
        )

    async def _actor(self, form: TokenExchangeForm, at_least: Mapping[str, int]) -> ActingParty:
        is_foreign = form.actor_token_type == TOKEN_TYPE_ID_TOKEN
        verify = self._actor_tokens.verify_foreign if is_foreign else self._actor_tokens.verify
        try:
            return await verify(str(form.actor_token), at_least=at_least)
        except NotAcceptable as refused:
            raise _not_acceptable(refused) from None

    def _require_by_policy(self, actor: ActingParty | None) -> None:
        """Refuse an exchange without an actor, or whose actor must sign in first, by the policy of impersonations.

        Source:
            RFC 8693 section 2.2.2 (``invalid_request`` also for what is unacceptable based on policy).
        """
        if actor is None and self._directory.in_memory.impersonation_policy.require_actor:
            raise OAuthError("invalid_request", "an actor_token is required", reason="actor_token.required")
        if actor is not None:
            self._demands.require_of_actor(actor)

    def _require_token_types(self, form: TokenExchangeForm) -> None:
        if form.subject_token_type not in self._subject_token_types:
            raise unsupported("subject_token_type")
        if bool(form.actor_token) != bool(form.actor_token_type):
            raise invalid_request("actor_token and actor_token_type belong together")

    async def _target(self, form: TokenExchangeForm, parameters: FormParameters, requested: frozenset[str]) -> Target:
        """Return the named target; without one the userinfo endpoint, if ``openid`` is requested."""
        target = await self._targets.requested(form, parameters)
        if target is None:
            if "openid" not in requested:
                raise invalid_target("name a resource, or request the scope openid")
            return self._targets.userinfo
        if target.resource is not None and self._targets.is_management_api(target.resource):
            raise invalid_target("tokens for the Management API are not issued by exchange")
        return target

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait for both parts of the directory."""
        await self._directory.wait_for(awaited)

    async def issue(self, prepared: PreparedExchange, key: AwaitedKey) -> TokenResponse:
        """Take the subject token, validate the subject, call the custom-claims function, sign.

        A subject token that is newer than the checks is left unspent.

        Raises:
            ChecksOutdatedError: It is; its revision has arrived now.
            OAuthError: ``invalid_request``, also for a subject that the policy excludes; ``access_denied`` if the
                subject is not a member of the organization, or, before anything is spent, if the organization
                requires an actor with a second factor.
            Refused: By the function.
            TemporarilyUnavailable: No worker is free for the function, or what the subject needs does not arrive in
                time, both before anything is spent; or a store does not answer: the token may or may not be spent.
        """
        issued = await self._reserve_and_issue(prepared, key)
        if isinstance(issued, UnspentSubjectToken):
            await self._subject_tokens.wait_for(issued, prepared.exchange)  # without a worker: others need it meanwhile
            raise ChecksOutdatedError({"management": issued.revision})
        return issued

    async def _reserve_and_issue(
        self, prepared: PreparedExchange, key: AwaitedKey
    ) -> TokenResponse | UnspentSubjectToken:
        try:
            async with self._custom_claims.reserved("access-token") as reserved:
                return await self._issue(prepared, reserved, key)
        except NotAcceptable as refused:
            raise _not_acceptable(refused) from None
        except SecondFactorRequired:
            raise self._demands.refused_by_organization(prepared.exchange.actor) from None

    async def _issue(
        self, prepared: PreparedExchange, reserved: Reservation, key: AwaitedKey
    ) -> TokenResponse | UnspentSubjectToken:
        client, target, requested, exchange = prepared.client, prepared.target, prepared.requested, prepared.exchange
        permissions_as_of = self._directory.revisions_of(target.sources)
        most_memberships = MOST_ORGANIZATIONS if reserved.is_needed else 0
        taken = await self._subject_tokens.take(prepared.subject_token, exchange, most_memberships=most_memberships)
        if isinstance(taken, UnspentSubjectToken):
            return taken
        # spent from here on
        record, subject = taken.record, taken.subject
        holder = UserHolder.of(target, subject.person, subject.membership, permissions_as_of, subject.memberships)
        read_again = partial(self._read_again, taken, prepared)
        holder, scopes = await granted_scopes(self._directory, target, requested, holder, read_again)
        if holder.membership is not None:  # the script has judged it as of the take
            self._demands.require_of_actor_in(holder.membership.organization, exchange.actor)
        self._targets.report_unknown_scopes(
            target, requested=requested, granted=scopes, grant_type=self.grant_type, client_id=client.id
        )
        token = TokenToSign(
            subject=record.user_id,
            jti=taken.token_id,
            client=client,
            target=target,
            scopes=scopes,
            holder=holder,
            issued_at=prepared.issued_at,
        )
        arguments = partial(
            user_arguments,
            self._directory,
            token,
            holder.person,
            memberships=holder.memberships,
            grant_type=GRANT_TOKEN_EXCHANGE,
            at_least=taken.at_least,
            subject_token_context=record.context,
            actor=exchange.actor,
        )
        extra_claims = await reserved.claims(arguments)
        content = token.request(extra_claims, grant_type=GRANT_TOKEN_EXCHANGE, actor=exchange.actor)
        access_token = await self._issuer.issue(await key, content)
        scope = format_scope(scopes)
        exchange.audited.note_exchanged(scope=scope, expires_at=token.expires_at)
        return TokenResponse(
            access_token=access_token,
            issued_token_type=TOKEN_TYPE_ACCESS_TOKEN,
            token_type="Bearer",  # noqa: S106 - a type, not a token
            expires_in=target.lifetime_s,
            scope=scope,
        )

    async def _read_again(self, taken: TakenSubjectToken, prepared: PreparedExchange) -> UserHolder:
        permissions_as_of = self._directory.revisions_of(prepared.target.sources)
        subject = await self._subject_tokens.subject_again(taken, prepared.exchange)
        return UserHolder.of(prepared.target, subject.person, subject.membership, permissions_as_of)


def _not_acceptable(refused: NotAcceptable) -> OAuthError:
    return OAuthError("invalid_request", _NOT_ACCEPTABLE, reason=refused.reason)
