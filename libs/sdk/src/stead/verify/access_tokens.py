"""The rules for access tokens (RFC 9068), without I/O.

Owns which tokens are accepted, and judging their claims. Does not own signatures (``signed_tokens``), fetching keys
(``key_source``), nor whether a token was revoked or its subject suspended: the issuer's introspection endpoint knows
that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from stead._transport.operations import Steps
from stead.errors import TokenInvalid
from stead.verify.keys import SUPPORTED_ALGORITHMS, KeySet
from stead.verify.signed_claims import SignedClaims, SignedClaimsCache, token_digest
from stead.verify.signed_tokens import MAX_TOKEN_CHARS, UnverifiedToken, numeric_date, read_jws, verify_signature

ACCESS_TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})
"""``typ`` of an access token (RFC 9068 section 2.1)."""


class ActorAuthentication(msgspec.Struct, frozen=True, kw_only=True):
    """How the actor of an impersonation has signed in: the claim ``actor_authentication``.

    Attributes:
        auth_time: When, seconds since the epoch; None if unknown.
        amr: The methods (RFC 8176), such as ``pwd``; may be empty.
        acr: How strongly: ``urn:service:acr:password``, ``urn:service:acr:mfa`` or ``phr``; None if unknown.
    """

    auth_time: float | None = None
    amr: tuple[str, ...] = ()
    acr: str | None = None


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
        auth_time: When the subject signed in, seconds since the epoch (section 2.2.1). None, like ``acr``, in a token
            that no user of its own has signed in for: of an application itself, or from an exchange.
        amr: The methods of that sign-in (RFC 8176), such as ``pwd`` and ``otp``; may be empty.
        acr: How strong it was: ``urn:service:acr:password``, ``urn:service:acr:mfa`` or ``phr``.
        actor_authentication: How the actor has signed in; None without impersonation, or if that is unknown.
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
    auth_time: float | None = None
    amr: tuple[str, ...] = ()
    acr: str | None = None
    actor_authentication: ActorAuthentication | None = None

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


_claims_decoder = msgspec.json.Decoder(dict[str, Any])


def read_token(token: object, expected: Expectations, *, max_chars: int = MAX_TOKEN_CHARS) -> UnverifiedToken:
    """Parse an access token and check what needs no key: size, form and header.

    Args:
        token: As presented; anything.
        expected: Names the accepted algorithms.
        max_chars: Longer tokens are rejected.

    Raises:
        TokenInvalid: It is not a JWS in compact form, its ``typ`` is not an access token's, its algorithm is not
            accepted, it names no key, or it demands an extension.

    Source:
        RFC 9068 section 4 (``typ`` is ``at+jwt`` or ``application/at+jwt``, never ``alg`` none).
    """
    return read_jws(token, expected.algorithms, types=ACCESS_TOKEN_TYPES, max_chars=max_chars)


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
        RFC 9068 sections 2.2 (the claims, 2.2.1 those of the sign-in) and 4; RFC 7519 sections 4.1.1 to 4.1.7.
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
        auth_time=_optional_date(claims, "auth_time"),
        amr=_methods(claims),
        acr=_optional_string(claims, "acr"),
        actor_authentication=_actor_authentication(claims),
    )


def issued_at_ms(token: AccessToken) -> int:
    """Return when a token was issued, milliseconds since the epoch: ``iat_ms``, or else ``iat``.

    A token has ``iat_ms`` if it was issued in the second in which its subject or actor was suspended, reinstated or got
    a new password: with whole seconds it would look older than that.
    """
    exact = token.claims.get("iat_ms")
    return exact if type(exact) is int else int(token.issued_at) * 1000


def _within(token: AccessToken, organization_aware: bool) -> AccessToken:
    if token.organization_id is not None and not organization_aware:
        raise TokenInvalid("organization_only")
    return token


@functools.lru_cache(maxsize=64)
def _with_audience(expected: Expectations, audience: str) -> Expectations:
    return msgspec.structs.replace(expected, audience=audience)


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


def _optional_date(claims: dict[str, Any], name: str) -> float | None:
    return None if claims.get(name) is None else numeric_date(claims, name)


def _methods(claims: dict[str, Any]) -> tuple[str, ...]:
    methods = claims.get("amr")
    if methods is None:
        return ()
    if not isinstance(methods, list) or not all(isinstance(method, str) for method in methods):
        raise TokenInvalid("invalid_claims")
    return tuple(methods)


def _actor_authentication(claims: dict[str, Any]) -> ActorAuthentication | None:
    said = claims.get("actor_authentication")
    if said is None:
        return None
    if not isinstance(said, dict):
        raise TokenInvalid("invalid_claims")
    return ActorAuthentication(
        auth_time=_optional_date(said, "auth_time"), amr=_methods(said), acr=_optional_string(said, "acr")
    )
