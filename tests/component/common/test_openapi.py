"""The OpenAPI documents: complete, true to the routes, and the merged one is up to date."""

import functools
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import httpx2 as httpx
import jsonschema_rs
import pytest
from litestar import Controller
from litestar.routes import ASGIRoute, HTTPRoute

from all_in_one.openapi import whole_document
from identity_common.http.direct_answers import plan_of
from identity_common.http.openapi.document import at_address, document, merged
from identity_common.http.routing import service_for
from management_service.app import SWAGGER
from tests.support.management_api import Management, refusal
from tests.support.running_stack import RunningStack
from tests.support.world import MANAGEMENT_API
from token_service.grants.oauth_errors import ErrorCode

DOCUMENT: dict[str, Any] = json.loads(SWAGGER.read_bytes())
OPERATIONS = {
    operation["operationId"]: (path, method, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}
EFFECTIVE_PERMISSIONS = {"ListOrganizationUserScopes", "ListOrganizationApplicationScopes"}
WITH_CURSORS = {"ListLogs", "ListImpersonations", "ListUserImpersonations", "ListOwnAccountImpersonations"}
ANSWERED_WHOLE = {
    *("ListLogFigures", "ListLogKeys", "RotateLogKeys", "ListUserConsents", "AddRoleScopes", "ListOwnConsents"),
    *(*EFFECTIVE_PERMISSIONS, *WITH_CURSORS),
}
WITHOUT_SEARCH = {"ListOwnSessions", "ListUserSessions"}
STREAMED = {"ExportLogLeaves", "ExportLogs", "ExportAffectedMembers", "ImportUsers"}
WITHOUT_REVISION = {
    *(
        "TestClaimsFunction",
        "DryRunClaimsFunction",
        "RecordClaimsFunctionInputs",
        "CreateSubjectToken",
        "TestConnector",
    ),
    *("RotateNotValidKeys", "RotatePrivateKeys", "DeletePrivateKey", "RotateLogKeys"),
    *("ListAffectedMembers", "ExportAffectedMembers"),
    *("DeleteUserConsent", "WithdrawOwnConsent", "EndUserSession", "EndOwnSession"),
    *("CreateUserInvitation", "DeleteUserInvitation", "ClearUserSignInAttempts"),
    "SendUserVerificationEmail",
    "UpdateOwnPrimaryEmail",
}
"""Operations other than GET that publish no event."""
MANAGED = [
    name
    for name, (path, _, operation) in OPERATIONS.items()
    if {"bearer": []} in operation.get("security", []) and path.startswith("/api/")
]


def validator(schema: dict[str, Any]) -> Any:
    """Return a validator of a schema of the document; most headers and errors share theirs."""
    return _validator(json.dumps(schema))


@functools.cache
def _validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator({**json.loads(schema), "components": DOCUMENT["components"]})


def contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every body of an operation, the request's first."""
    for described in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from described.get("content", {}).values()


def examples(content: dict[str, Any]) -> list[Any]:
    """Return the examples of a body: one, or several with names."""
    return [content["example"]] if "example" in content else [each["value"] for each in content["examples"].values()]


@pytest.mark.heavy
def test_the_merged_document_is_up_to_date() -> None:
    assert SWAGGER.read_bytes() == whole_document(), "make openapi"


def test_every_operation_has_a_unique_id_a_summary_and_a_description() -> None:
    everything = [operation for operations in DOCUMENT["paths"].values() for operation in operations.values()]
    assert len(everything) == len(OPERATIONS)
    for operation in everything:
        assert operation["summary"]
        assert operation["description"]


def test_every_member_and_every_parameter_is_described() -> None:
    """The docstring of a struct describes its members, in the section Attributes."""
    silent = [
        f"{name}.{member}"
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for member, described in schema.get("properties", {}).items()
        if not described.get("description")
    ]
    silent += [
        f"{name}: {parameter['name']}"
        for name, (_, _, operation) in OPERATIONS.items()
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert silent == []


def test_no_example_has_a_placeholder() -> None:
    assert '"text"' not in json.dumps(DOCUMENT["paths"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_body_has_a_schema_and_a_valid_example(name: str) -> None:
    _, _, operation = OPERATIONS[name]
    for content in contents(operation):
        assert examples(content)
        for example in examples(content):
            validator(content["schema"]).validate(example)
    for parameter in operation.get("parameters", ()):
        assert ("example" in parameter) is parameter.get("required", False)  # "Try it out" sends it
        (example,) = [parameter["example"]] if "example" in parameter else parameter["schema"]["examples"]
        validator(parameter["schema"]).validate(example)
    for response in operation["responses"].values():
        for found in response["headers"].values():
            name = found.get("$ref", "").rpartition("/")[2]
            header = DOCUMENT["components"]["headers"][name] if name else found
            validator(header["schema"]).validate(header["example"])


@pytest.mark.parametrize("name", [name for name, (_, _, found) in OPERATIONS.items() if "requestBody" in found])
def test_every_request_body_refuses_unknown_members(name: str) -> None:
    if OPERATIONS[name][0].startswith("/oidc/"):  # RFC 6749 section 3.2: unknown parameters are ignored
        return
    (content,) = OPERATIONS[name][2]["requestBody"]["content"].values()
    schema = content["schema"]
    if name == "UpdateApplicationCustomData":  # free-form: the caller chooses the members
        assert schema == {"type": "object"}
        return
    assert not validator(schema).is_valid({"no such member": 1})


@pytest.mark.parametrize("name", MANAGED)
def test_every_operation_of_the_management_api_documents_all_its_answers(name: str) -> None:
    path, method, operation = OPERATIONS[name]
    responses = operation["responses"]
    expected = {"400", "401", "403", "500", "503"}
    expected |= {"304"} if method == "get" and name not in STREAMED else set()
    expected |= {"404"} if "{" in path else set()
    expected |= {"413", "415"} if "requestBody" in operation else set()
    assert responses.keys() >= expected
    for status, response in responses.items():
        headers = response["headers"].keys()
        assert "X-Request-Id" in headers
        assert ("WWW-Authenticate" in headers) is (status in {"401", "403"})
        assert ("Retry-After" in headers) is (status in {"429", "503"})
        if int(status) >= 400:
            assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
    success = next(response for status, response in responses.items() if status.startswith("2"))
    assert ("ETag" in success["headers"]) is (method == "get" and name not in STREAMED)
    says_revision = name in EFFECTIVE_PERMISSIONS or (method != "get" and name not in WITHOUT_REVISION)
    assert ("Identity-Revision" in success["headers"]) is says_revision
    lists = (
        "content" in success
        and name not in STREAMED
        and success["content"]["application/json"]["schema"].get("type") == "array"
    )
    if lists and "configs" not in path and name not in ANSWERED_WHOLE:
        assert {"Total-Number", "Link"} <= success["headers"].keys()
        parameters = {"page", "page_size"} if name in WITHOUT_SEARCH else {"page", "page_size", "q", "search"}
        assert parameters <= {found["name"] for found in operation["parameters"]}


def test_the_body_of_a_subject_token_is_described_although_its_handler_parses_it_itself() -> None:
    _, _, operation = OPERATIONS["CreateSubjectToken"]
    assert operation["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/SubjectTokenCreation"
    }
    assert {"201", "404", "413", "422"} <= operation["responses"].keys()
    assert "Identity-Revision" not in operation["responses"]["201"]["headers"]


def test_the_body_of_a_rotation_is_optional_and_its_refusals_are_described() -> None:
    _, _, operation = OPERATIONS["RotatePrivateKeys"]
    assert operation["requestBody"]["required"] is False
    assert {"400", "413", "415", "422"} <= operation["responses"].keys()


def test_the_token_endpoint_is_described_for_every_grant_and_every_refusal(stack: RunningStack) -> None:
    path, method, operation = OPERATIONS["Token"]
    assert (path, method) == ("/oidc/token", "post")
    forms = operation["requestBody"]["content"]["application/x-www-form-urlencoded"]
    supported = stack.http.get("/oidc/.well-known/openid-configuration").json()["grant_types_supported"]
    assert sorted(forms["schema"]["discriminator"]["mapping"]) == supported
    assert {example["grant_type"] for example in examples(forms)} == set(supported)
    assert operation["responses"].keys() == {"200", "400", "401", "403", "415", "429", "500", "503"}
    refused = [response for status, response in operation["responses"].items() if status != "200"]
    codes = {example["error"] for response in refused for example in examples(response["content"]["application/json"])}
    assert codes == {*get_args(ErrorCode)} - {"invalid_token"}  # of userinfo
    for status, response in operation["responses"].items():
        assert {"X-Request-Id", "Cache-Control", "Pragma"} <= response["headers"].keys()
        assert ("WWW-Authenticate" in response["headers"]) is (status == "401")
        assert ("Retry-After" in response["headers"]) is (status in {"429", "503"})
    schemes = {name for each in operation["security"] for name in each}
    assert schemes <= DOCUMENT["components"]["securitySchemes"].keys()


def test_conflicting_names_cannot_be_merged() -> None:
    first = {"info": {}, "paths": {}, "components": {"schemas": {"A": {"type": "string"}}}}
    second = {"paths": {}, "components": {"schemas": {"A": {"type": "integer"}}}}
    with pytest.raises(ValueError, match="A means different things"):
        merged([first, second], title="t")
    get: dict[str, Any] = {"get": {"operationId": "Get"}}
    with pytest.raises(ValueError, match="operationId"):
        merged([{"info": {}, "paths": {"/a": get, "/b": get}, "components": {"schemas": {}}}], title="t")


async def test_the_service_serves_its_own_document(management: Management) -> None:
    own = document(management.app, title="Management API", base_url=management.settings.base_url)
    for path in ("/schema", "/schema/openapi.json"):
        assert (await management.client.get(path)).json() == json.loads(json.dumps(own))


def _of_raw(route: ASGIRoute) -> list[str]:
    """Return the methods of a raw route, which dispatches methods itself; the protocol tests check them."""
    if route.path.startswith(("/api/organizations/", "/oidc/not-valid")):
        return ["GET"]
    return ["GET", "POST"] if route.path == "/oidc/me" else ["POST"]


PAGES = {
    "/api/reference",
    "/api/reference/start.js",
    "/api/reference/swagger-ui.js",
    "/api/reference/swagger-ui.css",
    "/oidc/auth",
    "/oidc/auth/continue",
    "/oidc/session/end",
    "/oidc/session/end/continue",
    "/sign-in",
    "/sign-in/account",
    "/sign-in/cancel",
    "/sign-in/backchannel-logout/{connector_id}",
    "/sign-in/callback/{connector_id}",
    "/sign-in/connect",
    "/sign-in/connect/leave",
    "/sign-in/factor",
    "/sign-in/factor/passkey",
    "/sign-in/identifier",
    "/sign-in/forgotten",
    "/sign-in/invitation",
    "/sign-in/passkey",
    "/sign-in/passkey.js",
    "/sign-in/provider",
    "/sign-in/recovery",
    "/sign-in/register",
    "/sign-in/registration",
    "/sign-in/set-up",
    "/sign-in/set-up/authenticator",
    "/sign-in/set-up/code",
    "/sign-in/set-up/passkey",
    "/sign-in/set-up/recovery-codes",
    "/sign-in/verification",
    "/sign-in/style.css",
    "/sign-in/icon.svg",
    "/sign-in/script.js",
    "/sign-in/accent/{color}",
    "/consent",
    "/consent/switch",
}
"""For browsers; described by their RFCs, not as operations of an API."""


def _is_page(path: str) -> bool:
    return path in PAGES or path.split("/")[1] in {"account", "console", "mail"}


def test_the_documents_match_the_routes_of_the_apps(stack: RunningStack) -> None:
    for service, app in stack.apps.items():
        own = document(app, title="t", base_url="https://id.example.com")["paths"]
        routes = {
            (route.path_format, method)
            for route in app.routes
            for method in (_of_raw(route) if isinstance(route, ASGIRoute) else getattr(route, "methods", ()))
            if service_for(route.path) == service and method != "OPTIONS" and not _is_page(route.path_format)
        }
        assert routes == {(path, method.upper()) for path, found in own.items() for method in found}
        assert {path: DOCUMENT["paths"][path] for path in own} == json.loads(json.dumps(own))


def test_every_operation_that_returns_json_or_nothing_is_answered_without_the_framework(stack: RunningStack) -> None:
    by_the_framework = {
        handler.operation_id
        for app in stack.apps.values()
        for route in app.routes
        if isinstance(route, HTTPRoute) and route.path.startswith("/api/")
        for handler, _ in route.route_handler_map.values()
        if plan_of(handler, list(route.path_parameters)) is None and handler.operation_id is not None
    }
    assert by_the_framework == {"GetStatus", "GetSwagger"} | STREAMED


def test_every_controller_is_registered(stack: RunningStack) -> None:
    registered = {
        type(getattr(handler.fn, "__self__", None))
        for app in stack.apps.values()
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
    }
    defined = {each for module in _modules_with_controllers() for each in vars(module).values() if _is_controller(each)}
    assert len(defined) > 20
    assert defined - registered == set()


def _modules_with_controllers() -> Iterator[ModuleType]:
    for source in (Path(__file__).parents[3] / "services").glob("*/src"):
        for path in source.rglob("*.py"):
            if "(Controller)" in path.read_text():
                yield importlib.import_module(".".join(path.relative_to(source).with_suffix("").parts))


def _is_controller(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Controller) and found is not Controller


def test_every_path_of_template_service_is_routed_there() -> None:
    for path in DOCUMENT["paths"]:
        is_template = path.startswith("/api/organization") or path.endswith("/organizations")
        assert (service_for(path.replace("{", "").replace("}", "")) == "template") is is_template, path


async def test_the_merged_document_needs_no_token(management: Management) -> None:
    async with management.client_with(None) as anonymous:
        answer = await anonymous.get("/api/swagger.json")
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
        assert answer.json() == at_address(DOCUMENT, management.settings.base_url)
        condition = {"If-None-Match": answer.headers["ETag"]}
        assert (await anonymous.get("/api/swagger.json", headers=condition)).status_code == 304
        assert (await anonymous.post("/api/swagger.json")).status_code == 405


def test_a_document_names_the_address_and_the_token_endpoint_of_its_deployment() -> None:
    moved = at_address(DOCUMENT, "https://id.example.org")
    assert moved["servers"] == [{"url": "https://id.example.org"}]
    flows = moved["components"]["securitySchemes"]["oauth2"]["flows"]
    assert flows["clientCredentials"]["tokenUrl"] == "https://id.example.org/oidc/token"
    assert {"oauth2": ["all"]} in moved["security"]
    assert at_address(moved, "https://identity.example.com") == DOCUMENT


async def test_the_reference_needs_no_token_and_loads_nothing_from_elsewhere(management: Management) -> None:
    async with management.client_with(None) as anonymous:
        page = await anonymous.get("/api/reference")
        files = re.findall(r'(?:src|href)="(/api/reference/[^"]+)"', page.text)
        assert len(files) == 3
        kinds = {path.rpartition(".")[2]: "text/css" if path.endswith(".css") else "text/javascript" for path in files}
        for path in ("/api/reference", *files):
            answer = await anonymous.get(path)
            kind = kinds.get(path.rpartition(".")[2], "text/html")
            assert (answer.status_code, answer.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Content-Security-Policy"].split("; ") == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    assert f'data-resource="{MANAGEMENT_API}"' in page.text


@pytest.mark.parametrize("path", ["/schema/nothing", "/schema/swagger", "/schema/a/b", "/schema/openapi.yaml"])
async def test_an_unknown_path_below_the_document_is_a_404_like_any_other(
    management_api: httpx.AsyncClient, path: str
) -> None:
    assert refusal(await management_api.get(path)) == (404, "entity.not_found")
