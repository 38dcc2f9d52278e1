"""The identity client and the rules for ID tokens, without a service; with one: e2e/test_identity_client.py."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from stead import AsyncIdentityClient, IdentityClient, MemoryStorage, TokenInvalid
from stead.sign_in.id_token import check_id_token, read_id_token
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
