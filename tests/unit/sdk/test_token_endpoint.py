"""Token requests: the form, the client's authentication, and what the answers mean."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import unquote_plus

import httpx2 as httpx
import pytest

from stead import OAuthError, TokenResponse, Unavailable, client_credentials, exchange_subject_token
from tests.unit.sdk.http_server import Answer
from tests.unit.sdk.service import ACTOR_TOKEN, CLIENT_ID, CLIENT_SECRET, SUBJECT_TOKEN, Service

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


def exchange(service: Service, **changes: Any) -> TokenResponse:
    return exchange_subject_token(service.url, **{"client_id": CLIENT_ID, "subject_token": SUBJECT_TOKEN, **changes})


def test_a_public_client_sends_its_id_in_the_form_and_no_header(service: Service) -> None:
    """RFC 8693 section 2.1."""
    exchange(service, resource="https://api.example.com", scope="read:things")

    (sent,) = service.received
    assert (sent.method, sent.path) == ("POST", "/oidc/token")
    assert sent.headers["content-type"] == "application/x-www-form-urlencoded"
    assert "authorization" not in sent.headers
    assert "identity-revision" not in sent.headers
    assert sent.form == {
        "grant_type": [EXCHANGE],
        "client_id": [CLIENT_ID],
        "subject_token": [SUBJECT_TOKEN],
        "subject_token_type": [ACCESS_TOKEN],
        "resource": ["https://api.example.com"],
        "scope": ["read:things"],
    }


def test_an_actor_can_be_known_by_the_id_token_of_another_provider(service: Service) -> None:
    exchange(service, actor_id_token=ACTOR_TOKEN)

    (sent,) = service.received
    assert sent.form["actor_token"] == [ACTOR_TOKEN]
    assert sent.form["actor_token_type"] == ["urn:ietf:params:oauth:token-type:id_token"]


@pytest.mark.parametrize(
    "actor",
    [{"actor_token": ""}, {"actor_id_token": ""}, {"actor_token": ACTOR_TOKEN, "actor_id_token": ACTOR_TOKEN}],
)
def test_an_actor_whose_token_is_missing_is_not_left_out(service: Service, actor: dict[str, str]) -> None:
    """The token would not say then who acts."""
    with pytest.raises(ValueError, match="actor"):
        exchange(service, **actor)
    assert service.received == []


def test_a_confidential_client_sends_basic_an_actor_and_everything_else(service: Service) -> None:
    exchange(
        service,
        client_secret=CLIENT_SECRET,
        organization_id="org000000001",
        scope=["read:things", "write:things"],
        actor_token=ACTOR_TOKEN,
        revision="management:97, template:184",
    )

    (sent,) = service.received
    assert (
        sent.headers["authorization"] == "Basic " + base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
    )
    assert sent.headers["identity-revision"] == "management:97, template:184"
    assert sent.form == {
        "grant_type": [EXCHANGE],
        "client_id": [CLIENT_ID],
        "subject_token": [SUBJECT_TOKEN],
        "subject_token_type": [ACCESS_TOKEN],
        "actor_token": [ACTOR_TOKEN],
        "actor_token_type": [ACCESS_TOKEN],
        "organization_id": ["org000000001"],
        "scope": ["read:things write:things"],
    }


def test_client_credentials_for_a_resource_and_an_organization(service: Service) -> None:
    """RFC 6749 section 4.4.2."""
    client_credentials(
        service.url,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        resource="https://api.example.com",
        organization_id="org000000001",
        scope="read:things",
        revision="template:1",
    )

    (sent,) = service.received
    assert sent.headers["identity-revision"] == "template:1"
    assert sent.form == {
        "grant_type": ["client_credentials"],
        "resource": ["https://api.example.com"],
        "organization_id": ["org000000001"],
        "scope": ["read:things"],
    }


@pytest.mark.parametrize(
    ("client_id", "client_secret"),
    [("id", "secret"), ("a:b", "c:d"), ("a b", "100% + é & = ?"), ("ü", "~-_.*"), ("%3A", "\n\0"), ("日本", "語")],
)
def test_id_and_secret_are_form_urlencoded_before_base64(service: Service, client_id: str, client_secret: str) -> None:
    """RFC 6749 section 2.3.1: split at the first colon and decoded, both arrive as they were."""
    client_credentials(service.url, client_id=client_id, client_secret=client_secret)

    sent = service.received[0].headers["authorization"]
    encoded_id, _, encoded_secret = base64.b64decode(sent.removeprefix("Basic ")).decode("ascii").partition(":")
    assert ":" not in encoded_secret
    assert (unquote_plus(encoded_id), unquote_plus(encoded_secret)) == (client_id, client_secret)


@pytest.mark.parametrize(
    "revision", ["", "97", "management:", "other:1", "management:1\r\nX-Injected: 1", "management:1;"]
)
def test_a_malformed_revision_is_refused_before_anything_is_sent(service: Service, revision: str) -> None:
    """A revision is a header, and must not become two."""
    with pytest.raises(ValueError, match="revision"):
        exchange(service, revision=revision)
    assert service.received == []


def test_an_answer_says_what_was_issued(service: Service) -> None:
    """RFC 8693 section 2.2.1."""
    body = {
        "access_token": "header.payload.signature",
        "issued_token_type": ACCESS_TOKEN,
        "token_type": "bearer",
        "expires_in": 3600,
        "scope": "read:things",
        "new": 1,
    }
    service.token_answer = Answer(200, json.dumps(body).encode())

    assert exchange(service) == TokenResponse(
        access_token="header.payload.signature",
        issued_token_type=ACCESS_TOKEN,
        token_type="bearer",
        expires_in=3600,
        scope="read:things",
    )


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "invalid_request"),
        (401, "invalid_client"),
        (403, "access_denied"),
        (400, "invalid_target"),
        (429, "slow_down"),
    ],
)
def test_a_refusal_is_an_oauth_error(service: Service, status: int, error: str) -> None:
    """RFC 6749 section 5.2."""
    body = json.dumps(
        {"error": error, "error_description": "Because.", "code": f"oidc.{error}", "message": "m"}
    ).encode()
    service.token_answer = Answer(status, body, {"Retry-After": "7", "X-Request-Id": "req-1"})

    with pytest.raises(OAuthError) as refused:
        exchange(service)

    caught = refused.value
    assert (caught.error, caught.description, caught.status) == (error, "Because.", status)
    assert (caught.retry_after, caught.request_id, str(caught)) == (7, "req-1", f"{error}: Because.")


@pytest.mark.parametrize(
    ("members", "acr_values", "max_age_s"),
    [
        ({}, (), None),
        ({"max_age": 900}, (), 900),
        ({"acr_values": "urn:service:acr:mfa phr"}, ("urn:service:acr:mfa", "phr"), None),
        ({"acr_values": "phr", "max_age": 0}, ("phr",), 0),
    ],
)
def test_a_refusal_says_how_the_user_must_sign_in(
    service: Service, members: dict[str, Any], acr_values: tuple[str, ...], max_age_s: int | None
) -> None:
    service.token_answer = Answer(403, json.dumps({"error": "access_denied", **members}).encode())
    with pytest.raises(OAuthError) as refused:
        exchange(service)
    assert (refused.value.error, refused.value.acr_values, refused.value.max_age_s) == (
        "access_denied",
        acr_values,
        max_age_s,
    )
    assert refused.value.requires_sign_in == bool(members)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"error":7}', b'{"error":null}', b"\xff", b"[" * 5000]
)
def test_a_malformed_refusal_is_an_oauth_error_as_well(service: Service, body: bytes) -> None:
    service.token_answer = Answer(400, body)
    with pytest.raises(OAuthError) as refused:
        exchange(service)
    assert (refused.value.error, refused.value.status) == ("unexpected_answer", 400)


@pytest.mark.parametrize(
    "changes",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": "two\r\nlines"},
        {"access_token": "é"},
        {"access_token": 7},
        {"token_type": "DPoP"},
        {"token_type": None},
        {"expires_in": "3600"},
        {"expires_in": None},
        {"scope": ["x"]},
    ],
)
def test_a_malformed_success_is_refused_without_quoting_it(service: Service, changes: dict[str, Any]) -> None:
    """A token that cannot stand in a header would come back in the text of a transport error."""
    body = {"access_token": "secret-token", "token_type": "Bearer", "expires_in": 3600, "scope": ""} | changes
    service.token_answer = Answer(200, json.dumps({k: v for k, v in body.items() if v is not None}).encode())
    with pytest.raises(OAuthError) as refused:
        exchange(service)
    assert str(refused.value) == "unexpected_answer: the response does not come from a token endpoint"


def test_the_service_may_ask_for_a_later_retry(service: Service) -> None:
    service.token_answer = Answer(503, b'{"error":"temporarily_unavailable"}', {"Retry-After": "2"})
    with pytest.raises(Unavailable) as unavailable:
        exchange(service)
    assert (unavailable.value.retry_after, str(unavailable.value)) == (2, f"POST {service.url}/oidc/token: 503")
    assert len(service.received) == 1


def test_no_connection_is_unavailable() -> None:
    with Service() as gone:
        pass
    with pytest.raises(Unavailable, match="ConnectError"):
        exchange(gone)


def test_the_callers_own_client_sends_the_request_and_stays_open(service: Service) -> None:
    with httpx.Client(headers={"X-Proxy": "yes"}) as http:
        exchange(service, http=http)
        assert not http.is_closed
    assert service.received[0].headers["x-proxy"] == "yes"


def test_the_base_url_must_be_a_plain_http_url() -> None:
    with pytest.raises(ValueError, match="base_url"):
        exchange_subject_token("id.example.com", client_id="id", subject_token="token")
