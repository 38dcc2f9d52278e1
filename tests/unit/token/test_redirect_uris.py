"""Redirect URIs are compared character by character; loopback ports are free for native applications (RFC 8252 7.3)."""

from typing import Any

import pytest

from identity_common.wire.events import ApplicationState
from token_service.sign_in.redirect_uris import (
    destination,
    home_of,
    is_registered,
    with_parameters,
)

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


@pytest.mark.parametrize(
    ("kind", "uris", "home"),
    [
        ("SPA", ["https://app.example.com/cb?a=1"], "https://app.example.com/"),
        ("Traditional", ["http://localhost:3000/cb", "https://a.example:8443/cb", "https://b.example/"], "https://a.example:8443/"),
        ("SPA", ["http://[::1]:3000/cb"], "http://[::1]:3000/"),
        ("SPA", [], None),
        ("Native", ["https://app.example.com/cb", "com.example:/cb"], None),
        ("MachineToMachine", ["https://app.example.com/cb"], None),
    ],
)  # fmt: skip
def test_the_site_of_a_web_application_is_that_of_its_redirect_uris(
    kind: Any, uris: list[str], home: str | None
) -> None:
    assert home_of(ApplicationState(id="a1", type=kind, redirect_uris=tuple(uris))) == home


@pytest.mark.parametrize(
    ("after_sign_out", "home"),
    [
        (["https://example.com/shop"], "https://example.com/shop"),
        (["https://example.com/shop/", "https://example.com/shop/cb"], "https://example.com/shop/"),
        (["https://example.com/sh", "https://example.com/bye"], "https://example.com/"),
        (["https://example.com"], "https://example.com"),
        (["https://example.com.evil.example/", "https://other.example/shop"], "https://example.com/"),
    ],
)
def test_the_first_page_of_an_application_below_a_path_is_that_of_its_signed_out_users(
    after_sign_out: list[str], home: str
) -> None:
    """The console and the account page share their origin with pages that are not theirs."""
    application = ApplicationState(
        id="a1",
        type="Traditional",
        redirect_uris=("https://example.com/shop/cb", "https://example.com/account/cb"),
        post_logout_redirect_uris=tuple(after_sign_out),
    )
    assert home_of(application) == home


@pytest.mark.parametrize(
    ("redirect_uri", "is_native", "host"),
    [
        ("https://app.example.com/cb", False, "app.example.com"),
        ("https://app.example.com:8443/cb", True, "app.example.com:8443"),
        ("http://localhost:3000/cb", False, "localhost:3000"),
        ("http://127.0.0.1:41999/cb", True, None),
        ("com.example.app:/cb", True, None),
    ],
)
def test_the_user_reads_the_host_that_the_browser_goes_to(
    redirect_uri: str, *, is_native: bool, host: str | None
) -> None:
    assert destination(redirect_uri, is_native=is_native) == host
