"""How long a signed token may be: no longer than verifiers accept. Pure.

Owns the bound on all claims together, and the parts of it that are judged earlier, before anything is spent: the
scopes, and the claims of the custom-claims function.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from identity_common.failures import TooLarge
from stead.verify.signed_tokens import MAX_TOKEN_CHARS

_FRAME_CHARS: Final = 512
"""At most: the header, the dots and the signature; that of RS256 is the longest."""

MAX_CLAIMS_BYTES: Final = (MAX_TOKEN_CHARS - _FRAME_CHARS) // 4 * 3
"""Size of the claims of a token at most, as JSON."""

_OTHER_CLAIMS_BYTES: Final = 1024
"""At most: the claims of this service besides ``aud`` and ``scope``."""

_encode: Final = msgspec.json.Encoder().encode


def require_token_fits(claims: bytes) -> None:
    """Refuse to sign claims that make a token longer than verifiers accept.

    Raises:
        TooLarge: Its scopes are to blame: nothing else that a client can change makes a token long.
    """
    if len(claims) > MAX_CLAIMS_BYTES:
        raise _too_long()


def require_scopes_fit(scopes: frozenset[str], *, audience: str) -> None:
    """Refuse scopes that make a token longer than verifiers accept."""
    scope_bytes = sum(len(each) + 1 for each in scopes)  # a hot path: not sorted as in the token
    if scope_bytes + len(audience) + _OTHER_CLAIMS_BYTES > MAX_CLAIMS_BYTES:
        raise _too_long()


def is_too_long(token: object, extra_claims: Mapping[str, Any]) -> bool:
    """Return whether further claims make a token longer than verifiers accept.

    Args:
        token: The argument ``token`` of the custom-claims function, which has ``aud`` and ``scope``.
        extra_claims: The claims that it adds.
    """
    return len(_encode(token)) + len(_encode(extra_claims)) + _OTHER_CLAIMS_BYTES > MAX_CLAIMS_BYTES


def _too_long() -> TooLarge:
    message = f"a token with these scopes is longer than {MAX_TOKEN_CHARS} characters: request fewer"
    return TooLarge("token.too_long", message)
