"""RFC 8414, OAuth 2.0 Authorization Server Metadata, and OpenID Connect Discovery 1.0: one document, six addresses."""

from __future__ import annotations

from typing import Any

import pytest

from identity_common import oauth
from tests.support.world import World

GRANT_TYPES = {value for name, value in vars(oauth).items() if name.startswith("GRANT_")}
WELL_KNOWN = "/.well-known/oauth-authorization-server/oidc"
DISCOVERY = "/oidc/.well-known/openid-configuration"
ALSO = (
    "/.well-known/openid-configuration/oidc",
    "/oidc/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
)


def expected(issuer: str) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/auth",
        "token_endpoint": f"{issuer}/token",
        "userinfo_endpoint": f"{issuer}/me",
        "introspection_endpoint": f"{issuer}/token/introspection",
        "revocation_endpoint": f"{issuer}/token/revocation",
        "end_session_endpoint": f"{issuer}/session/end",
        "jwks_uri": f"{issuer}/jwks",
        "grant_types_supported": sorted(GRANT_TYPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "code_challenge_methods_supported": ["S256"],
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "ui_locales_supported": ["en", "de"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "scopes_supported": [
            *("account", "address", "email", "impersonations", "offline_access", "openid", "phone", "profile", "roles"),
            *("urn:service:scope:organization_roles", "urn:service:scope:organizations"),
        ],
        "acr_values_supported": ["urn:service:acr:password", "urn:service:acr:mfa", "phr"],
        "claims_supported": [
            *("acr", "address", "amr", "at_hash", "aud", "auth_time", "birthdate", "created_at"),
            *(
                "email",
                "email_verified",
                "exp",
                "family_name",
                "gender",
                "given_name",
                "iat",
                "iss",
                "locale",
                "middle_name",
                "name",
                "nickname",
                "nonce",
            ),
            *("organization_roles", "organizations", "phone_number", "picture", "preferred_username", "profile"),
            *("roles", "sid", "sub", "updated_at", "username", "website", "zoneinfo"),
        ],
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
        "authorization_response_iss_parameter_supported": True,
    }


@pytest.mark.parametrize("path", [WELL_KNOWN, DISCOVERY, *ALSO])
def test_the_document_lists_what_answers_today_and_nothing_else(world: World, path: str) -> None:
    """Section 2; section 3.1: the well-known part stands between host and path of the issuer."""
    answer = world.stack.http.get(path)

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.headers["Cache-Control"] == "max-age=300"
    assert answer.json() == expected(world.stack.issuer)


def test_the_issuer_is_the_one_in_tokens_and_in_the_address(world: World) -> None:
    """Section 3.3: the issuer MUST be identical to the one that the address was made of; no slash at the end."""
    document = world.stack.http.get(DISCOVERY).json()
    claims = world.claims(world.client_credentials().json()["access_token"], world.resource)

    assert document["issuer"] == claims["iss"] == f"{world.stack.base_url}/oidc"


def test_every_address_in_the_document_answers(world: World) -> None:
    document = world.stack.http.get(WELL_KNOWN).json()

    assert world.stack.http.get(document["jwks_uri"]).status_code == 200
    for name in ("token_endpoint", "introspection_endpoint", "revocation_endpoint"):
        refused = world.stack.http.post(document[name], data={"grant_type": "x"})
        assert refused.json()["error"] == "invalid_client"
    assert world.stack.http.get(document["userinfo_endpoint"]).status_code == 401
    assert world.stack.http.get(document["authorization_endpoint"]).status_code == 400
    assert world.stack.http.get(document["end_session_endpoint"]).status_code == 200


def test_every_published_key_is_of_a_listed_algorithm(world: World) -> None:
    keys = world.stack.http.get("/oidc/jwks").json()["keys"]
    document = world.stack.http.get(WELL_KNOWN).json()

    assert sorted({key["alg"] for key in keys}) == document["id_token_signing_alg_values_supported"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example.com"},
        {"X-Forwarded-Host": "evil.example.com", "X-Forwarded-Proto": "https"},
        {"Forwarded": "host=evil.example.com;proto=https"},
        {"X-Forwarded-Prefix": "/evil", "X-Original-URL": "/evil"},
    ],
)
@pytest.mark.parametrize("path", [WELL_KNOWN, DISCOVERY])
def test_no_header_changes_an_address(world: World, path: str, headers: dict[str, str]) -> None:
    """GHSA-7wfc-4796-gmg5, CVE-2023-36456: absolute addresses come from the settings alone."""
    assert world.stack.http.get(path, headers=headers).json() == expected(world.stack.issuer)


@pytest.mark.parametrize("authorization", ["Bearer x", "Basic x", "nonsense", ""])
def test_an_authorization_header_is_ignored(world: World, authorization: str) -> None:
    """The contract: some clients send one everywhere."""
    answer = world.stack.http.get(DISCOVERY, headers={"Authorization": authorization})

    assert (answer.status_code, answer.json()) == (200, expected(world.stack.issuer))


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-authorization-server/other",
        "/.well-known/openid-configuration/other",
        "/oidc/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server/oidc/x",
    ],
)
def test_there_is_no_document_of_another_issuer(world: World, path: str) -> None:
    """Section 3: one issuer."""
    answer = world.stack.http.get(path)

    assert (answer.status_code, answer.json()["code"]) == (404, "entity.not_found")


@pytest.mark.parametrize("path", [WELL_KNOWN, DISCOVERY])
def test_head_tells_what_get_would_answer(world: World, path: str) -> None:
    """RFC 9110 section 9.3.2: a client that only asks whether it exists, or has changed, need not fetch it."""
    asked, got = world.stack.http.head(path), world.stack.http.get(path)

    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["Content-Length"] == str(len(got.content))
    for name in ("Content-Type", "Cache-Control", "ETag", "Access-Control-Allow-Origin"):
        assert asked.headers[name] == got.headers[name]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_document_is_read_only(world: World, method: str) -> None:
    """Section 3.1: it is queried with GET."""
    answer = world.stack.http.request(method, DISCOVERY)

    assert (answer.status_code, answer.json()["code"]) == (405, "request.method_not_allowed")
