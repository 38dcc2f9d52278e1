"""Signed tokens of any class (RFC 7515), without I/O: parsing one, verifying its signature, reading its dates."""

from __future__ import annotations

import binascii
import functools
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from stead.errors import TokenInvalid
from stead.verify.keys import KeySet
from stead.verify.signed_claims import SignedClaims, token_digest

MAX_TOKEN_CHARS: Final = 16 * 1024
"""Longer tokens are rejected before anything in them is parsed; the issuer signs none."""

_COMPACT_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")  # RFC 7515 section 7.1
_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_MAX_NUMERIC_DATE: Final = 2**53
_PADDING: Final = (b"", b"", b"==", b"=")


class UnverifiedToken(msgspec.Struct, frozen=True):
    """A well-formed token with an acceptable header. Neither its signature nor its claims have been checked.

    Attributes:
        key_id: ``kid``.
        algorithm: ``alg``; one of the accepted algorithms.
        digest: SHA-256 of the whole token.
        payload: The JWT Claims Set. Trust nothing in it.
    """

    key_id: str
    algorithm: str
    digest: bytes
    signing_input: bytes
    signature: bytes
    payload: bytes

    def __repr__(self) -> str:
        return f"UnverifiedToken(key_id={self.key_id!r})"


class _Header(msgspec.Struct, frozen=True):
    # The members of RFC 7515 section 4.1 that matter here. jku, jwk, x5u and x5c are ignored: the source of the keys
    # is configuration, never the token.
    alg: str = ""
    typ: str = ""
    kid: str = ""
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_header_decoder = msgspec.json.Decoder(_Header)


def read_jws(
    token: object, algorithms: Sequence[str], *, types: frozenset[str], max_chars: int = MAX_TOKEN_CHARS
) -> UnverifiedToken:
    """Parse a signed token of any class; see ``read_token``.

    Args:
        token: In compact form.
        algorithms: The accepted ones.
        types: The accepted values of ``typ`` in lower case: the class of the token.
        max_chars: Longer tokens are rejected.

    Raises:
        TokenInvalid: The token is malformed or not of this class.

    Source:
        RFC 7515 sections 4.1.9 (media types compare without regard to case), 4.1.11 (``crit`` that is not understood)
        and 7.1.
    """
    if not isinstance(token, str):
        raise TokenInvalid("malformed")
    if len(token) > max_chars:
        raise TokenInvalid("too_large")
    segments = _COMPACT_FORM.fullmatch(token)
    if segments is None:
        raise TokenInvalid("malformed")
    header = _decode_header(segments[1])
    if header.typ.lower() not in types:
        raise TokenInvalid("unsupported_type")
    if header.alg not in algorithms:
        raise TokenInvalid("unsupported_algorithm")
    if header.crit is not msgspec.UNSET:
        raise TokenInvalid("unsupported_header")
    if not header.kid:
        raise TokenInvalid("unknown_key")
    return UnverifiedToken(
        header.kid,
        header.alg,
        token_digest(token),
        token[: segments.end(2)].encode("ascii"),
        _decode_segment(segments[3]),
        _decode_segment(segments[2]),
    )


def verify_signature(token: UnverifiedToken, keys: KeySet) -> SignedClaims:
    """Return the claims of a token that was signed with one of the keys.

    Raises:
        TokenInvalid: The key is unknown or of another algorithm, or the signature is wrong.

    Source:
        RFC 8725 section 3.1 (one algorithm per key).
    """
    key = keys.get(token.key_id)
    if key is None:
        raise TokenInvalid("unknown_key")
    if key.algorithm != token.algorithm:
        raise TokenInvalid("unsupported_algorithm")
    if not key.verifies(token.signing_input, token.signature):
        raise TokenInvalid("bad_signature")
    return SignedClaims(keys, token.key_id, token.payload)


def numeric_date(claims: dict[str, Any], name: str) -> float:
    """Return a date claim in seconds since the epoch (RFC 7519 section 2, NumericDate).

    Raises:
        TokenInvalid: It is missing, not a number, negative, or not below 2 ** 53.
    """
    value = claims.get(name)
    # bool is an int; NaN, infinities and numbers of hundreds of digits fail the comparison
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_NUMERIC_DATE:
        raise TokenInvalid("invalid_claims")
    return value


@functools.lru_cache(maxsize=64)
def _decode_header(segment: str) -> _Header:
    """Decode the first segment; cached because all tokens that were signed with one key share it."""
    try:
        return _header_decoder.decode(_decode_segment(segment))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None


def _decode_segment(segment: str) -> bytes:
    """Decode base64url without padding; only the canonical encoding is accepted (RFC 4648 section 3.5)."""
    standard = segment.encode("ascii").translate(_FROM_URL_SAFE) + _PADDING[len(segment) % 4]
    try:
        decoded = binascii.a2b_base64(standard, strict_mode=True)
    except binascii.Error:
        raise TokenInvalid("malformed") from None
    if binascii.b2a_base64(decoded, newline=False) != standard:
        raise TokenInvalid("malformed")
    return decoded
