"""What each operation sends, and how it reads the answer: one row each, for both clients."""

from __future__ import annotations

import inspect
import json
import operator
import re
from pathlib import Path
from typing import Any

import pytest

from stead import (
    ApiError,
    AsyncManagementClient,
    ManagementClient,
    NotFound,
    TestedClaims,
)
from stead.manage.operations import search as search_of_clients
from tests.unit.sdk.operations import (
    applications,
    audit,
    connectors,
    custom_claims,
    impersonations,
    just_in_time,
    mail,
    my_account,
    organization_template,
    organizations,
    resources,
    roles,
    search,
    users,
)
from tests.unit.sdk.operations.entities import (
    ETAG,
    REPORT,
    REPORT_JSON,
    TEMPLATE,
    TEMPLATE_JSON,
)
from tests.unit.sdk.operations.rows import Call
from tests.unit.sdk.service import Service

OPENAPI = Path(__file__).parents[3] / "services/management-service/src/management_service/openapi.json"
AREAS = (
    applications,
    audit,
    connectors,
    custom_claims,
    impersonations,
    just_in_time,
    my_account,
    mail,
    organization_template,
    organizations,
    resources,
    roles,
    search,
    users,
)
OPERATIONS = [row for area in AREAS for row in area.ROWS]
IDS = [f"{row[1]} {row[2]}" for row in OPERATIONS]
NOT_OFFERED = {
    "ExportAffectedMembers",  # a table for people
    *("ExportLogs", "ExportLogLeaves"),  # streams, which ``stead.audit`` reads from files
    *("ListLogKeys", "RotateLogKeys", "ListNotValidKeys", "RotateNotValidKeys"),
    *("ListPrivateKeys", "RotatePrivateKeys", "DeletePrivateKey"),
    *("GetUserCustomData", "UpdateUserCustomData", "UpdateApplicationCustomData"),  # members of what holds them
    *("ReplaceRoleScopes", "ReplaceRoleUsers", "ReplaceRoleApplications"),
}
"""Operations of the Management API without a method of the clients."""


def carried_out(result: Any) -> Any:
    """Return a result; an iterable, other than a JSON object or a text, as a list."""
    return list(result) if hasattr(result, "__iter__") and not isinstance(result, dict | str) else result


async def async_carried_out(result: Any) -> Any:
    return [item async for item in result] if hasattr(result, "__aiter__") else await result


def is_listed(method: str, answer: Any) -> bool:
    return method == "GET" and isinstance(answer, list)


def prepare(service: Service, method: str, path: str, answer: Any) -> None:
    if is_listed(method, answer):
        service.will_list(path, answer)
    else:
        status = 204 if answer is None else 200
        service.will_answer(method, path.partition("?")[0], answer, status=status, headers={"ETag": ETAG})


def assert_sent(service: Service, method: str, path: str, body: Any, answer: Any) -> None:
    (sent,) = service.calls
    assert (sent.method, sent.target) == (method, path + ("?page=1&page_size=100" if is_listed(method, answer) else ""))
    assert (json.loads(sent.body) if sent.body else None) == body


@pytest.mark.parametrize(("call", "method", "path", "body", "answer", "result"), OPERATIONS, ids=IDS)
def test_an_operation_sends_one_request_and_reads_one_answer(
    service: Service, client: ManagementClient, call: Call, method: str, path: str, body: Any, answer: Any, result: Any
) -> None:
    prepare(service, method, path, answer)
    assert carried_out(call(client)) == result
    assert_sent(service, method, path, body, answer)


@pytest.mark.parametrize(("call", "method", "path", "body", "answer", "result"), OPERATIONS, ids=IDS)
async def test_an_operation_of_the_client_for_tasks_sends_and_reads_the_same(
    service: Service,
    async_client: AsyncManagementClient,
    call: Call,
    method: str,
    path: str,
    body: Any,
    answer: Any,
    result: Any,
) -> None:
    prepare(service, method, path, answer)
    assert await async_carried_out(call(async_client)) == result
    assert_sent(service, method, path, body, answer)


async def test_a_dry_run_is_a_parameter_and_a_document_may_be_decoded_json(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    service.will_answer("PUT", "/api/organization-template", REPORT_JSON)
    assert client.organization_template.put(TEMPLATE_JSON, dry_run=True) == REPORT
    assert await async_client.organization_template.put(TEMPLATE, dry_run=True) == REPORT
    assert [call.target for call in service.calls] == ["/api/organization-template?dry-run=true"] * 2
    assert [json.loads(call.body) for call in service.calls] == [TEMPLATE_JSON] * 2


async def test_reserved_claims_are_named_by_a_header(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    path = "/api/configs/jwt-customizer/test"
    service.will_answer("POST", path, {"a": 1}, headers={"Dropped-Claims": "aud, sub"})
    expected = TestedClaims(claims={"a": 1}, dropped=["aud", "sub"])
    arguments: dict[str, Any] = {"token": {}, "context": {}}
    assert client.custom_claims.test("client-credentials", "s", **arguments) == expected
    assert await async_client.custom_claims.test("client-credentials", "s", **arguments) == expected


@pytest.mark.parametrize(("call", "method", "path"), [row[:3] for row in OPERATIONS], ids=IDS)
async def test_no_operation_overlooks_a_refusal(
    service: Service,
    client: ManagementClient,
    async_client: AsyncManagementClient,
    call: Call,
    method: str,
    path: str,
) -> None:
    refusal = {"code": "entity.not_found", "message": "No."}
    service.will_answer(method, path.partition("?")[0], refusal, status=404)
    with pytest.raises(NotFound):
        carried_out(call(client))
    with pytest.raises(NotFound):
        await async_carried_out(call(async_client))


def offered(client: ManagementClient | AsyncManagementClient) -> dict[str, Any]:
    """Return the operations of a client by name."""
    return {
        f"{group_name}.{name}": getattr(type(group), name)
        for group_name, group in vars(client).items()
        if not group_name.startswith("_")
        for name in dir(type(group))
        if not name.startswith("_")
    } | {"search": search_of_clients.search}


class Recorder:
    """Stands for a client, and notes the name of the operation that is called."""

    def __init__(self, called: set[str], name: str = "") -> None:
        self.called = called
        self.name = name

    def __getattr__(self, attribute: str) -> Recorder:
        return Recorder(self.called, f"{self.name}.{attribute}".removeprefix("."))

    def __call__(self, *_: Any, **__: Any) -> None:
        self.called.add(self.name)


def test_every_operation_has_a_row_and_a_docstring(client: ManagementClient) -> None:
    called: set[str] = set()
    for row in OPERATIONS:
        row[0](Recorder(called))
    assert called == set(offered(client))
    assert all(operation.__doc__ for operation in offered(client).values())


def test_every_operation_of_the_api_is_offered_but_for_some() -> None:
    paths: dict[str, Any] = json.loads(OPENAPI.read_bytes())["paths"]
    managed = {
        (method.upper(), path): operation["operationId"]
        for path, operations in paths.items()
        for method, operation in operations.items()
        if path.startswith("/api/") and operation["security"]
    }
    sent: set[str] = set()
    for _, method, target, *_ in OPERATIONS:
        matching = [path for verb, path in managed if verb == method and is_of(target, path)]
        sent.add(managed[method, min(matching, key=lambda path: path.count("{"))])
    assert set(managed.values()) - sent == NOT_OFFERED


def is_of(target: str, path: str) -> bool:
    """Return whether the target of a request is of this path of the document."""
    return re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), target.partition("?")[0]) is not None


def test_a_write_takes_a_version_where_the_api_does(client: ManagementClient) -> None:
    paths: dict[str, Any] = json.loads(OPENAPI.read_bytes())["paths"]
    conditional = [
        (method.upper(), re.compile(re.sub(r"{\w+}", "[^/]+", path)))
        for path, operations in paths.items()
        for method, operation in operations.items()
        if any(parameter.get("name") == "If-Match" for parameter in operation.get("parameters", ()))
    ]
    taking: set[str] = set()
    for call, method, path, *_ in OPERATIONS:
        if any(method == verb and pattern.fullmatch(path) for verb, pattern in conditional):
            call(Recorder(taking))
    with_parameter = {
        name
        for name in offered(client)
        if "if_match" in inspect.signature(operator.attrgetter(name)(client)).parameters
    }
    assert taking == with_parameter


def test_both_clients_offer_the_same(client: ManagementClient, async_client: AsyncManagementClient) -> None:
    assert offered(client) == offered(async_client)


async def test_a_bound_operation_shows_its_parameters(
    client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    """For ``help`` and for editors."""
    for bound in (client.users, async_client.users):
        assert bound.create.__name__ == "create_user"
        assert bound.create.__doc__ is not None
        parameters = ["search", "exact", "like", "joint", "ids"]
        parameters += ["without_role_id", "without_organization_id", "page_size"]
        assert list(inspect.signature(bound.list).parameters) == parameters
    assert inspect.iscoroutinefunction(async_client.users.create)


def test_the_audit_trail_is_followed_by_the_cursor_of_each_link(service: Service, client: ManagementClient) -> None:
    listed = iter(client.logs.list(key="k", user_id="u1", start_time=7, page_size=1))
    for entry_id, cursor in (("l3", "30.3"), ("l2", "20.2"), ("l1", None)):
        link = f'<https://elsewhere.example/api/logs?logKey=k&after={cursor}&page_size=1>; rel="next"'
        answer = [{"id": entry_id, "occurredAt": 1, "key": "k"}]
        service.will_answer("GET", "/api/logs", answer, headers={"Link": link} if cursor else {})
        assert next(listed).id == entry_id
    assert next(listed, None) is None
    given = "/api/logs?userId=u1&logKey=k&start_time=7"
    expected = [f"{given}&page_size=1", f"{given}&after=30.3&page_size=1", f"{given}&after=20.2&page_size=1"]
    assert [call.target for call in service.calls] == expected


def test_a_link_without_a_new_cursor_ends_with_an_error(service: Service, client: ManagementClient) -> None:
    for query in ("page_size=1", "after="):
        service.will_answer("GET", "/api/logs", [], headers={"Link": f'</api/logs?{query}>; rel="next"'})
        with pytest.raises(ApiError):
            list(client.logs.list())
