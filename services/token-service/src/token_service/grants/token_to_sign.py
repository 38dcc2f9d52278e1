"""An access token whose content is decided, but for the claims that the custom-claims function adds."""

from collections.abc import Mapping
from typing import Any

import msgspec

from identity_common.wire.events import ApplicationState
from token_service.grants.holders import ScopeHolder
from token_service.grants.targets import Target
from token_service.tokens.claims import Actor
from token_service.tokens.issuer import AccessTokenRequest


class TokenToSign(msgspec.Struct, frozen=True, kw_only=True):
    """An access token that is about to be signed.

    Attributes:
        subject: A user id, or the client's own id.
        jti: From ``new_jti``, or that of the attempt in an exchange.
        holder: The subject, with the roles that the scopes come from.
    """

    subject: str
    jti: str
    client: ApplicationState
    target: Target
    scopes: frozenset[str]
    holder: ScopeHolder

    def request(
        self, extra_claims: Mapping[str, Any], *, grant_type: str | None = None, actor: Actor | None = None
    ) -> AccessTokenRequest:
        """Return what the issuer needs to know.

        Args:
            extra_claims: From the custom-claims function.
            grant_type: For a token issued by exchange.
            actor: For a token issued by exchange, if an actor token was presented.
        """
        return AccessTokenRequest(
            subject=self.subject,
            audience=self.target.audience,
            client_id=self.client.id,
            scopes=self.scopes,
            lifetime_s=self.target.lifetime_s,
            jti=self.jti,
            organization_id=self.target.organization_claim,
            grant_type=grant_type,
            actor=actor,
            permissions_as_of=self.holder.permissions_as_of,
            tokens_valid_after=self.holder.tokens_valid_after,
            extra_claims=extra_claims,
        )
