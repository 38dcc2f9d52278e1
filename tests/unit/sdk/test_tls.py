"""The library's own connections verify the server, and read the trusted certificates only once."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpcore2
import httpx2 as httpx
import pytest

from stead import (
    AsyncIdentityClient,
    AsyncManagementClient,
    IdentityClient,
    ManagementClient,
    Unavailable,
    exchange_subject_token,
)
from stead._transport.tls import default_ssl_context


def exchange(address: str) -> object:
    return exchange_subject_token(address, client_id="c", client_secret="s", subject_token="sub_x", resource="r")


def list_users(address: str) -> object:
    with ManagementClient(address, client_id="c", client_secret="s") as client:
        return list(client.users.list())


def sign_in(address: str) -> object:
    with IdentityClient(address, "c") as client:
        url = client.sign_in_url("https://app.example.com/callback")
        state = parse_qs(urlsplit(url).query)["state"][0]
        return client.handle_callback(f"/callback?code=x&state={state}&iss={address}/oidc")


def test_the_server_is_verified() -> None:
    context = default_ssl_context()

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] > 0


@pytest.mark.parametrize("call", [exchange, list_users, sign_in])
def test_the_certificates_are_read_once_a_process(
    call: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    default_ssl_context()

    def read_again(*_: object, **__: object) -> ssl.SSLContext:
        raise AssertionError

    monkeypatch.setattr(httpcore2, "default_ssl_context", read_again)
    with pytest.raises(AssertionError):
        httpx.Client()
    with pytest.raises(Unavailable):
        call("http://127.0.0.1:9")


@pytest.mark.parametrize(
    "make",
    [
        lambda: AsyncIdentityClient("https://id.example.com", "c"),
        lambda: AsyncManagementClient("https://id.example.com", client_id="c", client_secret="s"),
    ],
)
def test_a_client_for_tasks_does_not_read_them_again(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    default_ssl_context()
    read: list[object] = []
    monkeypatch.setattr(httpcore2, "default_ssl_context", lambda **_: read.append(1))
    make()
    assert read == []
