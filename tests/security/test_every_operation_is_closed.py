"""Each operation of the Management API, in each service, checks the caller, so no check is lost in a rewrite."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2 as httpx
import pytest

from management_service.app import SWAGGER
from tests.support.world import MANAGEMENT_API, World

DOCUMENT: dict[str, Any] = json.loads(SWAGGER.read_bytes())
OPERATIONS = {
    operation["operationId"]: (method.upper(), re.sub(r"{\w+}", "none", path))
    for path, operations in DOCUMENT["paths"].items()
    if path.startswith("/api/")
    for method, operation in operations.items()
}
OPEN = {"AcceptInvitation", "GetLogKeys", "GetStatus", "GetSwagger"}
FOR_MEMBERS = {"ListOrganizationUserScopes", "ListOrganizationApplicationScopes"}
"""These take tokens of two audiences; a valid token for a third one is forbidden."""
CLOSED = sorted(OPERATIONS.keys() - OPEN)


def answered(world: World, name: str, token: str | None) -> httpx.Response:
    method, path = OPERATIONS[name]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return world.stack.http.request(method, path, headers=headers)


def refusal(world: World, name: str, token: str | None) -> tuple[int, str | None]:
    answer = answered(world, name, token)
    return answer.status_code, answer.json().get("code") if answer.content else None


NEED_ALL = {"ExportLogs"}
"""GET operations that the scope ``read`` does not open."""


def test_the_document_opens_no_other_operation() -> None:
    stated = {
        operation["operationId"]
        for path, operations in DOCUMENT["paths"].items()
        if path.startswith("/api/")
        for operation in operations.values()
        if "security" in operation
    }
    assert stated == OPEN


@pytest.mark.parametrize("name", CLOSED)
def test_without_a_token_or_its_scope_an_operation_is_refused(world: World, name: str) -> None:
    """CVE-2026-40172, CVE-2026-2366: no path to an object misses the check that the other paths make."""
    client_id = world.stack.credentials.management_api.client_id
    machine = {"sub": client_id, "client_id": client_id}
    for_resource = world.forger.access_token(**machine, aud=world.resource, scope="all")
    unscoped = world.forger.access_token(**machine, aud=MANAGEMENT_API, scope="allow read:things")
    forbidden = (403, "auth.forbidden")

    assert refusal(world, name, None) == (401, "auth.authorization_header_missing")
    assert refusal(world, name, for_resource) == (forbidden if name in FOR_MEMBERS else (401, "auth.unauthorized"))
    assert refusal(world, name, unscoped) == forbidden


def token_with(world: World, scope: str) -> str:
    client_id = world.stack.credentials.management_api.client_id
    return world.forger.access_token(sub=client_id, client_id=client_id, aud=MANAGEMENT_API, scope=scope)


def test_the_scope_read_opens_get_and_head_alone(world: World) -> None:
    token = token_with(world, "read")
    statuses = {name: answered(world, name, token).status_code for name in CLOSED}
    expected = {name for name in CLOSED if OPERATIONS[name][0] != "GET"} | NEED_ALL
    assert {name for name, status in statuses.items() if status == 403} == expected
    assert {status for name, status in statuses.items() if name not in expected} <= {200, 400, 404, 422}

    headers = {"Authorization": f"Bearer {token}"}
    heads = [world.stack.http.head(f"/api/{path}", headers=headers).status_code for path in ("users", "logs/export")]
    assert heads == [200, 403]


@pytest.mark.parametrize(
    ("name", "scope", "missing"),
    [
        ("ListUsers", "subject-tokens", "all or read"),
        ("CreateUser", "read", "all"),
        ("ExportLogs", "read", "all"),
        ("ListOrganizationUserScopes", "subject-tokens", "all or read"),
    ],
)
def test_a_refusal_names_the_scope_that_is_missing(world: World, name: str, scope: str, missing: str) -> None:
    answer = answered(world, name, token_with(world, scope))
    assert (answer.status_code, answer.json()["code"]) == (403, "auth.forbidden")
    assert answer.json()["message"].endswith(f": it needs the scope {missing}.")
