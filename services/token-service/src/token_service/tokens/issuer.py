"""Signs access tokens and ID tokens."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from identity_common.identifiers import new_token_id
from identity_common.telemetry.logs import get_logger
from token_service.tokens.claims import AccessTokenClaims, Actor, SignInClaims, exact_issue_ms
from token_service.tokens.identity import IdTokenClaims, PersonClaims, without_unbounded
from token_service.tokens.lengths import MAX_CLAIMS_BYTES
from token_service.tokens.scopes import format_scope
from token_service.tokens.signing import SigningKey

_log = get_logger(__name__)


def new_jti(authorization_id: str | None = None) -> str:
    """Return a ``jti`` for an access token that is not issued by exchange; for exchange see ``ImpersonationSegments``.

    Args:
        authorization_id: The authorization that the token descends from; ending it revokes the token.
    """
    return f"{authorization_id}.{new_token_id()}" if authorization_id else new_token_id()


class AccessTokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an access token, but for what the issuer adds.

    Attributes:
        subject: Becomes ``sub``: a user id, or the client's own id.
        audience: Becomes ``aud``: exactly one.
        client_id: The requesting client.
        scopes: The granted scopes; may be empty.
        issued_at: Milliseconds since the epoch, read from the clock before the subject was read: a later change of the
            subject then ends the token. Becomes ``iat``.
        lifetime_s: Seconds from ``iat`` to ``exp``.
        jti: From ``new_jti``, or that of the attempt in an exchange.
        organization_id: Becomes ``organization_id``; only in a token for a resource within an organization.
        signed_in: How the subject signed in; for tokens that descend from an authorization.
        grant_type: Becomes ``gty``; for tokens issued by exchange.
        actor: Becomes ``act``.
        actor_signed_in: Becomes ``actor_authentication``.
        permissions_as_of: Becomes ``pv``; from ``Directory.revisions_of``.
        tokens_valid_after: The latest tokensValidAfter of the subject, its membership and the actors, milliseconds
            since the epoch.
        extra_claims: Further claims; they never replace one of the above.
    """

    subject: str
    audience: str
    client_id: str
    scopes: frozenset[str]
    issued_at: int
    lifetime_s: int
    jti: str
    organization_id: str | None = None
    signed_in: SignInClaims | None = None
    grant_type: str | None = None
    actor: Actor | None = None
    actor_signed_in: SignInClaims | None = None
    permissions_as_of: Mapping[str, int] | None = None
    tokens_valid_after: int = 0
    extra_claims: Mapping[str, Any] = {}


class Issuer:
    """Signs all tokens."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    async def issue(self, key: SigningKey, request: AccessTokenRequest) -> str:
        """Return a signed access token (RFC 9068).

        Raises:
            TooLarge: The token would be longer than verifiers accept.
        """
        issued_at, signed_in = request.issued_at // 1000, request.signed_in
        claims = AccessTokenClaims(
            iss=self._issuer,
            sub=request.subject,
            aud=request.audience,
            client_id=request.client_id,
            iat=issued_at,
            exp=issued_at + request.lifetime_s,
            jti=request.jti,
            scope=format_scope(request.scopes),
            organization_id=request.organization_id,
            gty=request.grant_type,
            act=request.actor,
            pv=request.permissions_as_of,
            iat_ms=exact_issue_ms(now=request.issued_at, tokens_valid_after=request.tokens_valid_after),
            auth_time=signed_in.auth_time if signed_in else None,
            amr=signed_in.amr if signed_in else None,
            acr=signed_in.acr if signed_in else None,
            actor_authentication=request.actor_signed_in,
        )
        extra = request.extra_claims
        return await key.sign({**extra, **msgspec.to_builtins(claims)} if extra else claims)

    async def issue_id_token(
        self,
        key: SigningKey,
        person: PersonClaims,
        *,
        client_id: str,
        issued_at: int,
        lifetime_s: int,
        signed_in: SignInClaims,
        nonce: str | None,
        session_id: str | None,
        access_token: str,
    ) -> str:
        """Return a signed ID token (OpenID Connect Core 1.0 section 2).

        Lists of roles and organizations, and claims from the profile, are left to the userinfo endpoint, which has all
        claims that scopes request (section 5.4), if they make it longer than verifiers accept.

        Args:
            key: To sign with.
            person: Claims about the subject.
            client_id: Becomes ``aud``.
            issued_at: Milliseconds since the epoch; becomes ``iat``.
            lifetime_s: Seconds from ``iat`` to ``exp``.
            signed_in: How the subject signed in.
            nonce: From the authorization request.
            session_id: Becomes ``sid``.
            access_token: The access token issued with it; becomes ``at_hash``.
        """
        issued_at_s = issued_at // 1000
        claims = IdTokenClaims(
            iss=self._issuer,
            aud=client_id,
            iat=issued_at_s,
            exp=issued_at_s + lifetime_s,
            auth_time=UNSET if signed_in.auth_time is None else signed_in.auth_time,
            amr=signed_in.amr,
            acr=signed_in.acr,
            nonce=UNSET if nonce is None else nonce,
            sid=UNSET if session_id is None else session_id,
            at_hash=key.half_hash(access_token),
            **msgspec.structs.asdict(person),
        )
        if len(msgspec.json.encode(claims)) > MAX_CLAIMS_BYTES:
            _log.info("id-token.claims-left-out", client_id=client_id, user_id=person.sub)
            claims = without_unbounded(claims)
        return await key.sign(claims, typ="JWT")
