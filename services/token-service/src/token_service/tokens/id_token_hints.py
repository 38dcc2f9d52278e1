"""ID tokens that come back as ``id_token_hint`` (OpenID Connect Core 1.0 section 3.1.2.1), expired or not."""

import msgspec

from stead.errors import TokenInvalid
from stead.sign_in.id_token import issued_claims, read_id_token
from token_service.tokens.keys import SigningKeys


class Hint(msgspec.Struct, frozen=True):
    """Subject, client and session of one of our ID tokens; no session if its authorization has none."""

    user_id: str
    client_id: str
    session_id: str | None = None


class IdTokenHints:
    """Reads ID tokens of this issuer."""

    def __init__(self, keys: SigningKeys, *, issuer: str) -> None:
        self._keys = keys
        self._issuer = issuer

    async def read(self, id_token: str | None) -> Hint | None:
        """Return the hint; None without an ID token, for one that is not ours, and for one whose key was retired."""
        if id_token is None:
            return None
        try:
            unverified = read_id_token(id_token)
            claims = issued_claims(unverified, keys=self._keys.ring.verifying, issuer=self._issuer)
        except TokenInvalid:
            return None
        if await self._keys.is_retired(unverified.key_id):
            return None
        try:
            return msgspec.convert(
                {"user_id": claims["sub"], "client_id": claims["aud"], "session_id": claims.get("sid")}, Hint
            )
        except (KeyError, msgspec.ValidationError):
            return None
