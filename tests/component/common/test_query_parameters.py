"""Query parameters: every operation under /api refuses what it does not declare, before it does anything."""

import json
import re
import time
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.http.openapi.document import document
from identity_common.rights.operations import OWN
from management_service.app import SWAGGER
from stead import client_credentials
from tests.support.management_api import issues, refusal, unique
from tests.support.running_stack import RunningStack
from tests.support.world import World

DOCUMENT: dict[str, Any] = json.loads(SWAGGER.read_bytes())
OPERATIONS = {
    operation["operationId"]: (path, method, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if path.startswith("/api/")
}


@pytest.fixture(scope="module")
def clients(client: httpx.Client, world: World) -> dict[str, httpx.Client]:
    """Return the client for each operation: those on a person's own account take the token of the person."""
    headers = {"Authorization": f"Bearer {world.userinfo_token(scope='openid account')}"}
    person = httpx.Client(base_url=world.stack.base_url, headers=headers, timeout=20)
    return {name: person if name in OWN else client for name in OPERATIONS}


@pytest.fixture(scope="module")
def client(stack: RunningStack) -> httpx.Client:
    access = stack.credentials.management_api
    issued = client_credentials(
        stack.base_url,
        client_id=access.client_id,
        client_secret=access.client_secret,
        resource=access.resource,
        scope=access.scope,
    )
    headers = {"Authorization": f"Bearer {issued.access_token}"}
    return httpx.Client(base_url=stack.base_url, headers=headers, timeout=20)


@pytest.fixture(scope="module")
def ids(stack: RunningStack) -> dict[str, str]:
    """Return ids of things that exist, by the names of path parameters."""
    made = stack.management
    user = made.users.create(name="User").id
    machine = made.applications.create(name="Machine", type="MachineToMachine").id
    organization = made.organizations.create(name="Organization").id
    made.organizations.add_users(organization, [user])
    made.organizations.add_applications(organization, [machine])
    invitation = made.organization_invitations.create(
        organization, "bob@id.test", expires_at=int((time.time() + 3600) * 1000), send=False
    )
    return {
        "organization_invitation_id": invitation.id,
        "kind": "access-token",
        "version_number": "1",
        "user_id": user,
        "application_id": machine,
        "organization_id": organization,
        "organization_role_id": made.organization_roles.create(unique("role")).id,
        "role_id": made.roles.create(name=unique("role"), description="", type="User").id,
        "resource_id": made.resources.create(name="R", indicator=f"https://{unique('r')}.example.com").id,
    }


def address(path: str, ids: dict[str, str]) -> str:
    if path.startswith("/api/organization-roles/"):
        path = path.replace("{role_id}", ids["organization_role_id"])
    return re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], "none"), path)


def sent(clients: dict[str, httpx.Client], name: str, ids: dict[str, str], query: str) -> httpx.Response:
    path, method, _ = OPERATIONS[name]
    body = {"json": {}} if "requestBody" in OPERATIONS[name][2] else {}
    return clients[name].request(method.upper(), f"{address(path, ids)}?{query}", **body)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"DeleteOwnFactor"}))  # ../management/test_factors.py
def test_every_operation_refuses_an_unknown_parameter_and_names_it(
    clients: dict[str, httpx.Client], ids: dict[str, str], name: str
) -> None:
    for unknown in ("noSuchFilter", "Page", "page[]", "search.passwordHash"):
        answer = sent(clients, name, ids, f"{unknown}=x")
        assert issues(answer) == {unknown}, answer.request.url


@pytest.mark.parametrize("name", [name for name, (_, method, _) in OPERATIONS.items() if method == "get"])
def test_a_repeated_parameter_is_refused_where_one_value_is_meant(
    clients: dict[str, httpx.Client], ids: dict[str, str], name: str
) -> None:
    for parameter in OPERATIONS[name][2].get("parameters", ()):
        if parameter["in"] != "query" or parameter["schema"]["type"] == "array":
            continue
        own = parameter["name"]
        answer = sent(clients, name, ids, f"{own}=1&{own}=1")
        if own in {"page", "page_size"}:
            assert refusal(answer) == (400, "guard.invalid_pagination")
        else:
            assert issues(answer) == {own}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_head_request_is_refused_alike(clients: dict[str, httpx.Client], ids: dict[str, str], name: str) -> None:
    path, method, _ = OPERATIONS[name]
    if method == "get":
        assert clients[name].head(f"{address(path, ids)}?noSuchFilter=x").status_code == 400


def test_the_documents_of_the_services_have_no_operation_that_is_not_tested_here(stack: RunningStack) -> None:
    found = {
        operation["operationId"]
        for app in stack.apps.values()
        for path, operations in document(app, title="t", base_url="https://id.example.com")["paths"].items()
        for operation in operations.values()
        if path.startswith("/api/")
    }
    assert found == OPERATIONS.keys()


def test_a_caller_without_a_token_is_told_nothing_about_parameters(stack: RunningStack) -> None:
    assert stack.http.get("/api/users?isSuspended=true").status_code == 401


def test_an_unknown_parent_comes_first(client: httpx.Client) -> None:
    assert refusal(client.get("/api/roles/none/users?x=1")) == (404, "entity.not_exists_with_id")


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("q=a&search=a", {"search"}),
        ("isSuspended=true", {"isSuspended"}),
        ("search=" + "a" * 129, {"search"}),
        ("a=1&b=2&q=c", {"a", "b"}),
        ("x" * 100 + "=1", {"x" * 64}),
        ("=", {""}),
        ("page", set()),
    ],
)
def test_every_wrong_parameter_of_a_list_is_named(client: httpx.Client, query: str, wrong: set[str]) -> None:
    answer = client.get(f"/api/users?{query}")
    if wrong:
        assert issues(answer) == wrong
    else:
        assert refusal(answer) == (400, "guard.invalid_pagination")
    assert client.get("/api/users?search=" + "a" * 128).status_code == 200
