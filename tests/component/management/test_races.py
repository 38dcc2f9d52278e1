"""Changes that race the deletion of their target succeed before it or get a 404: no other error, and no orphan."""

from typing import Any

import pytest

from tests.support.lengths import length
from tests.support.management_api import Management, at_once, unique

pytestmark = pytest.mark.heavy

ROUNDS = length(short=3, long=6)


async def created_user(management: Management) -> tuple[str, list[tuple[str, str, Any]]]:
    path = f"users/{(await management.created('users'))['id']}"
    return path, [
        ("PATCH", path, {"name": "renamed"}),
        ("PATCH", f"{path}/custom-data", {"customData": {"a": 1}}),
        ("PATCH", f"{path}/is-suspended", {"isSuspended": True}),
        ("PATCH", f"{path}/password", {"password": "a good password"}),
    ]


async def created_application(management: Management) -> tuple[str, list[tuple[str, str, Any]]]:
    path = f"applications/{await management.machine()}"
    await management.created(f"{path}/secrets", name="first")
    return path, [
        ("PATCH", path, {"name": "renamed"}),
        ("PATCH", f"{path}/custom-data", {"a": 1}),
        ("POST", f"{path}/secrets", {"name": "second"}),
        ("PATCH", f"{path}/secrets/first", {"name": "third"}),
        ("DELETE", f"{path}/secrets/first", None),
    ]


async def created_resource(management: Management) -> tuple[str, list[tuple[str, str, Any]]]:
    made = await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com")
    path = f"resources/{made['id']}"
    scope = await management.created(f"{path}/scopes", name="read")
    role = await management.created("roles", name=unique("r"), description="", type="User")
    return path, [
        ("PATCH", path, {"name": "renamed"}),
        ("PATCH", f"{path}/is-default", {"isDefault": True}),
        ("POST", f"{path}/scopes", {"name": "write"}),
        ("PATCH", f"{path}/scopes/{scope['id']}", {"name": "renamed"}),
        ("PUT", f"roles/{role['id']}/scopes", {"scopeIds": [scope["id"]]}),
    ]


async def created_scope(management: Management) -> tuple[str, list[tuple[str, str, Any]]]:
    parent, _ = await created_resource(management)
    path = f"{parent}/scopes/{(await management.created(f'{parent}/scopes', name='orders'))['id']}"
    role = await management.created("roles", name=unique("r"), description="", type="User")
    scope_ids = {"scopeIds": [path.rpartition("/")[2]]}
    return path, [
        ("PATCH", path, {"name": "renamed"}),
        ("POST", f"roles/{role['id']}/scopes", scope_ids),
        ("PUT", f"roles/{role['id']}/scopes", scope_ids),
    ]


async def created_role(management: Management) -> tuple[str, list[tuple[str, str, Any]]]:
    resource, _ = await created_resource(management)
    scope = await management.created(f"{resource}/scopes", name="orders")
    user = (await management.created("users"))["id"]
    role = (await management.created("roles", name=unique("r"), description="", type="User"))["id"]
    path = f"roles/{role}"
    return path, [
        ("PATCH", path, {"description": "changed", "isDefault": True}),
        ("PUT", f"{path}/scopes", {"scopeIds": [scope["id"]]}),
        ("PUT", f"{path}/users", {"userIds": [user]}),
        ("POST", f"{path}/users", {"userIds": [user]}),
        ("POST", f"users/{user}/roles", {"roleIds": [role]}),
        ("PUT", f"users/{user}/roles", {"roleIds": [role]}),
        ("POST", "users", {}),
    ]


CREATED = [created_user, created_application, created_resource, created_scope, created_role]
ORPHANS = (
    "SELECT count(*) FROM role_scopes WHERE tenant_id = $1 AND $2 IN (role_id, scope_id)",
    "SELECT count(*) FROM user_roles WHERE tenant_id = $1 AND $2 IN (role_id, user_id)",
    "SELECT count(*) FROM scopes WHERE tenant_id = $1 AND $2 IN (resource_id, id)",
    "SELECT count(*) FROM application_secrets WHERE tenant_id = $1 AND application_id = $2",
)


@pytest.mark.parametrize("create", CREATED, ids=lambda create: create.__name__)
async def test_changes_racing_a_deletion_succeed_before_it_or_get_a_404(management: Management, create: Any) -> None:
    for _ in range(ROUNDS):
        path, changes = await create(management)
        kind = path.split("/")[-2]
        await_all = [management.client.request(method, f"/api/{at}", json=body) for method, at, body in changes * 2]
        middle = len(await_all) // 2
        await_all[middle:middle] = [management.client.delete(f"/api/{path}") for _ in range(2)]
        answers = await at_once(*await_all)
        deletions = sorted(answer.status_code for answer in answers[middle : middle + 2])
        assert deletions == [204, 404]
        assert {answer.status_code for answer in answers} <= {200, 201, 204, 404, 422}
        deleted = path.split("/")[-1]
        for query in ORPHANS:
            assert await management.database.fetchval(query, management.tenant_id, deleted) == 0, query
        ids = path.split("/")[1::2]
        state = await management.event_data(kind.removesuffix("s"), *ids)
        assert state["deleted"] is True
        assert (await management.client.get("/health/live")).status_code == 200
