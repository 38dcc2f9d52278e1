"""``If-Match``: a write is done only while its object is as the caller has read it (RFC 9110 section 13.1.1)."""

import asyncio
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.databases import until_waited_for
from tests.support.management_api import Management, refusal, unique
from tests.support.template_api import Template

MISMATCH = (412, "entity.version_mismatch")
STALE = {"If-Match": '"0"'}


async def read(client: httpx.AsyncClient, path: str, **parameters: Any) -> dict[str, str]:
    """Return the header of a write that shall be done only while a path is as it is now."""
    answer = await client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return {"If-Match": answer.headers["ETag"]}


async def role_with_scopes(management: Management, count: int) -> tuple[str, list[str]]:
    """Return the path of the scopes of a new role, and the ids of scopes of a new resource, which it has."""
    role = await management.created("roles", name=unique("r"), description="", type="User")
    resource = await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com")
    names = [f"s{number}" for number in range(count)]
    ids = [(await management.created(f"resources/{resource['id']}/scopes", name=name))["id"] for name in names]
    path = f"/api/roles/{role['id']}/scopes"
    assert (await management.client.put(path, json={"scopeIds": ids})).is_success
    return path, ids


async def test_of_two_who_read_the_same_the_second_to_write_is_refused(management: Management) -> None:
    client, user = management.client, await management.created("users", name="Ada")
    path = f"/api/users/{user['id']}"
    first = second = await read(client, path)
    assert (await client.patch(path, json={"name": "Ada L."}, headers=first)).is_success
    revision = await management.revision()
    assert refusal(await client.patch(path, json={"name": "Augusta"}, headers=second)) == MISMATCH
    assert refusal(await client.delete(path, headers=second)) == MISMATCH
    assert (await client.get(path)).json()["name"] == "Ada L."
    assert await management.revision() == revision
    assert (await client.delete(path, headers=await read(client, path))).status_code == 204


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{tag}", 200), ('"0", {tag}', 200), ("*", 200), (" {tag} ,", 200),
        ("W/{tag}", 412), ('"0"', 412), ('""', 412), ('W/"0", "0"', 412),
        ("", 400), ("0", 400), ('"0', 400), ('*, "0"', 400), ("{tag} {tag}", 400), ("x" * 3000, 400),
    ],
)  # fmt: skip
async def test_a_condition_is_a_list_of_strong_tags_or_a_star(
    management: Management, condition: str, expected: int
) -> None:
    path = f"/api/users/{(await management.created('users'))['id']}"
    tag = (await read(management.client, path))["If-Match"]
    headers = {"If-Match": condition.format(tag=tag)}
    answer = await management.client.patch(path, json={"name": "Ada"}, headers=headers)
    assert answer.status_code == expected, answer.text
    assert (await management.client.get(path)).json()["name"] == ("Ada" if expected == 200 else None)


async def test_a_condition_may_be_sent_in_several_lines(management: Management) -> None:
    path = f"/api/users/{(await management.created('users'))['id']}"
    tag = (await read(management.client, path))["If-Match"]
    lines = [("If-Match", '"0"'), ("If-Match", tag)]
    assert (await management.client.patch(path, json={"name": "Ada"}, headers=lines)).is_success


async def test_412_comes_after_401_403_and_404_and_before_400(management: Management) -> None:
    path = f"/api/users/{(await management.created('users'))['id']}"
    wrong = {"name": 1}
    async with management.client_with(None) as anonymous:
        assert (await anonymous.patch(path, json=wrong, headers=STALE)).status_code == 401
    async with management.client_with(management.token(scope="read")) as reader:
        assert (await reader.patch(path, json=wrong, headers=STALE)).status_code == 403
    client = management.client
    assert refusal(await client.patch("/api/users/none", json={}, headers=STALE))[0] == 404
    assert refusal(await client.delete("/api/users/none", headers={"If-Match": "*"}))[0] == 404
    assert refusal(await client.put("/api/roles/none/scopes", json={}, headers=STALE))[0] == 404
    assert refusal(await client.patch(path, json=wrong, headers=STALE)) == MISMATCH
    assert refusal(await client.patch(path, json=wrong, headers=await read(client, path)))[0] == 400


async def test_a_list_that_the_caller_may_not_read_is_not_judged(management: Management) -> None:
    """``roles`` writes the list of a role's holders, ``users:read`` reads it: no condition of it holds, or fails."""
    role = await management.created("roles", name=unique("role"), description="", type="User")
    path = f"/api/roles/{role['id']}/users"
    async with management.client_with(management.token(scope="roles")) as client:
        for headers in ({"If-None-Match": "*"}, {"If-Match": "*"}, STALE):
            answer = await client.put(path, json={"userIds": []}, headers=headers)
            assert refusal(answer) == (403, "auth.forbidden")
            assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'
        assert (await client.put(path, json={"userIds": []})).is_success


async def test_what_cannot_be_read_has_no_version_and_says_so(management: Management) -> None:
    client, user = management.client, await management.created("users")
    answer = await client.patch(f"/api/users/{user['id']}/is-suspended", json={"isSuspended": True}, headers=STALE)
    assert refusal(answer) == (400, "guard.invalid_input")
    assert answer.json()["data"]["issues"][0]["path"] == "If-Match"


async def test_what_must_not_exist_yet_is_not_overwritten(management: Management) -> None:
    """RFC 9110 section 13.1.2; of the values, ``*`` alone has a meaning for a write."""
    client, user = management.client, await management.created("users", name="Ada")
    path, new = f"/api/users/{user['id']}", {"If-None-Match": "*"}
    for method in ("PATCH", "DELETE"):
        assert refusal(await client.request(method, path, json={"name": "Augusta"}, headers=new)) == MISMATCH
    contradictory = {**new, **(await read(client, path))}
    assert refusal(await client.patch(path, json={"name": "Augusta"}, headers=contradictory)) == MISMATCH
    assert refusal(await client.patch("/api/users/none", json={}, headers=new))[0] == 404
    for value, where in (('"0"', path), ("", path), ('*, "0"', path), ("*", f"{path}/is-suspended")):
        answer = await client.patch(where, json={"isSuspended": True}, headers={"If-None-Match": value})
        assert refusal(answer) == (400, "guard.invalid_input")
        assert answer.json()["data"]["issues"][0]["path"] == "If-None-Match"
    assert (await client.get(path)).json() == user


async def test_every_write_of_what_can_be_read_says_that_it_takes_a_condition(
    management: Management, template: Template
) -> None:
    for service in (management, template):
        paths = (await service.client.get("/schema")).json()["paths"]
        for path, operations in paths.items():
            for method in operations.keys() & {"put", "patch", "delete"}:
                named = {parameter["name"] for parameter in operations[method].get("parameters", ())}
                assert ("If-Match" in named) == ("get" in operations), (method, path)
                assert ("412" in operations[method]["responses"]) == ("get" in operations), (method, path)


async def test_the_tag_of_a_page_that_has_a_whole_relation_is_its_version(management: Management) -> None:
    client, (path, ids) = management.client, await role_with_scopes(management, 21)
    part, whole = await read(client, path), await read(client, path, page_size=50)
    assert refusal(await client.put(path, json={"scopeIds": ids[:2]}, headers=part)) == MISMATCH
    assert (await client.put(path, json={"scopeIds": ids[:2]}, headers=whole)).is_success
    before = await read(client, path)
    assert (await client.post(path, json={"scopeIds": ids[2:3]})).is_success
    assert refusal(await client.put(path, json={"scopeIds": []}, headers=before)) == MISMATCH
    assert (await client.put(path, json={"scopeIds": []}, headers=await read(client, path))).is_success


@pytest.mark.heavy
async def test_a_relation_with_more_than_a_page_can_have_has_no_version(management: Management) -> None:
    client, (path, ids) = management.client, await role_with_scopes(management, 101)
    for headers in ({"If-Match": "*"}, await read(client, path, page_size=100)):
        assert refusal(await client.put(path, json={"scopeIds": ids[:1]}, headers=headers)) == MISMATCH


async def test_the_template_is_replaced_only_as_it_was_read(template: Template) -> None:
    client, path = template.client, "/api/organization-template"
    before, document = await read(client, path), (await client.get(path)).json()
    document["permissions"].append({"name": unique("permission")})
    assert (await client.put(path, json=document, headers=before)).is_success
    assert refusal(await client.put(path, json=document, headers=before)) == MISMATCH
    assert refusal(await client.put(path, json=document, headers=before, params={"dry-run": "true"})) == MISMATCH


@pytest.mark.servers
async def test_what_is_committed_while_the_write_waits_for_its_row_counts(management: Management) -> None:
    """The comparison before the body cannot see it."""
    user = await management.created("users", name="Ada")
    path = f"/api/users/{user['id']}"
    before = await read(management.client, path)
    row = (management.tenant_id, user["id"])
    async with management.database.transaction():
        await management.database.execute("UPDATE users SET name = 'Countess' WHERE tenant_id = $1 AND id = $2", *row)
        write = asyncio.create_task(management.client.patch(path, json={"name": "Augusta"}, headers=before))
        await until_waited_for(management.database)
        assert not write.done()
    assert refusal(await write) == MISMATCH
    assert (await management.client.get(path)).json()["name"] == "Countess"


@pytest.mark.heavy
async def test_of_many_who_write_at_once_one_succeeds(management: Management) -> None:
    """More than there are connections: no request waits for a connection that another one holds."""
    writers = 2 * management.settings.database_connections
    client, user = management.client, await management.created("users")
    path = f"/api/users/{user['id']}"
    for round_number in range(5):
        before = await read(client, path)
        names = [f"{round_number}-{writer}" for writer in range(writers)]
        writes = [client.patch(path, json={"name": name}, headers=before) for name in names]
        answers = await asyncio.gather(*writes)
        assert sorted(answer.status_code for answer in answers) == [200] + [412] * (writers - 1)
        written = next(name for name, answer in zip(names, answers, strict=True) if answer.is_success)
        assert (await client.get(path)).json()["name"] == written
