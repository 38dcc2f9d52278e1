"""The rules for ID tokens (OpenID Connect Core 1.0 section 3.1.3.7), without I/O."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from stead.errors import SignInRequired, TokenInvalid
from stead.verify.acr import meets
from stead.verify.keys import SUPPORTED_ALGORITHMS, KeySet
from stead.verify.signed_tokens import UnverifiedToken, numeric_date, read_jws, verify_signature

_TYPES: Final = frozenset({"jwt", ""})
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def read_id_token(id_token: object) -> UnverifiedToken:
    """Parse an ID token; an access token is rejected.

    Raises:
        TokenInvalid: It is malformed, or its header is not an ID token's.
    """
    return read_jws(id_token, SUPPORTED_ALGORITHMS, types=_TYPES)


def check_id_token(
    token: UnverifiedToken,
    *,
    keys: KeySet,
    issuer: str,
    client_id: str,
    access_token: str | None,
    nonce: str | None,
    now: float,
    leeway_s: float = 60.0,
) -> Mapping[str, Any]:
    """Verify an ID token and return its claims.

    Args:
        token: From ``read_id_token``.
        keys: The issuer's keys.
        issuer: The required value of ``iss``.
        client_id: The only permitted audience.
        access_token: The access token issued with it, to check ``at_hash``; None if there was none.
        nonce: From the authorization request; None for an ID token from a refresh.
        now: Seconds since the epoch.
        leeway_s: Tolerated clock difference in seconds.

    Raises:
        TokenInvalid: The signature or a claim is wrong.
    """
    claims = issued_claims(token, keys=keys, issuer=issuer)
    if claims.get("aud") not in (client_id, [client_id]):
        raise TokenInvalid("wrong_audience")
    if not isinstance(claims.get("sub"), str):
        raise TokenInvalid("invalid_claims")
    if now >= numeric_date(claims, "exp") + leeway_s:
        raise TokenInvalid("expired")
    if nonce is not None and not _same(claims.get("nonce"), nonce):
        raise TokenInvalid("invalid_claims")
    if (
        access_token is not None
        and "at_hash" in claims
        and not _same(claims["at_hash"], _half_hash(access_token, token.algorithm))
    ):
        raise TokenInvalid("invalid_claims")
    return claims


def issued_claims(token: UnverifiedToken, *, keys: KeySet, issuer: str) -> dict[str, Any]:
    """Verify signature and issuer of an ID token, and return its claims; expiry and audience are not checked.

    Raises:
        TokenInvalid: The issuer did not sign it.
    """
    signed = verify_signature(token, keys)
    try:
        claims = _decode(signed.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None
    if claims.get("iss") != issuer:
        raise TokenInvalid("wrong_issuer")
    return claims


def require_requested_sign_in(
    claims: Mapping[str, Any], *, acr_values: Collection[str], max_age: int | None, now: float, leeway_s: float = 60.0
) -> None:
    """Require that a sign-in is as recent and as strong as was requested: the browser could change the request.

    Args:
        claims: Of the ID token.
        acr_values: The requested values of ``acr``, one of which must be met; empty for any.
        max_age: How long ago the sign-in may be, in seconds; None for any time.
        now: Seconds since the epoch.
        leeway_s: Tolerated clock difference in seconds.

    Raises:
        SignInRequired: It is not.
        TokenInvalid: ``max_age`` was requested, and ``auth_time`` is missing or not a date.

    Source:
        OpenID Connect Core 1.0 section 3.1.3.7, steps 12 and 13.
    """
    if max_age is not None and now - numeric_date(dict(claims), "auth_time") > max_age + leeway_s:
        raise SignInRequired("sign_in_too_old", f"the user signed in more than {max_age} s ago")
    if acr_values and not any(meets(claims.get("acr"), wanted) for wanted in acr_values):
        raise SignInRequired("sign_in_too_weak", f"the user did not sign in as required: {' '.join(acr_values)}")


def _same(claim: object, expected: str) -> bool:
    return isinstance(claim, str) and hmac.compare_digest(claim.encode(), expected.encode())


def _half_hash(access_token: str, algorithm: str) -> str:
    """Return the ``at_hash`` of an access token: the left half of its hash (section 3.1.3.6)."""
    digest = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(access_token.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
