"""``/api/organization-template``: documents at the same time as other documents, edits and events."""

import asyncio
import random
from typing import Any

import pytest

from tests.support.databases import until_waited_for
from tests.support.lengths import length
from tests.support.management_api import refusal, unique
from tests.support.template_api import Template, revision
from tests.support.template_documents import (
    EMPTY,
    UNCHANGED,
    UNKNOWN,
    WRONG_KIND,
    document,
    permission_ids,
    put,
    random_document,
    role,
    role_ids,
    scopes,
    send,
    shown,
)


async def test_a_change_of_type_waits_for_a_concurrent_assignment(template: Template) -> None:
    await put(template, document("", role("r")))
    role_id, organization = (await role_ids(template))["r"], await template.organization()
    user = (await template.management.created("users"))["id"]
    async with template.database.transaction():
        lock = "SELECT FROM roles WHERE tenant_id = $1 AND id = $2 FOR KEY SHARE"
        await template.database.execute(lock, template.tenant_id, role_id)
        changing = asyncio.create_task(send(template, document("", role("r", type="MachineToMachine"))))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(changing), 0.3)
        await template.join(organization["id"], user, role_ids=[role_id])
    assert refusal(await changing) == WRONG_KIND


@pytest.mark.heavy
async def test_one_of_several_concurrent_documents_is_applied_whole(template: Template, resource: Any) -> None:
    """Two admins put documents: no PUT is half applied."""
    dice = random.Random(7)
    for _ in range(length(short=3, long=5)):
        wanted = [random_document(dice, resource) for _ in range(6)]
        answers = await asyncio.gather(*(send(template, each) for each in wanted))
        assert {answer.status_code for answer in answers} == {200}
        last = max(zip(answers, wanted, strict=True), key=lambda pair: revision(pair[0]))[1]
        assert await put(template, last) == UNCHANGED
        revisions = [revision(answer) for answer in answers]
        assert max(revisions) == await template.revision()


@pytest.mark.heavy
async def test_edits_while_a_document_is_applied_come_before_or_after_it(template: Template, resource: Any) -> None:
    """An acknowledged edit is seen by the document or applied after it; neither fails."""
    await put(template, document("abc", role("r", "a"), role("s", "b")))
    for number in range(length(short=4, long=8)):
        wanted = document("abc", role("r", "a", "b"), role("s", "c", description=f"round {number}"))
        permissions, roles = await permission_ids(template), await role_ids(template)
        extra = unique("extra")
        requests: list[Any] = [
            template.client.post(
                f"/api/organization-roles/{roles['r']}/scopes", json={"organizationScopeIds": [permissions["c"]]}
            ),
            template.client.put(
                f"/api/organization-roles/{roles['s']}/scopes",
                json={"organizationScopeIds": list(permissions.values())},
            ),
            template.client.patch(f"/api/organization-scopes/{permissions['a']}", json={"description": extra}),
            template.client.post(
                "/api/organization-roles",
                json={"name": extra, "organizationScopeIds": list(permissions.values())},
            ),
            template.client.post("/api/organization-scopes", json={"name": extra}),
            send(template, wanted),
            send(template, wanted, dry_run=True),
        ]
        answers = await asyncio.gather(*requests[number % 7 :], *requests[: number % 7])
        assert {answer.status_code for answer in answers} == {200, 201, 204}
        found = await shown(template)
        granted = {each["name"]: each["permissions"] for each in found["roles"]}
        assert granted["r"] in (["a", "b"], ["a", "b", "c"])
        assert granted["s"] in (["c"], ["a", "b", "c"])
        assert granted.get(extra, ["a", "b", "c"]) == ["a", "b", "c"]
        assert found["permissions"][0]["description"] in {None, extra}
        await agrees_with_events(template)
        await put(template, wanted)
        assert await shown(template) == wanted


@pytest.mark.heavy
async def test_a_document_waits_for_a_name_that_is_being_created(template: Template) -> None:
    """Otherwise it would be created twice."""
    for number in range(length(short=3, long=8)):
        await put(template, EMPTY)
        wanted = document(["a"], role("r", "a"))
        requests = [
            send(template, wanted),
            template.client.post("/api/organization-scopes", json={"name": "a", "description": "mine"}),
            template.client.post("/api/organization-roles", json={"name": "r"}),
        ]
        answers = await asyncio.gather(*requests[number % 3 :], *requests[: number % 3])
        assert {answer.status_code for answer in answers} <= {200, 201, 422}
        assert await shown(template) == wanted
        await agrees_with_events(template)


async def agrees_with_events(template: Template) -> None:
    """Assert that the last event of every role lists what the role grants."""
    permissions = await permission_ids(template)
    by_name = await role_ids(template)
    for each in (await shown(template))["roles"]:
        data = await template.event_data("role", by_name[each["name"]])
        assert data.get("permissionIds", []) == sorted(permissions[name] for name in each["permissions"])


async def test_a_concurrent_grant_to_a_role_is_seen(template: Template) -> None:
    """The edit took its locks first and commits while the document waits for them."""
    await put(template, document("ab", role("r", "a")))
    permissions, roles = await permission_ids(template), await role_ids(template)
    async with template.database.transaction():
        lock = "SELECT FROM roles WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"
        await template.database.execute(lock, template.tenant_id, roles["r"])
        grant = "INSERT INTO role_permissions (tenant_id, role_id, permission_id) VALUES ($1, $2, $3)"
        await template.database.execute(grant, template.tenant_id, roles["r"], permissions["b"])
        applying = asyncio.create_task(send(template, document("ab", role("r", "a"))))
        await until_waited_for(template.database)
    answer = await applying
    assert answer.json()["roles"]["updated"] == [{"name": "r", "added": [], "removed": [{"name": "b"}]}]


@pytest.mark.heavy
async def test_a_scope_deleted_meanwhile_is_unknown_or_revoked(template: Template) -> None:
    for _ in range(length(short=2, long=4)):
        resource = await template.resource("read", "write")
        await template.caught_up()
        wanted = document("", role("r", scopes=scopes(resource, "read", "write")))
        answer, _ = await asyncio.gather(
            send(template, wanted),
            template.management.client.delete(f"/api/resources/{resource['id']}"),
        )
        assert answer.status_code == 200 or refusal(answer) == UNKNOWN
        await template.caught_up()
        assert [each["scopes"] for each in (await shown(template))["roles"]] in ([], [[]])
        await put(template, EMPTY)
