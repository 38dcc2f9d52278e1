"""Redirect URIs are compared character by character; loopback ports are free for native applications (RFC 8252 7.3)."""

import pytest

from token_service.sign_in.redirect_uris import form_action_source, is_registered, with_parameters

REGISTERED = ("https://app.example.com/callback", "http://127.0.0.1/cb", "com.example.app:/callback")


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "https://app.example.com/callback/",
        "https://app.example.com/callback?x=1",
        "https://app.example.com/callback#x",
        "https://app.example.com/Callback",
        "https://APP.example.com/callback",
        "https://app.example.com:443/callback",
        "https://app.example.com/%63allback",
        "https://app.example.com/../callback",
        "https://user@app.example.com/callback",
        "https://app.example.com@evil.example.com/callback",
        "https://app.example.com.evil.example.com/callback",
        "http://app.example.com/callback",
        "http://localhost:3000/cb",
        "http://127.0.0.1:65536/cb",
        "http://127.0.0.1:3000/cb/more",
        "http://127.0.0.1:3000@evil.example.com/cb",
        "http://127.0.0.1.evil.example.com/cb",
        "javascript:alert(1)",
        "",
    ],
)
def test_only_registered_uris_are_accepted(redirect_uri: str) -> None:
    assert not is_registered(redirect_uri, REGISTERED, is_native=True)


def test_registered_uris_are_accepted_and_loopback_ports_are_free_for_native_applications_only() -> None:
    assert all(is_registered(uri, REGISTERED, is_native=False) for uri in REGISTERED)
    assert is_registered("http://127.0.0.1:49152/cb", REGISTERED, is_native=True)
    assert not is_registered("http://127.0.0.1:49152/cb", REGISTERED, is_native=False)
    assert is_registered("http://[::1]:7/cb", ("http://[::1]:1/cb",), is_native=True)


def test_parameters_are_added_to_those_of_the_uri() -> None:
    assert with_parameters("https://a.example.com/cb", {"code": "a b"}) == "https://a.example.com/cb?code=a+b"
    assert with_parameters("https://a.example.com/cb?x=1", {"code": "c"}) == "https://a.example.com/cb?x=1&code=c"
    assert with_parameters("com.example.app:/cb", {"code": "c"}) == "com.example.app:/cb?code=c"


def test_the_policy_names_the_origin_of_the_redirect() -> None:
    assert form_action_source("https://a.example.com:8443/cb?x") == "https://a.example.com:8443"
    assert form_action_source("https://A.example.com:/cb") == "https://a.example.com"
    assert form_action_source("com.example.app:/cb") == "com.example.app:"
    assert form_action_source("http://[::1]:7/cb") == "http:"
