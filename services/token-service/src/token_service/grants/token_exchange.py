"""Token exchange (RFC 8693): a one-time subject token becomes an access token that speaks for its user.

Checks that do not need the subject come before the subject token is taken, so that a request which fails them leaves it
usable. Checks that need the subject spend it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from identity_common.clock import now_ms
from identity_common.oauth import (
    GRANT_TOKEN_EXCHANGE,
    TOKEN_TYPE_ACCESS_TOKEN,
    invalid_request,
    invalid_target,
    unauthorized_client,
)
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from identity_common.wire.subject_tokens import SubjectTokenRecord
from stead.impersonations import actors_of, parties_of
from token_service.audit import AuditedTokenRequest
from token_service.claims_function import CustomClaims, Reservation
from token_service.directory import Directory, Membership, Person, Snapshot
from token_service.directory.freshness import highest
from token_service.grants.claims_arguments import TokenToSign, user_arguments
from token_service.grants.form import (
    AccessTokenType,
    FormParameters,
    GrantForm,
    unsupported,
)
from token_service.grants.table import TokenRequest, TokenResponse
from token_service.grants.targets import Target, Targets, held_scopes, organization_roles, tokens_valid_after
from token_service.presented_tokens.actor_tokens import ActingParty, ActorTokens, not_acceptable
from token_service.presented_tokens.liveness import why_dead
from token_service.presented_tokens.subject_tokens import SubjectTokens
from token_service.tokens.issuer import Issuer
from token_service.tokens.keys import AwaitedKey
from token_service.tokens.scopes import format_scope, grantable_scopes, may_be_newly_held, parse_scope

_log = get_logger(__name__)


class TokenExchangeForm(GrantForm, frozen=True, kw_only=True, tag=GRANT_TOKEN_EXCHANGE):
    """An application exchanges a one-time subject token for an access token of its user (RFC 8693).

    Attributes:
        grant_type: ``urn:ietf:params:oauth:grant-type:token-exchange``.
        subject_token: As returned by ``POST /api/subject-tokens``.
        subject_token_type: ``urn:ietf:params:oauth:token-type:access_token`` or
            ``urn:<namespace>:token-type:impersonation_token``.
        client_id: Id of the application; must match the Authorization header, if there is one.
        scope: Space-separated scope tokens; those that the subject does not hold are not granted.
        resource: Indicator of the target API; at most one (RFC 8707).
        organization_id: Id of an organization: the target, or the organization within which a resource is the target.
        actor_token: A userinfo token of the actor, with the scope ``openid``; requires ``actor_token_type``.
        actor_token_type: Kind of the actor token; required with it.
        requested_token_type: Kind of the token to issue; always an access token.
    """

    subject_token: Annotated[str, Meta(min_length=1)]
    subject_token_type: Annotated[str, Meta(pattern=r"^urn:[^\u0000]+$")]
    client_id: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    organization_id: str | UnsetType = UNSET
    actor_token: str | UnsetType = UNSET
    actor_token_type: AccessTokenType | UnsetType = UNSET
    requested_token_type: AccessTokenType | UnsetType = UNSET


class PreparedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange whose subject is still to be judged.

    Attributes:
        requested: The requested scope tokens.
        actor: Who acts, if an actor token was presented.
        awaited: Revisions that the subject's record must include.
        audited: What the audit trail will say of the request.
    """

    client: ApplicationState
    subject_token: str
    target: Target
    requested: frozenset[str]
    actor: ActingParty | None
    awaited: Mapping[str, int]
    audited: AuditedTokenRequest


class LiveSubject(msgspec.Struct, frozen=True):
    """A subject that passed every check.

    Attributes:
        role_ids: API roles, or the user's roles in the organization of the target.
        membership: In that organization, if the target is in one.
    """

    person: Person
    role_ids: tuple[str, ...]
    membership: Membership | None = None


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
        *,
        urn_namespace: str,
    ) -> None:
        self._directory = directory
        self._subject_tokens = subject_tokens
        self._actor_tokens = actor_tokens
        self._targets = targets
        self._custom_claims = custom_claims
        self._issuer = issuer
        self._subject_token_types = {TOKEN_TYPE_ACCESS_TOKEN, f"urn:{urn_namespace}:token-type:impersonation_token"}

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> PreparedExchange:
        """Check everything but the subject.

        Raises:
            OAuthError: ``unauthorized_client``, ``invalid_request``, ``invalid_target``; ``temporarily_unavailable``.
        """
        if client.is_third_party or not client.allow_token_exchange:
            raise unauthorized_client("this application may not exchange tokens")
        form = request.parameters.as_form(TokenExchangeForm)
        self._require_token_types(form)
        requested = parse_scope(form.scope or None)
        target = await self._target(form, request.parameters, requested)
        audited = request.audited
        audited.target(target.organization_id, target.indicator)
        self._directory.require_people()
        at_least = {} if request.is_waiting else request.awaited
        actor = await self._actor_tokens.verify(form.actor_token, at_least=at_least) if form.actor_token else None
        audited.actor_id = None if actor is None else actor.claim.sub
        return PreparedExchange(
            client=client,
            subject_token=form.subject_token,
            target=target,
            requested=requested,
            actor=actor,
            awaited=request.awaited,
            audited=audited,
        )

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
        """Take the subject token, judge the subject, call the custom-claims function, sign.

        Raises:
            OAuthError: ``invalid_request``; ``access_denied`` if the subject is not a member of the organization, or if
                the function denied access; ``temporarily_unavailable`` when no worker is free for the function, or when
                a store does not answer: the token may or may not be spent then.
        """
        async with self._custom_claims.reserved("access-token") as reserved:
            return await self._issue(prepared, reserved, key)

    async def _issue(self, prepared: PreparedExchange, reserved: Reservation, key: AwaitedKey) -> TokenResponse:
        target, requested = prepared.target, prepared.requested
        audited = prepared.audited
        permissions_as_of = self._directory.revisions_of(target.sources)
        taken = await self._subject_tokens.take(  # spent from here on
            prepared.subject_token,
            target.organization_id,
            parties=_parties(prepared),
            within=prepared.actor.within if prepared.actor else None,
            request=audited,
        )
        if taken is None:
            raise not_acceptable()
        record = taken.record
        subject = await self._live_subject(record, prepared, taken.snapshot)
        held = held_scopes(self._directory.in_memory, target, subject.role_ids, requested)
        if target.sources and may_be_newly_held(requested=requested, held=held):
            await self._directory.catch_up(*target.sources)
            permissions_as_of = self._directory.revisions_of(target.sources)
            subject = await self._live_subject(record, prepared)
            held = held_scopes(self._directory.in_memory, target, subject.role_ids, requested)
        scopes = grantable_scopes(requested=requested, held=held)
        self._targets.report_unknown_scopes(
            target, requested=requested, granted=scopes, grant_type=self.grant_type, client_id=prepared.client.id
        )
        token = TokenToSign(
            jti=taken.token_id,
            client=prepared.client,
            target=target,
            scopes=scopes,
            organization=subject.membership,
        )
        arguments = partial(
            user_arguments,
            self._directory,
            token,
            subject.person,
            grant_type=GRANT_TOKEN_EXCHANGE,
            at_least=_at_least(record, prepared),
            subject_token_context=record.context,
        )
        extra_claims = await reserved.claims(arguments)
        access_token = await self._issuer.issue(
            await key,
            subject=record.user_id,
            audience=target.audience,
            client_id=prepared.client.id,
            scopes=token.scopes,
            lifetime_s=target.lifetime_s,
            organization_id=target.organization_claim,
            grant_type=GRANT_TOKEN_EXCHANGE,
            actor=prepared.actor.claim if prepared.actor else None,
            permissions_as_of=permissions_as_of,
            tokens_valid_after=tokens_valid_after(subject.person, subject.membership),
            jti=token.jti,
            extra_claims=extra_claims,
        )
        audited.scope = format_scope(token.scopes)
        audited.expires_at = now_ms() + target.lifetime_s * 1000
        _log.info(
            "subject-token.exchanged",
            subject_token_id=record.id,
            user_id=record.user_id,
            actor_id=prepared.actor.claim.sub if prepared.actor else None,
            client_id=prepared.client.id,
        )
        return TokenResponse(
            access_token=access_token,
            issued_token_type=TOKEN_TYPE_ACCESS_TOKEN,
            token_type="Bearer",  # noqa: S106 - a type, not a token
            expires_in=target.lifetime_s,
            scope=audited.scope,
        )

    async def _live_subject(
        self, record: SubjectTokenRecord, prepared: PreparedExchange, snapshot: Snapshot = ()
    ) -> LiveSubject:
        """Return the subject, judged by a directory that includes the minting of the token.

        Args:
            record: Of the subject token.
            prepared: The request.
            snapshot: The subject's records, if they were read already.
        """
        organization_id = prepared.target.organization_id
        at_least = _at_least(record, prepared)
        await self._directory.wait_for(at_least, self._directory.in_memory.freshness)
        subject = await self._directory.subject(record.user_id, organization_id, at_least=at_least, snapshot=snapshot)
        reason, code = why_dead(subject.person, issued_at_ms=record.issued_at), _code(subject.person)
        if self._directory.in_memory.application(record.issued_to) is None:
            reason, code = "the application that requested it was deleted", "application.deleted"
        if subject.person is None or reason is not None:
            prepared.audited.reason = code
            _log.info("subject-token.refused", reason=reason, subject_token_id=record.id, user_id=record.user_id)
            raise not_acceptable()
        if organization_id is None:
            return LiveSubject(subject.person, subject.person.role_ids)
        return LiveSubject(subject.person, organization_roles(subject.membership, "user"), subject.membership)


def _at_least(record: SubjectTokenRecord, prepared: PreparedExchange) -> Mapping[str, int]:
    """Return the revisions that the records of the subject must include."""
    return highest({"management": record.revision}, prepared.awaited)


def _code(person: Person | None) -> str:
    """Return the audit trail's code for a subject that is not live."""
    if person is None:
        return "user.deleted"
    return "user.suspended" if person.user.is_suspended else "subject_token.outdated"


def _parties(prepared: PreparedExchange) -> tuple[str, ...]:
    """Return whom the impersonation concerns besides its subject, who is not known before the take."""
    actor = prepared.actor
    return parties_of(
        user_id=None,
        actor_ids=actors_of(msgspec.to_builtins(actor.claim)) or () if actor else (),
        ancestors=len(actor.within.ids) if actor and actor.within else 0,
        client_id=prepared.client.id,
        organization_id=prepared.target.organization_id,
    )
