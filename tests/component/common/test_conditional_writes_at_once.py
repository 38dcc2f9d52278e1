"""Conditional writes run beside each other: only writes of the same object wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.support.management_api import Management, refusal, unique
from tests.support.service_in_a_tenant import ServiceInATenant
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S

# Not from pg_stat_activity, which a transaction sees as it was at its first look
_WAITING = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"


@asynccontextmanager
async def waiting_behind(service: ServiceInATenant, lock: str, *values: object, count: int) -> AsyncIterator[None]:
    """Lock rows; run the body, and release them once so many statements of the service wait for a lock."""
    async with service.database.transaction():
        await service.database.execute(lock, *values)
        yield
        async with asyncio.timeout(WAIT_S):
            while await service.database.fetchval(_WAITING) < count:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)


async def version(service: ServiceInATenant, path: str) -> dict[str, str]:
    answer = await service.client.get(path)
    assert answer.status_code == 200, answer.text
    return {"If-Match": answer.headers["ETag"]}


@pytest.mark.servers
async def test_as_many_as_there_are_connections_wait_neither_for_each_other_nor_for_a_connection(
    management: Management,
) -> None:
    """Each holds the connection of its transaction when it reads its object again."""
    client, count = management.client, management.settings.database_connections
    ids = [(await management.created("users"))["id"] for _ in range(count)]
    conditions = {f"/api/users/{each}": await version(management, f"/api/users/{each}") for each in ids}
    lock = "SELECT FROM users WHERE tenant_id = $1 AND id = ANY($2) FOR UPDATE"
    async with waiting_behind(management, lock, management.tenant_id, ids, count=count):
        writes = [
            asyncio.create_task(client.patch(path, json={"name": "Ada"}, headers=condition))
            for path, condition in conditions.items()
        ]
    answers = await asyncio.gather(*writes)
    assert [(answer.status_code, answer.json().get("name")) for answer in answers] == [(200, "Ada")] * count


class Writes(NamedTuple):
    """Different writes of one object, each of which changes it."""

    method: str
    path: str
    bodies: Sequence[Any]


def replacing(path: str, member: str, ids: Sequence[str]) -> Writes:
    return Writes("PUT", path, [{member: [each]} for each in ids])


def renaming(path: str) -> Writes:
    return Writes("PATCH", path, [{"name": unique("name")} for _ in range(2)])


async def writes_of_management(management: Management) -> list[Writes]:
    users = [(await management.created("users"))["id"] for _ in range(2)]
    machines = [await management.machine() for _ in range(2)]
    role = (await management.created("roles", name=unique("r"), description="", type="User"))["id"]
    others = [(await management.created("roles", name=unique("r"), description="", type="User"))["id"] for _ in "ab"]
    machine_roles = [
        (await management.created("roles", name=unique("r"), description="", type="MachineToMachine"))["id"]
        for _ in "abc"
    ]
    resource = (await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com"))["id"]
    scopes = [(await management.created(f"resources/{resource}/scopes", name=name))["id"] for name in "ab"]
    return [
        renaming(f"/api/users/{users[0]}"),
        Writes("PATCH", f"/api/users/{users[0]}/custom-data", [{"customData": {"a": each}} for each in range(2)]),
        replacing(f"/api/users/{users[0]}/roles", "roleIds", others),
        renaming(f"/api/applications/{machines[0]}"),
        replacing(f"/api/applications/{machines[0]}/roles", "roleIds", machine_roles[:2]),
        renaming(f"/api/resources/{resource}"),
        renaming(f"/api/roles/{role}"),
        replacing(f"/api/roles/{role}/scopes", "scopeIds", scopes),
        replacing(f"/api/roles/{role}/users", "userIds", users),
        replacing(f"/api/roles/{machine_roles[2]}/applications", "applicationIds", machines),
    ]


async def writes_of_template(template: Template) -> list[Writes]:
    management = template.management
    users = [(await management.created("users"))["id"] for _ in range(2)]
    machines = [await management.machine() for _ in range(2)]
    permissions = [(await template.permission())["id"] for _ in range(2)]
    role = (await template.role())["id"]
    roles = [(await template.role())["id"] for _ in range(2)]
    machine_roles = [(await template.role(type="MachineToMachine"))["id"] for _ in range(2)]
    resource = await template.resource("a", "b")
    organization = f"/api/organizations/{(await template.organization())['id']}"
    await template.caught_up()
    for kind, ids in (("user", users), ("application", machines)):
        added = await template.client.post(f"{organization}/{kind}s", json={f"{kind}Ids": ids[:1]})
        assert added.is_success, added.text
    document = (await template.client.get("/api/organization-template")).json()
    documents = [{**document, "permissions": [*document["permissions"], {"name": unique("p")}]} for _ in range(2)]
    return [
        renaming(f"/api/organization-roles/{role}"),
        replacing(f"/api/organization-roles/{role}/scopes", "organizationScopeIds", permissions),
        replacing(f"/api/organization-roles/{role}/resource-scopes", "scopeIds", [s["id"] for s in resource["scopes"]]),
        renaming(f"/api/organization-scopes/{permissions[0]}"),
        renaming(organization),
        replacing(f"{organization}/users/{users[0]}/roles", "organizationRoleIds", roles),
        replacing(f"{organization}/applications/{machines[0]}/roles", "organizationRoleIds", machine_roles),
        Writes("PUT", f"{organization}/users", [{"userIds": users[1:]}, {"userIds": users}]),
        Writes("PUT", f"{organization}/applications", [{"applicationIds": machines[1:]}, {"applicationIds": machines}]),
        Writes("PUT", "/api/organization-template", documents),
    ]


async def assert_one_succeeds(service: ServiceInATenant, writes: Writes) -> None:
    """Send them at once; the first to hold its rows waits before its commit, and the others for these rows."""
    condition = await version(service, writes.path)
    lock = "SELECT FROM source_revision WHERE tenant_id = $1 FOR UPDATE"
    async with waiting_behind(service, lock, service.tenant_id, count=len(writes.bodies)):
        sent = [
            asyncio.create_task(service.client.request(writes.method, writes.path, json=body, headers=condition))
            for body in writes.bodies
        ]
    answers = await asyncio.gather(*sent)
    refused = [answer for answer in answers if not answer.is_success]
    assert len(refused) == len(answers) - 1, (writes.path, [answer.text for answer in answers])
    assert [refusal(answer) for answer in refused] == [(412, "entity.version_mismatch")] * len(refused)


@pytest.mark.heavy
@pytest.mark.servers
async def test_of_two_who_change_the_same_object_at_once_one_succeeds(
    management: Management, template: Template
) -> None:
    for writes in await writes_of_management(management):
        await assert_one_succeeds(management, writes)
    for writes in await writes_of_template(template):
        await assert_one_succeeds(template, writes)
