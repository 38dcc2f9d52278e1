"""The rules for access tokens (RFC 9068), without I/O.

Owns parsing a token, verifying its signature and judging its claims. Does not own fetching keys (``key_source``), nor
whether a token was revoked or its subject suspended: the issuer's introspection endpoint knows that.
"""

from __future__ import annotations

import binascii
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from stead._transport.operations import Steps
from stead.errors import TokenInvalid
from stead.verify.keys import SUPPORTED_ALGORITHMS, KeySet
from stead.verify.signed_claims import SignedClaims, SignedClaimsCache, token_digest

__all__ = [
    "AccessToken",
    "Expectations",
    "KeySet",
    "TokenChecker",
    "UnverifiedToken",
    "read_token",
]

MAX_TOKEN_CHARS: Final = 16 * 1024
"""Longer tokens are rejected before anything in them is parsed; the issuer signs none."""

_COMPACT_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")  # RFC 7515 section 7.1
ACCESS_TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})
"""``typ`` of an access token (RFC 9068 section 2.1)."""

_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_MAX_NUMERIC_DATE: Final = 2**53
_PADDING: Final = (b"", b"", b"==", b"=")


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a verified access token (RFC 9068 section 2.2).

    ::

        access_token = verifier.verify(bearer_token)
        if "read:orders" not in access_token.scopes:
            raise Forbidden
        orders = orders_of(access_token.subject)

    Attributes:
        id: ``jti``; safe to log, unlike the token.
        key_id: ``kid`` of the key that signed the token.
        issuer: ``iss``.
        subject: ``sub``: the user on whose behalf the client acts, or the client itself.
        audience: The expected audience, which the token names; ``claims`` has the whole ``aud``.
        client_id: The application that the token was issued to.
        scopes: The scope tokens; empty if the token grants none.
        issued_at: ``iat``, seconds since the epoch. Informational: it is not validated.
        expires_at: ``exp``, seconds since the epoch; may lie in the past by up to the leeway.
        actor: ``act`` (RFC 8693 section 4.1): the user who acts as the subject; None without impersonation.
        grant_type: ``gty``: the grant that issued the token, set by token exchange; None otherwise.
        organization_id: The only organization in which the scopes are valid; None if they are valid everywhere.
        claims: All claims, including custom ones. A copy that the caller may change.
    """

    id: str
    key_id: str
    issuer: str
    subject: str
    audience: str
    client_id: str
    scopes: frozenset[str]
    issued_at: float
    expires_at: float
    actor: dict[str, Any] | None
    grant_type: str | None
    organization_id: str | None
    claims: dict[str, Any]

    def __repr__(self) -> str:
        return f"AccessToken(id={self.id!r}, subject={self.subject!r}, client_id={self.client_id!r})"


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must match. There is no way to build expectations that skip a check.

    Attributes:
        issuer: Compared with ``iss`` byte for byte.
        audience: Must equal ``aud`` or be one of its members. The resource indicator of the API that verifies.
        algorithms: The accepted signature algorithms, a subset of ES256, EdDSA and RS256.
        leeway_s: Tolerated clock difference in seconds when ``exp`` and ``nbf`` are judged.

    Raises:
        ValueError: Issuer or audience is empty, an algorithm is not supported, or the leeway is negative.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = SUPPORTED_ALGORITHMS
    leeway_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("issuer", "audience"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name} must not be empty")
        unsupported = set(self.algorithms).difference(SUPPORTED_ALGORITHMS)
        if not self.algorithms or unsupported:
            raise ValueError(f"algorithms must be some of {', '.join(SUPPORTED_ALGORITHMS)}")
        if self.leeway_s < 0:
            raise ValueError("leeway_s must not be negative")


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
_claims_decoder = msgspec.json.Decoder(dict[str, Any])


def read_token(token: object, expected: Expectations) -> UnverifiedToken:
    """Parse an access token and check what needs no key: size, form and header.

    Args:
        token: As presented; anything.
        expected: Names the accepted algorithms.

    Raises:
        TokenInvalid: It is not a JWS in compact form, its ``typ`` is not an access token's, its algorithm is not
            accepted, it names no key, or it demands an extension.

    Source:
        RFC 9068 section 4 (``typ`` is ``at+jwt`` or ``application/at+jwt``, never ``alg`` none).
    """
    return read_jws(token, expected.algorithms, types=ACCESS_TOKEN_TYPES)


def read_jws(token: object, algorithms: Sequence[str], *, types: frozenset[str]) -> UnverifiedToken:
    """Parse a signed token of any class; see ``read_token``.

    Args:
        token: In compact form.
        algorithms: The accepted ones.
        types: The accepted values of ``typ`` in lower case: the class of the token.

    Raises:
        TokenInvalid: The token is malformed or not of this class.

    Source:
        RFC 7515 sections 4.1.9 (media types compare without regard to case), 4.1.11 (``crit`` that is not understood)
        and 7.1.
    """
    if not isinstance(token, str):
        raise TokenInvalid("malformed")
    if len(token) > MAX_TOKEN_CHARS:
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


class TokenChecker:
    """Decides whether an access token is acceptable, given the issuer's keys and the time. No I/O.

    Tokens with a verified signature are cached, so that a bearer token that is presented again costs neither parsing
    nor a signature verification. Its claims are judged every time.
    """

    def __init__(self, expected: Expectations, *, cache_size: int = 1024) -> None:
        """Create a checker.

        Args:
            expected: What every token must match.
            cache_size: How many tokens to cache, as a hash with their claims; 0 disables the cache.
        """
        self._expected = expected
        self._cache = SignedClaimsCache(cache_size)

    def recall(
        self,
        token: object,
        *,
        keys: KeySet | None,
        now: float,
        audience: str | None = None,
        organization_aware: bool = False,
    ) -> AccessToken | None:
        """Judge the claims of a cached token; None if it is not cached, or if its keys are not these.

        Args:
            token: As presented; anything.
            keys: The issuer's keys; None if they must be refreshed first.
            now: Seconds since the epoch.
            audience: See ``verification``.
            organization_aware: See ``verification``.

        Raises:
            TokenInvalid: It is rejected.
            ValueError: The audience is empty.
        """
        if keys is None or not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not token.isascii():
            return None
        signed = self._cache.get(token_digest(token), keys=keys)
        if signed is None:
            return None
        expected = self._expected if audience is None else _with_audience(self._expected, audience)
        return _within(read_claims(signed, expected=expected, now=now), organization_aware)

    def verification(
        self,
        token: object,
        *,
        keys_with: Callable[[str], Steps[KeySet]],
        clock: Callable[[], float],
        audience: str | None = None,
        organization_aware: bool = False,
    ) -> Steps[AccessToken]:
        """Verify a token that is not cached; the whole decision, for blocking and asynchronous verifiers alike.

        Args:
            token: As presented; anything.
            keys_with: Returns the issuer's keys, refreshed if they lack the one with this id.
            clock: Seconds since the epoch; read once, after the keys have arrived.
            audience: Expected instead of the checker's own.
            organization_aware: Accept a token that is valid within one organization only.

        Raises:
            TokenInvalid: It is rejected. A malformed token never causes a request for keys.
            ValueError: The audience is empty.
        """
        expected = self._expected if audience is None else _with_audience(self._expected, audience)
        unverified = read_token(token, expected)
        keys = yield from keys_with(unverified.key_id)
        return _within(self.check(unverified, keys=keys, now=clock(), expected=expected), organization_aware)

    def check(
        self, token: UnverifiedToken, *, keys: KeySet, now: float, expected: Expectations | None = None
    ) -> AccessToken:
        """Verify the signature of a parsed token, unless it is cached, and judge its claims.

        Args:
            token: From ``read_token``.
            keys: The issuer's keys.
            now: Seconds since the epoch.
            expected: What this token must match, if that differs from the checker's own expectations.

        Raises:
            TokenInvalid: The key is not the issuer's or of another algorithm, or the signature or a claim is wrong.

        Source:
            RFC 9068 section 4; RFC 8725 sections 3.1 (one algorithm per key) and 3.12 (token classes are exclusive).
        """
        cached = self._cache.get(token.digest, keys=keys)
        signed = cached or verify_signature(token, keys)
        access_token = read_claims(signed, expected=expected or self._expected, now=now)
        if cached is None:  # accepted tokens only, so that junk and expired tokens cannot fill the cache
            self._cache.put(token.digest, signed)
        return access_token


def read_claims(signed: SignedClaims, *, expected: Expectations, now: float) -> AccessToken:
    """Judge the claims of a token whose signature was verified.

    Not left to PyJWT, which would validate ``iat`` and use the system clock.

    Args:
        signed: From ``verify_signature``, or the cache.
        expected: What the claims must match.
        now: Seconds since the epoch.

    Raises:
        TokenInvalid: A claim is missing, has the wrong type, or does not match.

    Source:
        RFC 9068 sections 2.2 (the required claims) and 4; RFC 7519 sections 4.1.1 to 4.1.7.
    """
    try:
        claims = _claims_decoder.decode(signed.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None
    if claims.get("iss") != expected.issuer:
        raise TokenInvalid("wrong_issuer")
    audience = claims.get("aud")
    if audience != expected.audience and not (isinstance(audience, list) and expected.audience in audience):
        raise TokenInvalid("wrong_audience")
    expires_at = numeric_date(claims, "exp")
    if now >= expires_at + expected.leeway_s:
        raise TokenInvalid("expired")
    if "nbf" in claims and now < numeric_date(claims, "nbf") - expected.leeway_s:
        raise TokenInvalid("not_yet_valid")
    actor = claims.get("act")
    if actor is not None:
        if not isinstance(actor, dict):
            raise TokenInvalid("invalid_claims")
        _required_string(actor, "sub")  # an actor without a name must not pass for none
    return AccessToken(
        id=_required_string(claims, "jti"),
        key_id=signed.key_id,
        issuer=expected.issuer,
        subject=_required_string(claims, "sub"),
        audience=expected.audience,
        client_id=_required_string(claims, "client_id"),
        scopes=frozenset((_optional_string(claims, "scope") or "").split()),
        issued_at=numeric_date(claims, "iat"),
        expires_at=expires_at,
        actor=actor,
        grant_type=_optional_string(claims, "gty"),
        organization_id=_optional_string(claims, "organization_id"),
        claims=claims,
    )


def _within(token: AccessToken, organization_aware: bool) -> AccessToken:
    if token.organization_id is not None and not organization_aware:
        raise TokenInvalid("organization_only")
    return token


@functools.lru_cache(maxsize=64)
def _with_audience(expected: Expectations, audience: str) -> Expectations:
    return msgspec.structs.replace(expected, audience=audience)


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


def _required_string(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise TokenInvalid("invalid_claims")
    return value


def _optional_string(claims: dict[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
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
