"""What an access token (RFC 9068) must say and look like: pure functions, and what is remembered of good signatures.

Does not own where keys come from (``stead.verifiers``), nor whether a token was revoked or its subject
suspended: that is for the issuer's introspection endpoint.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from stead._keys import SUPPORTED_ALGORITHMS, KeySet
from stead.errors import TokenInvalid

__all__ = [
    "AccessToken",
    "Expectations",
    "KeySet",
    "Remembered",
    "TokenChecker",
    "UncheckedToken",
    "read_claims",
    "read_token",
]

MAX_TOKEN_CHARS: Final = 16 * 1024
"""Longer tokens are refused before anything in them is read."""

_COMPACT_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")  # RFC 7515 section 7.1
ACCESS_TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})
"""``typ`` of an access token (RFC 9068 section 2.1)."""

_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_MAX_NUMERIC_DATE: Final = 2**53
_PADDING: Final = (b"", b"", b"==", b"=")


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """What a verified access token says (RFC 9068 section 2.2).

    Attributes:
        id: ``jti``; safe to log, unlike the token.
        issuer: ``iss``.
        subject: ``sub``: the user for whom the client acts, or the client itself.
        audience: The audience that was expected and found; ``claims`` has the whole ``aud``.
        client_id: The application that the token was issued to.
        scopes: The scope tokens; empty if the token grants none.
        issued_at: ``iat``, seconds since the epoch. Not judged.
        expires_at: ``exp``, seconds since the epoch; up to the leeway ago.
        actor: ``act`` (RFC 8693 section 4.1): who really acts when ``subject`` is impersonated; None otherwise.
        grant_type: ``gty``: the grant that the token comes from, if it says so (token exchange does).
        organization_id: The organization within which alone the token counts at this audience; None if it counts
            everywhere.
        claims: All claims, custom ones too. The caller's own copy.
    """

    id: str
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
    """What every token must fit.

    Attributes:
        issuer: Compared with ``iss`` byte for byte.
        audience: Must be ``aud``, or one of it. This API's own resource indicator.
        algorithms: The signature algorithms that are allowed, out of ES256, EdDSA and RS256.
        leeway_s: By how many seconds clocks may differ when ``exp`` and ``nbf`` are judged.

    Raises:
        ValueError: Issuer or audience is empty, an algorithm is not supported, the leeway is negative. There is no way
            to build expectations that skip a check.
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


class UncheckedToken(msgspec.Struct, frozen=True):
    """A token whose form and header are in order, and whose signature and claims nobody has looked at.

    Attributes:
        key_id: ``kid``.
        algorithm: ``alg``; one that is allowed.
        digest: SHA-256 of the whole token.
    """

    key_id: str
    algorithm: str
    digest: bytes
    signing_input: bytes
    signature: bytes
    payload: bytes

    def __repr__(self) -> str:
        return f"UncheckedToken(key_id={self.key_id!r})"


class _Header(msgspec.Struct, frozen=True):
    # The members of RFC 7515 section 4.1 that are acted on. jku, jwk, x5u and x5c are not: where keys come from is
    # configuration, never the token's own word.
    alg: str = ""
    typ: str = ""
    kid: str = ""
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_header_decoder = msgspec.json.Decoder(_Header)
_claims_decoder = msgspec.json.Decoder(dict[str, Any])


def read_token(token: object, expected: Expectations) -> UncheckedToken:
    """Take an access token apart and judge what can be judged without a key: size, form and header.

    Raises:
        TokenInvalid: It is no JWS in compact form, no access token by its ``typ``, of an algorithm that is not allowed,
            names no key, or demands an extension.

    Source:
        RFC 9068 section 4 (``typ`` is ``at+jwt`` or ``application/at+jwt``, never ``alg`` none).
    """
    return read_jws(token, expected.algorithms, types=ACCESS_TOKEN_TYPES)


def read_jws(token: object, algorithms: Sequence[str], *, types: frozenset[str]) -> UncheckedToken:
    """Take a signed token of any class apart; otherwise the same as ``read_token``.

    Args:
        token: In compact form.
        algorithms: Those that are allowed.
        types: What ``typ`` may be, in lower case: the class of the token.

    Raises:
        TokenInvalid: It is none of these.

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
    encoded = token.encode("ascii")
    return UncheckedToken(
        header.kid,
        header.alg,
        hashlib.sha256(encoded).digest(),
        encoded[: segments.end(2)],
        _decode_segment(segments[3]),
        _decode_segment(segments[2]),
    )


class Remembered(msgspec.Struct, frozen=True):
    """A token whose signature was found good, without that signature: nobody can make the token of this again.

    Attributes:
        keys: Under which it was found good.
        payload: The JWT Claims Set, decoded.
    """

    keys: KeySet
    payload: bytes

    def __repr__(self) -> str:
        return "Remembered(…)"


class TokenChecker:
    """The decision over a token, given keys and time; no I/O.

    Remembers of which tokens the signature was found good under which keys, so that a bearer token that comes again
    is neither taken apart nor verified again. Everything that the token says is judged every time.
    """

    def __init__(self, expected: Expectations, *, cache_size: int = 1024) -> None:
        """Prepare to check tokens.

        Args:
            expected: What every token must fit.
            cache_size: How many tokens are remembered, by their hash and with what they say; 0 for none.
        """
        self._expected = expected
        self._cache_size = cache_size
        self._good: OrderedDict[bytes, Remembered] = OrderedDict()
        self._lock = threading.Lock()

    def check(
        self, token: UncheckedToken, *, keys: KeySet, now: float, expected: Expectations | None = None
    ) -> AccessToken:
        """Return what the token says if it may be believed.

        Args:
            token: A token that ``read_token`` let through.
            keys: The issuer's keys.
            now: Seconds since the epoch.
            expected: What this token must fit, if that is something else than every other token must.

        Raises:
            TokenInvalid: Its key is not the issuer's or of another algorithm, the signature is wrong, or a claim is.

        Source:
            RFC 9068 section 4; RFC 8725 sections 3.1 (one algorithm a key) and 3.12 (token classes exclude each other).
        """
        remembered = self._find(token.digest)
        known = remembered is not None and remembered.keys is keys
        if not known:
            require_signature(token, keys)
        access_token = read_claims(token.payload, expected=expected or self._expected, now=now)
        if not known:
            self._remember(token.digest, Remembered(keys, token.payload))
        return access_token

    def recall(self, token: object) -> Remembered | None:
        """Return what is remembered of a token; it counts as long as the issuer's keys are the same ones.

        Bound to the very key set: another one, also one that arrives while a signature is being verified, makes every
        entry a miss without anybody having to clear anything at the right moment.
        """
        if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not token.isascii():
            return None
        return self._find(hashlib.sha256(token.encode("ascii")).digest())

    def _find(self, digest: bytes) -> Remembered | None:
        with self._lock:
            remembered = self._good.get(digest)
            if remembered is not None:
                self._good.move_to_end(digest)
            return remembered

    def _remember(self, digest: bytes, remembered: Remembered) -> None:
        if self._cache_size <= 0:
            return
        with self._lock:
            self._good[digest] = remembered
            self._good.move_to_end(digest)
            if len(self._good) > self._cache_size:
                self._good.popitem(last=False)


def require_signature(token: UncheckedToken, keys: KeySet) -> None:
    """Do nothing if the token was signed with one of the keys.

    Raises:
        TokenInvalid: It was not.
    """
    key = keys.get(token.key_id)
    if key is None:
        raise TokenInvalid("unknown_key")
    if key.algorithm != token.algorithm:
        raise TokenInvalid("unsupported_algorithm")
    if not key.verifies(token.signing_input, token.signature):
        raise TokenInvalid("bad_signature")


def read_claims(payload: bytes, *, expected: Expectations, now: float) -> AccessToken:
    """Judge the claims of a token whose signature is good.

    PyJWT is not asked: it would judge ``iat`` and take the time from the machine.

    Args:
        payload: The JWT Claims Set, decoded.
        expected: What it must fit.
        now: Seconds since the epoch.

    Raises:
        TokenInvalid: A claim is missing, of the wrong type, or does not fit.

    Source:
        RFC 9068 sections 2.2 (which claims there must be) and 4; RFC 7519 sections 4.1.1 to 4.1.7.
    """
    try:
        claims = _claims_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None
    if claims.get("iss") != expected.issuer:
        raise TokenInvalid("wrong_issuer")
    audience = claims.get("aud")
    if audience != expected.audience and not (isinstance(audience, list) and expected.audience in audience):
        raise TokenInvalid("wrong_audience")
    expires_at = _date(claims, "exp")
    if now >= expires_at + expected.leeway_s:
        raise TokenInvalid("expired")
    if "nbf" in claims and now < _date(claims, "nbf") - expected.leeway_s:
        raise TokenInvalid("not_yet_valid")
    actor = claims.get("act")
    if actor is not None and not isinstance(actor, dict):
        raise TokenInvalid("invalid_claims")
    return AccessToken(
        id=_name(claims, "jti"),
        issuer=expected.issuer,
        subject=_name(claims, "sub"),
        audience=expected.audience,
        client_id=_name(claims, "client_id"),
        scopes=frozenset((_optional_string(claims, "scope") or "").split()),
        issued_at=_date(claims, "iat"),
        expires_at=expires_at,
        actor=actor,
        grant_type=_optional_string(claims, "gty"),
        organization_id=_optional_string(claims, "organization_id"),
        claims=claims,
    )


def _date(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    # bool is an int; NaN, infinities and numbers of hundreds of digits fail the comparison
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_NUMERIC_DATE:
        raise TokenInvalid("invalid_claims")
    return value


def _name(claims: dict[str, Any], name: str) -> str:
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
    """Decode the first segment, which all tokens that are signed with one key have in common."""
    try:
        return _header_decoder.decode(_decode_segment(segment))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None


def _decode_segment(segment: str) -> bytes:
    """Decode base64url without padding; only the one spelling that an encoder makes (RFC 4648 section 3.5)."""
    standard = segment.encode("ascii").translate(_FROM_URL_SAFE) + _PADDING[len(segment) % 4]
    try:
        decoded = binascii.a2b_base64(standard, strict_mode=True)
    except binascii.Error:
        raise TokenInvalid("malformed") from None
    if binascii.b2a_base64(decoded, newline=False) != standard:
        raise TokenInvalid("malformed")
    return decoded
