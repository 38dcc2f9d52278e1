"""An access token whose content is decided, but for the claims that the custom-claims function adds."""

from collections.abc import Mapping
from typing import Any

import msgspec

from identity_common.clock import whole_second
from identity_common.wire.events import ApplicationState
from token_service.grants.holders import ScopeHolder
from token_service.grants.targets import Target
from token_service.presented_tokens.actor_tokens import ActingParty
from token_service.tokens.claims import SignInClaims
from token_service.tokens.issuer import AccessTokenRequest


class TokenToSign(msgspec.Struct, frozen=True, kw_only=True):
    """An access token that is about to be signed.

    Attributes:
        subject: A user id, or the client's own id.
        jti: From ``new_jti``, or that of the attempt in an exchange.
        holder: The subject, with the roles that the scopes come from.
        issued_at: Milliseconds since the epoch, read before the holder and the actor. All times of the response come
            from it.
    """

    subject: str
    jti: str
    client: ApplicationState
    target: Target
    scopes: frozenset[str]
    holder: ScopeHolder
    issued_at: int

    @property
    def expires_at(self) -> int:
        """``exp``, in milliseconds since the epoch."""
        return whole_second(self.issued_at) + self.target.lifetime_s * 1000

    def request(
        self,
        extra_claims: Mapping[str, Any],
        *,
        signed_in: SignInClaims | None = None,
        grant_type: str | None = None,
        actor: ActingParty | None = None,
    ) -> AccessTokenRequest:
        """Return what the issuer needs to know.

        Args:
            extra_claims: From the custom-claims function.
            signed_in: How the subject signed in; for a token of an authorization.
            grant_type: For a token issued by exchange.
            actor: For a token issued by exchange, if an actor token was presented.
        """
        return AccessTokenRequest(
            subject=self.subject,
            audience=self.target.audience,
            client_id=self.client.id,
            scopes=self.scopes,
            issued_at=self.issued_at,
            lifetime_s=self.target.lifetime_s,
            jti=self.jti,
            organization_id=self.target.organization_claim,
            signed_in=signed_in,
            grant_type=grant_type,
            actor=actor.claim if actor else None,
            actor_signed_in=actor.signed_in if actor else None,
            permissions_as_of=self.holder.permissions_as_of,
            tokens_valid_after=max(self.holder.tokens_valid_after, actor.issued_at if actor else 0),
            extra_claims=extra_claims,
        )
