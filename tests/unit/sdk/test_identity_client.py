"""The identity client and the rules for ID tokens, without a service; with one: e2e/test_identity_client.py."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from stead import AsyncIdentityClient, IdentityClient, MemoryStorage, SignInRequired, TokenInvalid
from stead.sign_in.id_token import check_id_token, read_id_token, require_requested_sign_in
from stead.verify.keys import KeySet
from tests.unit.sdk.issuer import ISSUER, NOW, SigningKey, jwks, token

CLIENT_ID = "client000000000000001"
KEY = SigningKey("current")
KEYS = KeySet.parse(jwks(KEY))


def subject_of(**changes: Any) -> str:
    """Return the subject of an ID token with these changes, at the time ``NOW``."""
    id_token = read_id_token(token(KEY, header={"typ": "JWT"}, aud=CLIENT_ID, **changes))
    claims = check_id_token(
        id_token, keys=KEYS, issuer=ISSUER, client_id=CLIENT_ID, access_token=None, nonce=None, now=NOW
    )
    return str(claims["sub"])


def test_a_good_id_token_is_accepted() -> None:
    assert subject_of() == "user00000001"


@pytest.mark.parametrize(
    "expires_at",
    [None, True, "1800003600", -1, 2**53, 10**400, {}],
    ids=["missing", "a boolean", "a string", "negative", "too large", "of 400 digits", "an object"],
)
def test_an_expiry_that_is_not_a_date_is_refused(expires_at: object) -> None:
    """RFC 7519 section 2: a NumericDate is a number; this library accepts those that a double holds exactly."""
    with pytest.raises(TokenInvalid) as refused:
        subject_of(exp=expires_at)
    assert refused.value.reason == "invalid_claims"


class Sized(MemoryStorage):
    """A storage that is falsy while it is empty, like the session of many web frameworks."""

    def __len__(self) -> int:
        return len(self._values)


@pytest.mark.parametrize("kind", [IdentityClient, AsyncIdentityClient])
def test_a_storage_is_used_even_if_it_is_empty(kind: type[IdentityClient | AsyncIdentityClient]) -> None:
    storage = Sized()
    kind("https://id.example.com", CLIENT_ID, storage=storage).sign_in_url("https://app.example.com/callback")
    assert len(storage) == 1


@pytest.mark.parametrize("kind", [IdentityClient, AsyncIdentityClient])
def test_a_request_that_is_too_long_for_a_url_is_a_form(kind: type[IdentityClient | AsyncIdentityClient]) -> None:
    storage, back = MemoryStorage(), "https://app.example.com/callback"
    scopes, resources = [f"{number:03}".ljust(128, ":") for number in range(300)], ["https://a.test", "https://b.test"]
    client = kind("https://id.example.com", CLIENT_ID, scopes=scopes, resources=resources, storage=storage)
    with pytest.raises(ValueError, match="use sign_in_form"):
        client.sign_in_url(back)
    assert storage.get(f"{client.state._key}:sign-ins") is None
    form = client.sign_in_form(back, "consent", login_hint="ada")
    assert form.action == "https://id.example.com/oidc/auth"
    assert [value for name, value in form.fields if name == "resource"] == resources
    fields = dict(form.fields)
    assert fields["scope"].split(" ") == ["openid", "offline_access", "profile", *scopes]
    assert (fields["prompt"], fields["login_hint"], fields["redirect_uri"]) == ("consent", "ada", back)
    short = kind("https://id.example.com", CLIENT_ID, resources=resources, storage=storage)
    url = urlsplit(short.sign_in_url(back))
    assert [name for name, _ in parse_qsl(url.query)] == [name for name, _ in short.sign_in_form(back).fields]


@pytest.mark.parametrize("kind", [IdentityClient, AsyncIdentityClient])
@pytest.mark.parametrize("acr_values", ["urn:service:acr:mfa phr", ["urn:service:acr:mfa", "phr"]])
def test_a_sign_in_may_have_to_be_recent_and_strong(
    kind: type[IdentityClient | AsyncIdentityClient], acr_values: str | list[str]
) -> None:
    """OpenID Connect Core 1.0 section 3.1.2.1; 0 is an age, too."""
    client, back = kind("https://id.example.com", CLIENT_ID), "https://app.example.com/callback"
    asked = dict(parse_qsl(urlsplit(client.sign_in_url(back, acr_values=acr_values, max_age=0)).query))
    assert (asked["acr_values"], asked["max_age"]) == ("urn:service:acr:mfa phr", "0")
    assert {"acr_values", "max_age"}.isdisjoint(dict(client.sign_in_form(back).fields))


MFA = "urn:service:acr:mfa"


@pytest.mark.parametrize(
    ("said", "acr_values", "max_age", "reason"),
    [
        ({}, (), None, None),
        ({"acr": MFA, "auth_time": NOW - 660}, (MFA,), 600, None),
        ({"acr": "phr"}, (MFA,), None, None),
        ({"acr": "gold"}, ("gold", MFA), None, None),
        ({"auth_time": NOW - 61}, (), 0, "sign_in_too_old"),
        ({"auth_time": NOW - 661, "acr": MFA}, (MFA,), 600, "sign_in_too_old"),
        ({}, (), 600, "invalid_claims"),
        ({"auth_time": "now"}, (), 600, "invalid_claims"),
        ({"acr": "urn:service:acr:password"}, (MFA, "phr"), None, "sign_in_too_weak"),
        ({"acr": [MFA]}, (MFA,), None, "sign_in_too_weak"),
        ({}, (MFA,), None, "sign_in_too_weak"),
    ],
)
def test_a_sign_in_that_is_older_or_weaker_than_requested_is_refused(
    said: dict[str, Any], acr_values: tuple[str, ...], max_age: int | None, reason: str | None
) -> None:
    """OpenID Connect Core 1.0 section 3.1.3.7, steps 12 and 13: the browser can change the request."""
    try:
        require_requested_sign_in(said, acr_values=acr_values, max_age=max_age, now=NOW)
    except (SignInRequired, TokenInvalid) as refused:
        assert refused.reason == reason
    else:
        assert reason is None
