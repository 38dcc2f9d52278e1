"""Bad input on every route that takes a body: always a 4xx in the common format, never a 5xx."""

import json
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
import pytest_asyncio

from management_service.app import create_app
from tests.support.connectors import stored_connector
from tests.support.factors import stored_passkey
from tests.support.invalid_bodies import invalid_bodies
from tests.support.management_api import Management, issues, refusal, settings_for

GOOD = {
    "POST /api/subject-tokens": {"userId": "nobody"},
    "POST /api/users": {"name": "n"},
    "PATCH /api/users/{user_id}": {"name": "n"},
    "PATCH /api/users/{user_id}/is-suspended": {"isSuspended": False},
    "PATCH /api/users/{user_id}/password": {"password": "a good password"},
    "POST /api/users/{user_id}/invitation": {"minutes": 1},
    "POST /api/users/{user_id}/factors/reset": {"reason": "A lost phone."},
    "POST /api/users/{user_id}/identities": {"connectorId": "x", "value": "y"},
    "POST /api/sso-connectors": {
        "providerName": "OIDC",
        "connectorName": "n",
        "config": {"issuer": "https://n.example.com"},
    },
    "PATCH /api/sso-connectors/{connector_id}": {"connectorName": "n"},
    "POST /api/invitations/accept": {"invitation": "x", "password": "a good password"},
    "PATCH /api/users/{user_id}/custom-data": {"customData": {}},
    "POST /api/users/{user_id}/roles": {"roleIds": ["x"]},
    "PUT /api/users/{user_id}/roles": {"roleIds": []},
    "POST /api/applications": {"name": "n", "type": "SPA"},
    "PATCH /api/applications/{application_id}": {"name": "n"},
    "POST /api/applications/{application_id}/secrets": {"name": "n"},
    "PATCH /api/applications/{application_id}/secrets/{secret_name}": {"name": "n"},
    "POST /api/applications/{application_id}/roles": {"roleIds": ["x"]},
    "PUT /api/applications/{application_id}/roles": {"roleIds": []},
    "POST /api/resources": {"name": "n", "indicator": "https://n.example.com"},
    "PATCH /api/resources/{resource_id}": {"name": "n"},
    "PATCH /api/resources/{resource_id}/is-default": {"isDefault": False},
    "POST /api/resources/{resource_id}/scopes": {"name": "n"},
    "PATCH /api/resources/{resource_id}/scopes/{scope_id}": {"name": "n"},
    "POST /api/impersonations/end": {"userId": "x"},
    "POST /api/roles": {"name": "n", "description": "", "type": "User"},
    "PATCH /api/roles/{role_id}": {"name": "n"},
    "POST /api/roles/{role_id}/scopes": {"scopeIds": ["x"]},
    "PUT /api/roles/{role_id}/scopes": {"scopeIds": []},
    "POST /api/roles/{role_id}/users": {"userIds": ["x"]},
    "PUT /api/roles/{role_id}/users": {"userIds": []},
    "POST /api/roles/{role_id}/applications": {"applicationIds": ["x"]},
    "PUT /api/roles/{role_id}/applications": {"applicationIds": []},
    "PATCH /api/my-account": {"name": "n"},
    "PATCH /api/my-account/profile": {"locale": "de"},
    "POST /api/my-account/primary-email": {"email": "n@example.com"},
    "POST /api/my-account/password": {"password": "a good password"},
    "PATCH /api/my-account/factors/{factor_id}": {"name": "n"},
    "PATCH /api/configs/impersonation": {"requireActor": False},
    "PATCH /api/configs/sign-in": {"registration": "off"},
    "PUT /api/configs/jwt-customizer/{kind}": {"blockIssuanceOnError": False, "script": ""},
    "PATCH /api/configs/jwt-customizer/{kind}": {"blockIssuanceOnError": False},
    "POST /api/configs/jwt-customizer/test": {"tokenType": "access-token", "script": "", "token": {}, "context": {}},
    "POST /api/configs/jwt-customizer/{kind}/dry-run": {"environmentVariables": {}, "script": ""},
    "POST /api/configs/jwt-customizer/{kind}/recording": {"minutes": 1},
}
"""Every route with a body, and a valid body for it."""
ELSEWHERE = {
    "PATCH /api/applications/{application_id}/custom-data",
    "POST /api/logs/keys/rotate",
    "POST /api/users/import",
    "POST /api/impersonations/{impersonation_id}/end",
    "POST /oidc/me/impersonations/{impersonation_id}/end",
    "POST /api/my-account/impersonations/{impersonation_id}/end",
}
"""Any object is a valid body for the first, one has JSON lines, and the others need none."""


@pytest_asyncio.fixture(scope="module")
async def ids(management: Management) -> AsyncIterator[dict[str, str]]:
    """An id for every path parameter; none of these tests changes what it names."""
    user = (await management.created("users"))["id"]
    application = await management.machine()
    resource = await management.created("resources", name="n", indicator=f"https://{user}.example.com")
    scope = await management.created(f"resources/{resource['id']}/scopes", name="first")
    await management.created(f"applications/{application}/secrets", name="first")
    role = await management.created("roles", name=user, description="", type="User")
    yield {
        "user_id": user,
        "factor_id": await stored_passkey(management.database, management.tenant_id, user),
        "connector_id": await stored_connector(management.database, management.tenant_id),
        "application_id": application,
        "secret_name": "first",
        "resource_id": resource["id"],
        "scope_id": scope["id"],
        "role_id": role["id"],
        "kind": "access-token",
    }
    for path in (f"users/{user}", f"applications/{application}", f"resources/{resource['id']}", f"roles/{role['id']}"):
        await management.client.delete(f"/api/{path}")


@pytest.fixture(params=GOOD)
def target(request: pytest.FixtureRequest, ids: dict[str, str]) -> tuple[str, str]:
    """Return method and path of a route."""
    method, _, path = request.param.partition(" ")
    return method, path.format(**ids)


@pytest_asyncio.fixture
async def caller(
    management: Management, target: tuple[str, str], ids: dict[str, str]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that may call the route."""
    is_own = target[1].startswith("/api/my-account")
    async with management.client_with(management.own_token(ids["user_id"]) if is_own else management.token()) as client:
        yield client


def good_body(request: pytest.FixtureRequest) -> bytes:
    return json.dumps(GOOD[request.node.callspec.params["target"]]).encode()


async def test_the_table_names_every_route_with_a_body(management: Management) -> None:
    document = (await management.client.get("/schema")).json()
    with_body = {
        f"{method.upper()} {path}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "requestBody" in operation
    }
    assert with_body == GOOD.keys() | ELSEWHERE


async def test_a_body_that_is_not_strict_json_is_refused(
    management: Management, caller: httpx.AsyncClient, target: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    method, path = target
    good = good_body(request)
    before = await management.revision()
    for body in (
        *invalid_bodies(good),
        good[:-1] + b',"more":NaN}',
        good[:-1] + b',"more":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b"{" + b'"x":1,' * 1000 + good[1:],
    ):
        answer = await caller.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert issues(answer), body[:100]
    assert await management.revision() == before


async def test_a_missing_body_is_named(management: Management) -> None:
    answer = await management.client.post("/api/users")
    assert refusal(answer) == (400, "guard.invalid_input")
    assert answer.json()["data"]["issues"] == [{"path": "", "message": "a body is required"}]


async def test_a_value_of_a_megabyte_is_refused(
    caller: httpx.AsyncClient, target: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    method, path = target
    members = GOOD[request.node.callspec.params["target"]]
    name = next(iter(members))
    answer = await caller.request(method, path, json={**members, name: "x" * 1_000_000})
    assert answer.status_code in {400, 404}
    assert answer.json()["code"] in {"guard.invalid_input", "entity.relation_foreign_key_not_found"}
    huge = await caller.request(
        method, path, content=b'{"a":"' + b"x" * 5_000_000 + b'"}', headers={"Content-Type": "application/json"}
    )
    assert refusal(huge) == (413, "request.too_large")


async def test_another_content_type_is_refused(
    caller: httpx.AsyncClient, target: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    method, path = target
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        answer = await caller.request(method, path, content=good_body(request), headers={"Content-Type": content_type})
        assert refusal(answer) == (415, "request.unsupported_media_type"), content_type
    with_charset = await caller.request(
        method, path, content=b"{]", headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert issues(with_charset)


async def test_another_method_is_refused_and_the_allowed_ones_are_named(management: Management) -> None:
    for method, path, allowed in (
        ("PUT", "/api/users", {"GET", "HEAD", "POST"}),
        ("GET", "/api/subject-tokens", {"POST"}),
        ("DELETE", "/api/subject-tokens", {"POST"}),
        ("POST", "/api/users/x/password", {"PATCH"}),
        ("HEAD", "/api/subject-tokens", {"POST"}),
        ("PATCH", "/api/roles/x/scopes", {"GET", "HEAD", "POST", "PUT"}),
    ):
        answer = await management.client.request(method, path)
        assert answer.status_code == 405
        assert method == "HEAD" or refusal(answer) == (405, "request.method_not_allowed")
        assert set(answer.headers["Allow"].replace(" ", "").split(",")) - {"OPTIONS"} == allowed


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/users", "GET, HEAD, OPTIONS, POST"),
        ("/api/users/x", "DELETE, GET, HEAD, OPTIONS, PATCH"),
        ("/api/users/x/roles", "GET, HEAD, OPTIONS, POST, PUT"),
        ("/api/subject-tokens", "OPTIONS, POST"),
    ],
)
async def test_options_names_every_method_of_a_path_without_a_token(
    management: Management, path: str, allowed: str
) -> None:
    async with management.client_with(None) as anonymous:
        answer = await anonymous.options(path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert ", ".join(sorted(answer.headers["Allow"].replace(" ", "").split(","))) == allowed
        assert refusal(await anonymous.options("/api/nothing")) == (404, "entity.not_found")


@pytest.mark.parametrize(
    "path",
    ["/", "/api", "/api/nothing", "/api/users/a/b", "/api/organizations", "/API/users", "/api/users/x/roles/y/z",
     "/.env", "/docs"],
)  # fmt: skip
async def test_an_unknown_path_is_a_404_with_a_code_and_a_request_id(management: Management, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = await management.client.request(method, path)
        assert refusal(answer) == (404, "entity.not_found")
        assert len(answer.headers["X-Request-Id"]) == 32


async def test_an_id_is_opaque_and_a_malformed_one_is_not_found(management_api: httpx.AsyncClient) -> None:
    for segment in ("%20", "..%2e", "%ff%fe", "%F0%9F%98%80", "x" * 5000, "';--", "%25", "%0a"):
        for kind in ("users", "applications", "resources", "roles"):
            answer = await management_api.get(f"/api/{kind}/{segment}")
            assert refusal(answer) == (404, "entity.not_exists_with_id"), segment
    assert refusal(await management_api.get("/api/users/%00")) == (400, "guard.invalid_input")
    assert refusal(await management_api.delete("/api/users/a%00b/roles/c")) == (400, "guard.invalid_input")


async def test_a_caller_s_request_id_is_kept_if_it_is_well_formed(management_api: httpx.AsyncClient) -> None:
    kept = await management_api.get("/api/users", headers={"X-Request-Id": "mine-42"})
    assert kept.headers["X-Request-Id"] == "mine-42"
    for wrong in ("with space", "x" * 65, "<script>"):
        answer = await management_api.get("/api/users", headers={"X-Request-Id": wrong})
        assert answer.headers["X-Request-Id"] != wrong


@pytest.mark.heavy
async def test_the_document_of_the_api_names_every_route_once(management: Management) -> None:
    document = (await management.client.get("/schema")).json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    assert all(operation["summary"] for operation in operations)
    app = create_app(settings_for(management.addresses, management.issuer))
    routes = {route.path_format for route in app.routes if route.path.startswith(("/api", "/oidc/me"))}
    pages = {path for path in routes if path.startswith("/api/reference")}
    assert document["paths"].keys() == routes - pages


async def test_a_refusal_never_echoes_the_request(management_api: httpx.AsyncClient) -> None:
    for body in (
        {"name": "n", "type": "x" * 100_000},
        {"name": "n", "type": "SPA", "oidcClientMetadata": {"x" * 100_000: 1}},
        {"name": "n", "type": "SPA", "x" * 100_000: 1},
    ):
        answer = await management_api.post("/api/applications", json=body)
        assert issues(answer)
        assert len(answer.content) < 1000
