"""ID tokens that come back as a hint of who is meant (OpenID Connect Core 1.0 section 3.1.2.1); expired is fine."""

import msgspec

from stead.errors import TokenInvalid
from stead.id_token import issued_claims, read_id_token
from token_service.tokens.keys import SigningKeys


class Hint(msgspec.Struct, frozen=True):
    """Of whom an ID token of ours speaks, for which client, and since which session; none in older ones."""

    user_id: str
    client_id: str
    session_id: str | None = None


class IdTokenHints:
    """Reads ID tokens of this issuer."""

    def __init__(self, keys: SigningKeys, *, issuer: str) -> None:
        self._keys = keys
        self._issuer = issuer

    def read(self, id_token: str | None) -> Hint | None:
        """Return what an ID token hints at; none without one, and for one that is not ours."""
        if id_token is None:
            return None
        try:
            claims = issued_claims(read_id_token(id_token), keys=self._keys.ring.verifying, issuer=self._issuer)
        except TokenInvalid:
            return None
        try:
            return msgspec.convert(
                {"user_id": claims["sub"], "client_id": claims["aud"], "session_id": claims.get("sid")}, Hint
            )
        except (KeyError, msgspec.ValidationError):
            return None
