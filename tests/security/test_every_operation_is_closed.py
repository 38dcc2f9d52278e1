"""Each operation of the Management API, in each service, checks the caller, so no check is lost in a rewrite."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.rights.operations import OPEN, OWN, REQUIREMENTS, allows
from identity_common.rights.roles import SEEDED_ROLES
from management_service.app import SWAGGER
from tests.support.world import MANAGEMENT_API, World

DOCUMENT: dict[str, Any] = json.loads(SWAGGER.read_bytes())
OPERATIONS = {
    operation["operationId"]: (method.upper(), re.sub(r"{\w+}", "none", path))
    for path, operations in DOCUMENT["paths"].items()
    if path.startswith("/api/")
    for method, operation in operations.items()
}
FOR_MEMBERS = {"ListOrganizationUserScopes", "ListOrganizationApplicationScopes"}
"""These take tokens of two audiences; a valid token for a third one is forbidden."""
CLOSED = sorted(OPERATIONS.keys() - OPEN - OWN)


def answered(world: World, name: str, token: str | None) -> httpx.Response:
    method, path = OPERATIONS[name]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return world.stack.http.request(method, path, headers=headers)


def refusal(world: World, name: str, token: str | None) -> tuple[int, str | None]:
    answer = answered(world, name, token)
    return answer.status_code, answer.json().get("code") if answer.content else None


def test_the_document_opens_no_other_operation() -> None:
    stated = {
        operation["operationId"]
        for path, operations in DOCUMENT["paths"].items()
        if path.startswith("/api/")
        for operation in operations.values()
        if not operation["security"]
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


def test_every_operation_has_a_row_in_the_table_of_rights_and_no_row_is_left() -> None:
    assert REQUIREMENTS.keys() | OPEN | OWN == OPERATIONS.keys()
    assert len(REQUIREMENTS) + len(OPEN) + len(OWN) == len(OPERATIONS)
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            if path.startswith("/api/my-account") or operation["operationId"] in OWN:
                assert (path.startswith("/api/my-account"), operation["operationId"] in OWN) == (True, True)
                assert operation["security"] == [{"bearer": []}]
            elif path.startswith("/api/") and operation["security"]:
                needed = REQUIREMENTS[operation["operationId"]]
                assert operation["security"] == [{"bearer": []}, *({"oauth2": [*each]} for each in needed.narrowest)]
                assert operation["description"].endswith(f"\n\nNeeds {needed}.")


def test_what_is_about_the_caller_needs_a_userinfo_token_of_an_own_sign_in(world: World) -> None:
    exchanged = world.exchanged_userinfo_token(scope="openid account")
    without_scope = world.userinfo_token(scope="openid profile")
    for name in sorted(OWN):
        assert refusal(world, name, None) == (401, "auth.authorization_header_missing"), name
        assert refusal(world, name, token_with(world, "all")) == (401, "auth.unauthorized"), name
        assert refusal(world, name, exchanged) == (403, "auth.forbidden"), name
        assert refusal(world, name, without_scope) == (403, "auth.forbidden"), name


HOLDERS = {**{role.name: role.scopes for role in SEEDED_ROLES}, "a backend": ("subject-tokens",)}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_seeded_role_opens_what_the_table_says_and_nothing_else(world: World, holder: str) -> None:
    """Nothing is at the paths, and no body is sent: an operation that is allowed gets past the check and no further."""
    scopes = frozenset(HOLDERS[holder])
    token = token_with(world, " ".join(sorted(scopes)))
    statuses = {name: answered(world, name, token).status_code for name in CLOSED if name not in ROTATIONS}
    assert {name for name, status in statuses.items() if status == 403} == {
        name for name in statuses if not allows(scopes, name)
    }
    assert {status for status in statuses.values() if status != 403} <= {200, 204, 400, 404, 415, 422}


ROTATIONS = {"RotatePrivateKeys", "RotateNotValidKeys", "RotateLogKeys"}
"""These take no body, and rotate the keys of the stack if they are allowed."""


@pytest.mark.parametrize("name", sorted(ROTATIONS))
def test_who_only_sees_keys_rotates_none(world: World, name: str) -> None:
    assert refusal(world, name, token_with(world, "read keys:read audit:export users")) == (403, "auth.forbidden")


def test_head_needs_what_get_needs(world: World) -> None:
    headers = {"Authorization": f"Bearer {token_with(world, 'read')}"}
    heads = [world.stack.http.head(f"/api/{path}", headers=headers).status_code for path in ("users", "logs/export")]
    assert heads == [200, 403]


@pytest.mark.parametrize(
    ("name", "scope", "missing"),
    [
        ("ListUsers", "subject-tokens", "users:read; users, read and all suffice"),
        ("CreateUser", "read", "users; all suffices"),
        ("ExportLogs", "read", "audit:export; all suffices"),
        ("EndImpersonation", "impersonations:read", "impersonations:end or subject-tokens; all suffices"),
        ("CreateSubjectToken", "impersonations:end", "subject-tokens; all suffices"),
        ("ListOrganizationUserScopes", "users", "organizations:read; organizations, read and all suffice"),
    ],
)
def test_a_refusal_names_the_scopes_that_would_do(world: World, name: str, scope: str, missing: str) -> None:
    answer = answered(world, name, token_with(world, scope))
    assert (answer.status_code, answer.json()["code"]) == (403, "auth.forbidden")
    assert answer.json()["message"].endswith(f": it needs the scope {missing} too.")
