"""Which origins may read the answers of token-service in a browser."""

import httpx2 as httpx
import pytest

from tests.support.running_stack import RunningStack

EXPOSED = "ETag, Identity-Revision, Retry-After, WWW-Authenticate"


@pytest.mark.parametrize(
    "path", ["/oidc/jwks", "/oidc/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/oidc"]
)
def test_every_origin_may_read_public_documents(stack: RunningStack, path: str) -> None:
    answer = httpx.get(f"{stack.base_url}{path}", headers={"Origin": "https://anywhere.example"})
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Access-Control-Expose-Headers"] == EXPOSED
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/oidc/.well-known/openid-configuration", 200),
        ("/.well-known/oauth-authorization-server", 200),
        ("/.well-known/oauth-protected-resource", 404),
        ("/oidc/.well-known/nothing", 404),
    ],
)
def test_every_origin_may_look_for_metadata_with_any_header(stack: RunningStack, path: str, status: int) -> None:
    """Clients in pages probe several addresses, with headers of their own protocol; without CORS a 404 looks like a
    failed connection."""
    origin = {"Origin": "https://anywhere.example"}
    asked = {**origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "mcp-protocol-version"}
    preflight = httpx.options(f"{stack.base_url}{path}", headers=asked)
    answer = httpx.get(f"{stack.base_url}{path}", headers={**origin, "MCP-Protocol-Version": "2025-06-18"})
    assert (preflight.status_code, answer.status_code) == (204, status)
    assert preflight.headers["Access-Control-Allow-Headers"] == "*, Authorization"
    assert {each.headers["Access-Control-Allow-Origin"] for each in (preflight, answer)} == {"*"}


def test_other_paths_below_it_are_not_public(stack: RunningStack) -> None:
    answer = httpx.get(f"{stack.base_url}/oidc/nothing/.well-known/x", headers={"Origin": "https://anywhere.example"})
    assert (answer.status_code, "Access-Control-Allow-Origin" in answer.headers) == (404, False)


def test_a_preflight_of_a_registered_origin_is_answered(stack: RunningStack) -> None:
    answer = _preflight(stack, stack.base_url)
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == stack.base_url
    allowed = (
        "Authorization, Content-Type, If-Match, If-None-Match, Prefer, Identity-Revision, X-Requested-With,"
        " traceparent, tracestate"
    )
    assert answer.headers["Access-Control-Allow-Headers"] == allowed
    assert answer.headers["X-Request-Id"]
    assert answer.headers["Vary"] == "Origin"
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example"])
def test_a_preflight_of_another_origin_is_not_allowed(stack: RunningStack, origin: str) -> None:
    answer = _preflight(stack, origin)
    assert answer.status_code == 204
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Vary"] == "Origin"


def test_an_origin_may_read_the_answers_and_errors_of_its_own_client_only(stack: RunningStack) -> None:
    spa = stack.credentials.spa.client_id
    for client_id, permitted in ((spa, True), (stack.traditional[0], False)):
        answer = stack.token_request({"grant_type": "nonsense", "client_id": client_id}, Origin=stack.base_url)
        assert answer.status_code in {400, 401}
        assert ("Access-Control-Allow-Origin" in answer.headers) is permitted
        assert answer.headers["Vary"] == "Origin"


def test_origins_that_an_application_allows_may_request_its_tokens(stack: RunningStack) -> None:
    application = stack.management.applications.create(
        name="With a page elsewhere",
        type="SPA",
        custom_client_metadata={"allowTokenExchange": True, "corsAllowedOrigins": ["https://page.example"]},
    )
    form: dict[str, str | list[str]] = {"grant_type": "nonsense", "client_id": application.id}
    answer = stack.token_request(form, Origin="https://page.example")
    assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
    stack.management.applications.delete(application.id)


def _preflight(stack: RunningStack, origin: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    return httpx.options(f"{stack.base_url}/oidc/token", headers=headers)
