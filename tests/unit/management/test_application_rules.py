"""Redirect URIs and origins of applications, and names and expiry of their secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from management_service.applications.rules import (
    SecretCreation,
    is_origin,
    is_redirect_uri,
    secret_problems,
)
from tests.unit.uris import NOWHERE

EVERYWHERE = [
    "https://example.com",
    "https://example.com/cb",
    "https://example.com:8443/cb?a=b",
    "https://[2001:db8::1]/cb",
    "http://localhost/cb",
    "http://localhost:3000/cb",
    "http://127.0.0.1:1/cb",
    "http://127.9.9.9/cb",
    "http://[::1]:3000/cb",
]
NATIVE_ONLY = ["com.example.app:/cb", "com.example.app://cb", "io.x-y.z:cb"]


@pytest.mark.parametrize("application_type", ["Native", "SPA", "Traditional", "MachineToMachine"])
@pytest.mark.parametrize("uri", EVERYWHERE)
def test_https_and_http_on_loopback_can_be_redirect_uris_of_every_application(uri: str, application_type: str) -> None:
    assert is_redirect_uri(uri, application_type)  # type: ignore[arg-type]


@pytest.mark.parametrize("uri", NATIVE_ONLY)
def test_private_use_schemes_with_a_dot_are_for_native_applications(uri: str) -> None:
    """RFC 8252 section 7.1."""
    assert is_redirect_uri(uri, "Native")
    assert not is_redirect_uri(uri, "SPA")
    assert not is_redirect_uri(uri, "Traditional")


@pytest.mark.parametrize("uri", NOWHERE)
def test_nothing_else_is_a_redirect_uri(uri: str) -> None:
    assert not is_redirect_uri(uri, "Native")
    assert not is_redirect_uri(uri, "Traditional")


@pytest.mark.parametrize("origin", ["https://example.com", "https://example.com:8443", "http://localhost:3000"])
def test_valid_origins_are_accepted(origin: str) -> None:
    assert is_origin(origin)


@pytest.mark.parametrize(
    "origin", ["", "null", "*", "example.com", "https://example.com/", "https://example.com?x", "https://a@b.example",
               "https://*.example.com", "https://a;b.example", "ftp://example.com", "https://", "https://example.com:x"]
)  # fmt: skip
def test_invalid_origins_are_refused(origin: str) -> None:
    assert not is_origin(origin)


@given(st.text())
def test_any_text_is_judged_without_an_error(text: str) -> None:
    is_redirect_uri(text, "Native")
    is_redirect_uri(f"https://{text}", "Native")
    is_origin(f"https://{text}")


@pytest.mark.parametrize("name", ["first", "2026-11", "with space", "ü", "..."])
def test_valid_names_of_secrets_are_accepted(name: str) -> None:
    assert list(secret_problems(SecretCreation(name=name), now=0)) == []


@pytest.mark.parametrize("name", ["a/b", ".", "..", "zero\u200bwidth", "\x7f"])
def test_invalid_names_of_secrets_are_refused(name: str) -> None:
    assert [path for path, _ in secret_problems(SecretCreation(name=name), now=0)] == ["name"]


@pytest.mark.parametrize(("expires_at", "wrong"), [(999, True), (1000, True), (1001, False), (None, False)])
def test_a_secret_expires_in_the_future_or_never(expires_at: int | None, *, wrong: bool) -> None:
    found = [path for path, _ in secret_problems(SecretCreation(name="n", expires_at=expires_at), now=1000)]
    assert found == (["expiresAt"] if wrong else [])
