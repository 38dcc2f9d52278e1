"""Each operation of the Management API, in each service, checks the caller: none loses its check in a rewrite."""

from __future__ import annotations

import json
import re
from typing import Any

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
OPEN = {"GetStatus", "GetSwagger"}
FOR_MEMBERS = {"ListOrganizationUserScopes", "ListOrganizationApplicationScopes"}
"""These take tokens of two audiences; a valid token for a third one is forbidden."""
CLOSED = sorted(OPERATIONS.keys() - OPEN)


def refusal(world: World, name: str, token: str | None) -> tuple[int, str | None]:
    method, path = OPERATIONS[name]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = world.stack.http.request(method, path, headers=headers)
    return answer.status_code, answer.json().get("code") if answer.content else None


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
