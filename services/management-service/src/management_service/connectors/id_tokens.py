"""ID tokens of providers: the signature, and what the claims say.

Source:
    OpenID Connect Core 1.0 sections 2 (the claims) and 3.1.3.7 (their validation).
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import jwt

from management_service.connectors.providers import ProviderKey
from management_service.connectors.rules import MAX_VALUE, TrustedFactor
from stead.verify.acr import Level, strongest

MAX_PRESENTED: Final = 16 * 1024
MAX_ANSWERED: Final = 128 * 1024
"""Characters of a token that the provider itself sends: it may name two hundred groups."""
MAX_AGE_S: Final = 300
LEEWAY_S: Final = 60
_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_MAX_METHODS: Final = 20


class NotAcceptableError(Exception):
    """A token is not accepted; the text is for the log."""


class WrongKeyError(NotAcceptableError):
    """A token was signed with another key than the one that it names, or the provider has changed that key."""


class UnverifiedToken(NamedTuple):
    """What a token says about who signed it, before that is verified."""

    issuer: str
    key_id: str | None


def read_unverified(token: str, *, types: Collection[str] = ("jwt",), longest: int = MAX_PRESENTED) -> UnverifiedToken:
    """Return which key of which provider is said to have signed a token.

    Args:
        token: As presented.
        types: The values of ``typ`` that it may have, in lower case; it may also have none.
        longest: How many characters it may have.

    Raises:
        NotAcceptableError: It is no token of these types.
    """
    if len(token) > longest:
        raise NotAcceptableError("too long")
    try:
        header = jwt.get_unverified_header(token)
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise NotAcceptableError("malformed") from None
    issuer, key_id = claims.get("iss"), header.get("kid")
    if not isinstance(issuer, str) or not is_storable(issuer) or not isinstance(key_id, str | None):
        raise NotAcceptableError("malformed")
    if "crit" in header or str(header.get("typ", "jwt")).lower() not in types:
        raise NotAcceptableError("another kind of token")
    return UnverifiedToken(issuer, key_id)


def verified_claims(
    token: str, key: ProviderKey, *, issuer: str, clients: Collection[str], max_age_s: int, now_s: float
) -> dict[str, Any]:
    """Return the claims of an ID token that a provider issued for one of its clients.

    Args:
        token: As presented.
        key: The provider's key that the token names.
        issuer: The provider.
        clients: Ids of the clients for which it may have been issued.
        max_age_s: How long ago it may have been issued.
        now_s: The time, seconds since the epoch.

    Raises:
        WrongKeyError: The key has not signed it.
        NotAcceptableError: It is not acceptable.
    """
    claims = _verified(token, key, issuer, clients, max_age_s, now_s, required=("iss", "sub", "aud", "exp", "iat"))
    if "events" in claims:  # of OpenID Connect Back-Channel Logout 1.0, section 2.4
        raise NotAcceptableError("a logout token")
    return claims


def verified_logout(token: str, key: ProviderKey, *, issuer: str, client_id: str, now_s: float) -> dict[str, Any]:
    """Return the claims of a logout token that a provider issued for a client.

    It need not have ``exp``: not all providers write it, and it is accepted for a few minutes only.

    Raises:
        NotAcceptableError: It is not acceptable.

    Source:
        OpenID Connect Back-Channel Logout 1.0 sections 2.4 and 2.6.
    """
    claims = _verified(token, key, issuer, [client_id], MAX_AGE_S, now_s, required=("iss", "aud", "iat", "jti"))
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(_LOGOUT_EVENT), dict):
        raise NotAcceptableError("no logout token")
    if "nonce" in claims:
        raise NotAcceptableError("a nonce in a logout token")
    if text_claim(claims, "jti") is None:
        raise NotAcceptableError("malformed jti")
    return claims


def _verified(
    token: str,
    key: ProviderKey,
    issuer: str,
    clients: Collection[str],
    max_age_s: int,
    now_s: float,
    *,
    required: Sequence[str],
) -> dict[str, Any]:
    try:
        claims = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            issuer=issuer,
            leeway=LEEWAY_S,
            options={"require": list(required), "verify_aud": False, "verify_iat": False},
        )
    except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError) as error:
        raise WrongKeyError(type(error).__name__) from None
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise NotAcceptableError(type(error).__name__) from None
    _require_audience(claims, clients)
    issued_at = claims["iat"]
    if isinstance(issued_at, bool) or not isinstance(issued_at, int | float):
        raise NotAcceptableError("malformed iat")
    if not now_s - max_age_s <= issued_at <= now_s + LEEWAY_S:  # a difference overflows for a huge iat
        raise NotAcceptableError("issued too long ago, or in the future")
    return claims


def _require_audience(claims: dict[str, Any], clients: Collection[str]) -> None:
    audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    authorized = claims.get("azp")
    if not audience or not all(isinstance(each, str) and each in clients for each in audience):
        raise NotAcceptableError("another audience")
    if authorized is None and len(audience) > 1:
        raise NotAcceptableError("several audiences without azp")
    if authorized is not None and authorized not in clients:
        raise NotAcceptableError("another authorized party")


def identity_value(claims: dict[str, Any], match_claim: str) -> str:
    """Return the value by which a provider's person is known.

    Raises:
        NotAcceptableError: The claim is missing, or no text of a possible length.
    """
    value = text_claim(claims, match_claim)
    if value is None:
        raise NotAcceptableError(f"no usable claim {match_claim}")
    return value


def text_claim(claims: dict[str, Any], name: str) -> str | None:
    """Return a claim; None if it is missing, or no text of a possible length."""
    value = claims.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= MAX_VALUE and is_storable(value) else None


def auth_time(claims: dict[str, Any]) -> int | None:
    """Return when the person signed in, seconds since the epoch; None if the provider does not say."""
    found = claims.get("auth_time")
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if 0 <= found <= claims["iat"] + LEEWAY_S else None


def methods(claims: dict[str, Any]) -> tuple[str, ...]:
    """Return ``amr``, sorted; empty if it is not as OpenID Connect Core 1.0 section 2 defines it, or too long."""
    found = claims.get("amr")
    if not isinstance(found, list) or len(found) > _MAX_METHODS:
        return ()
    if not all(isinstance(each, str) and len(each) <= MAX_VALUE and is_storable(each) for each in found):
        return ()
    return tuple(sorted({*found}))


def trusted_level(claims: dict[str, Any], trusted: Collection[TrustedFactor]) -> Level:
    """Return how strong a sign-in was, by the claims that a provider is trusted for; a password without any."""
    said = {("acr", claims.get("acr")) if isinstance(claims.get("acr"), str) else None}
    said |= {("amr", each) for each in methods(claims)}
    return strongest("password", *(each.level for each in trusted if (each.claim, each.value) in said)) or "password"


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store a text: it has neither NUL nor half of a surrogate pair."""
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)
