"""The grants of the token endpoint."""

from typing import cast

from identity_common.sealing import SealingKeys
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.actor_tokens import ActorTokenRequests
from token_service.grants import Grant, Grants
from token_service.grants.authorization_code import AuthorizationCodeGrant
from token_service.grants.client_credentials import ClientCredentialsGrant
from token_service.grants.refresh_token import RefreshTokenGrant
from token_service.grants.request_limit import WINDOW_S, RequestLimit
from token_service.grants.sign_in_demands import SignInDemands
from token_service.grants.targets import Targets
from token_service.grants.token_exchange import TokenExchangeGrant
from token_service.grants.user_tokens import UserTokens
from token_service.parts.shared import Shared
from token_service.presented_tokens.actor_tokens import ActorTokens
from token_service.presented_tokens.foreign_actors import ForeignActors
from token_service.presented_tokens.subject_token_taker import SubjectTokenTaker
from token_service.presented_tokens.subject_tokens import SubjectTokens
from token_service.settings import Settings
from token_service.tokens.issuer import Issuer


def token_grants(settings: Settings, shared: Shared) -> Grants:
    """Return the table of grants."""
    directory, issuer = shared.directory, Issuer(settings.issuer)
    custom_claims = shared.claims_function.custom_claims
    targets = Targets(
        directory,
        userinfo_audience=shared.live_tokens.userinfo_audience,
        urn_namespace=settings.urn_namespace,
        management_api_resource=settings.management_api_resource,
        unknown_scopes=shared.metrics.unknown_scopes,
    )
    demands = SignInDemands(directory.in_memory, urn_namespace=settings.urn_namespace)
    actor_tokens = ActorTokens(
        directory,
        shared.live_tokens,
        ForeignActors(
            shared.connections.bus,
            ActorTokenRequests(SealingKeys(settings.environment_variable_keys), tenant_id=settings.tenant_id),
        ),
        userinfo_audience=shared.live_tokens.userinfo_audience,
        by_exchange=settings.actor_tokens_by_exchange,
        urn_namespace=settings.urn_namespace,
    )
    audit = shared.audit
    subject_tokens = SubjectTokens(
        SubjectTokenTaker(
            shared.connections.redis_for_takes,
            shared.connections.commands,
            shared.revocations,
            audit,
            tenant_id=settings.tenant_id,
            replicas=settings.redis_replicas,
        ),
        directory,
        shared.revocations,
    )
    user_tokens = UserTokens(
        directory,
        targets,
        shared.user_claims,
        shared.consents,
        custom_claims,
        issuer,
        demands,
        urn_namespace=settings.urn_namespace,
    )
    grants = (
        ClientCredentialsGrant(directory, targets, custom_claims, issuer),
        TokenExchangeGrant(
            directory,
            subject_tokens,
            actor_tokens,
            targets,
            custom_claims,
            issuer,
            demands,
            urn_namespace=settings.urn_namespace,
        ),
        AuthorizationCodeGrant(shared.codes, shared.authorizations, shared.refresh_tokens, user_tokens),
        RefreshTokenGrant(shared.refresh_tokens, user_tokens),
    )
    table = {grant.grant_type: cast("Grant[object]", grant) for grant in grants}
    return Grants(
        directory,
        shared.keys,
        shared.authenticator,
        table,
        outcomes=shared.metrics.tokens,
        audit=audit,
        waiting=shared.waiting,
        limit=_request_limit(settings, shared),
    )


def _request_limit(settings: Settings, shared: Shared) -> RequestLimit | None:
    if not settings.client_requests_per_minute:
        return None
    requests = SourceLimit(
        shared.connections.commands,
        "client-requests",
        tenant_id=settings.tenant_id,
        window_s=WINDOW_S,
        limit=settings.client_requests_per_minute,
        throttled=shared.metrics.throttled,
        by="client",
    )
    return RequestLimit(requests)
