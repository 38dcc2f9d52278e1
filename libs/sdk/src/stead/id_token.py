"""What an ID token must say (OpenID Connect Core 1.0 section 3.1.3.7). No I/O."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stead._keys import SUPPORTED_ALGORITHMS, KeySet
from stead.errors import TokenInvalid
from stead.verification import UncheckedToken, read_jws, require_signature

_TYPES: Final = frozenset({"jwt", ""})
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def read_id_token(id_token: object) -> UncheckedToken:
    """Take an ID token apart; an access token is none.

    Raises:
        TokenInvalid: It is no ID token by its form and header.
    """
    return read_jws(id_token, SUPPORTED_ALGORITHMS, types=_TYPES)


def check_id_token(
    token: UncheckedToken,
    *,
    keys: KeySet,
    issuer: str,
    client_id: str,
    access_token: str | None,
    nonce: str | None,
    now: float,
    leeway_s: float = 60.0,
) -> Mapping[str, Any]:
    """Return the claims of an ID token that may be believed.

    Args:
        token: One that ``read_id_token`` let through.
        keys: The issuer's.
        issuer: What ``iss`` must be.
        client_id: What ``aud`` must be, alone.
        access_token: The token that came with it, for ``at_hash``; None if none did.
        nonce: What was sent with the authorization request; None for a token that a refresh gave.
        now: Seconds since the epoch.
        leeway_s: By how many seconds clocks may differ.

    Raises:
        TokenInvalid: The signature or a claim is wrong.
    """
    claims = issued_claims(token, keys=keys, issuer=issuer)
    if claims.get("aud") not in (client_id, [client_id]):
        raise TokenInvalid("wrong_audience")
    expires_at, subject = claims.get("exp"), claims.get("sub")
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float) or not isinstance(subject, str):
        raise TokenInvalid("invalid_claims")
    if now >= expires_at + leeway_s:
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


def issued_claims(token: UncheckedToken, *, keys: KeySet, issuer: str) -> dict[str, Any]:
    """Return what an ID token says that the issuer made, whenever and for whomever.

    Raises:
        TokenInvalid: It did not.
    """
    require_signature(token, keys)
    try:
        claims = _decode(token.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None
    if claims.get("iss") != issuer:
        raise TokenInvalid("wrong_issuer")
    return claims


def _same(said: object, expected: str) -> bool:
    return isinstance(said, str) and hmac.compare_digest(said.encode(), expected.encode())


def _half_hash(access_token: str, algorithm: str) -> str:
    """Return the ``at_hash`` of an access token: half of the hash that the ID token is signed with (3.1.3.6)."""
    digest = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(access_token.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
