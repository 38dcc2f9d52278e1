"""Lists: pages, order, search, and the pagination headers."""

import re

import httpx2 as httpx
import pytest

from identity_common.names import sort_key
from tests.support.management_api import Management, refusal, unique


def links(answer: httpx.Response) -> dict[str, str]:
    """Return the URLs of a ``Link`` header by relation."""
    return {relation: url for url, relation in re.findall(r'<([^>]+)>; rel="(\w+)"', answer.headers["Link"])}


def in_order(listed: dict[str, str]) -> str:
    return sort_key(listed["name"])


async def test_users_are_paged_by_name_and_id_and_the_links_lead_through_all_pages(
    management: Management,
) -> None:
    marker = unique("page")
    made = [await management.created("users", name=f"{marker} {letter}") for letter in "ecabdfa"]
    expected = sorted(made, key=lambda user: (user["name"], user["id"]))
    first = await management.client.get("/api/users", params={"search": marker, "page_size": 3})
    assert first.json() == expected[:3]
    assert first.headers["Total-Number"] == "7"
    address = f"{management.settings.base_url}/api/users?search={marker}"
    assert links(first) == {
        "first": f"{address}&page=1&page_size=3",
        "next": f"{address}&page=2&page_size=3",
        "last": f"{address}&page=3&page_size=3",
    }
    found, seen = first, list(first.json())
    while "next" in links(found):
        found = await management.client.get(links(found)["next"].removeprefix(management.settings.base_url))
        seen += found.json()
    assert seen == expected
    assert links(found) == {
        "first": f"{address}&page=1&page_size=3",
        "prev": f"{address}&page=2&page_size=3",
        "last": f"{address}&page=3&page_size=3",
    }
    beyond = await management.client.get("/api/users", params={"search": marker, "page_size": 3, "page": 9})
    assert (beyond.json(), beyond.headers["Total-Number"]) == ([], "7")
    assert links(beyond)["prev"] == f"{address}&page=3&page_size=3"


@pytest.mark.heavy
async def test_a_list_without_a_page_answers_20_items_or_all_as_the_contract_says(
    management: Management,
) -> None:
    for number in range(21):
        await management.created("users", name=f"many {number:02}")
        await management.created("applications", name=f"many {number:02}", type="SPA")
        await management.created("resources", name="many", indicator=f"https://{unique('r')}.example.com")
        await management.created("roles", name=unique("many"), description="", type="User")
    for path, is_whole in (("users", False), ("roles", False), ("applications", True), ("resources", True)):
        answer = await management.client.get(f"/api/{path}")
        total = int(answer.headers["Total-Number"])
        assert total > 20
        assert len(answer.json()) == (total if is_whole else 20)
        assert ("Link" in answer.headers) is not is_whole
        paged = await management.client.get(f"/api/{path}", params={"page": 2})
        assert paged.json()[0]["id"] not in [item["id"] for item in answer.json()[:20]]
        hundred = await management.client.get(f"/api/{path}", params={"page_size": 100})
        assert len(hundred.json()) == min(total, 100)


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=-1", "page=x", "page=", "page_size=0", "page_size=101", "page=1&page=2", "page=1.0", "page=9e9",
     "page=99999999999999999999", "page_size=%00", "page=%FF", "page=+1"],
)  # fmt: skip
async def test_an_invalid_page_is_refused(management_api: httpx.AsyncClient, query: str) -> None:
    for path in ("users", "applications", "resources", "roles"):
        assert refusal(await management_api.get(f"/api/{path}?{query}")) == (400, "guard.invalid_pagination")


@pytest.mark.parametrize("wanted", ["ÄRGER", "ärger", "a\u0308rger", "%ärger%", "rge"])
async def test_a_search_finds_parts_of_every_name_case_insensitively(management: Management, wanted: str) -> None:
    marker = unique("s")
    users = [
        await management.created("users", name=f"Frau Ärger {marker}"),
        await management.created("users", username=f"ärger.{marker}"),
        await management.created("users", primaryEmail=f"Ärger.{marker}@example.com"),
    ]
    found = (await management.client.get("/api/users", params={"search": wanted, "page_size": 100})).json()
    assert {user["id"] for user in users} <= {user["id"] for user in found}
    for user in users:
        await management.client.delete(f"/api/users/{user['id']}")


async def test_pattern_characters_are_searched_for_literally(management: Management) -> None:
    user = await management.created("users", name="100%_sure\\")
    for text, expected in (("0%_s", [user]), ("e\\", [user]), ("1_0%_s", []), ("'; drop", [])):
        found = await management.client.get("/api/users", params={"search": text})
        assert (found.status_code, found.json()) == (200, expected)
    assert refusal(await management.client.get("/api/users?search=%00")) == (400, "guard.invalid_input")
    assert (await management.client.get("/api/users?search=%FF%FE")).status_code == 200


@pytest.mark.parametrize("parameter", ["q", "search"])
async def test_every_list_is_searched_by_name_and_description_case_insensitively(
    management: Management, parameter: str
) -> None:
    marker = unique("ärger")
    named, described = {"name": f"{marker} 1"}, {"name": unique("other"), "description": f"about {marker}"}
    application = await management.created("applications", type="MachineToMachine", **named)
    second = await management.created("applications", type="MachineToMachine", **described)
    resource = await management.created("resources", indicator=f"https://{unique('r')}.example.com", **named)
    scope_names = [
        {"name": unique("read").upper()},
        {"name": unique("x"), "description": f"See {marker}"},
        {"name": "z"},
    ]
    scopes = [await management.created(f"resources/{resource['id']}/scopes", **members) for members in scope_names]
    role = await management.created("roles", type="MachineToMachine", description="", **named)
    user_role = await management.created("roles", type="User", **{**described, "name": unique("u")})
    user = await management.created("users", **named)
    await management.created("users", name=unique("nobody"))
    scope_ids = {"scopeIds": [scope["id"] for scope in scopes]}
    await management.client.post(f"/api/roles/{role['id']}/scopes", json=scope_ids)
    application_ids = {"applicationIds": [application["id"], second["id"]]}
    await management.client.post(f"/api/roles/{role['id']}/applications", json=application_ids)
    await management.client.post(f"/api/roles/{user_role['id']}/users", json={"userIds": [user["id"]]})
    await management.created(f"applications/{application['id']}/secrets", name=marker)
    searched = marker.upper()
    for path, text, expected in (
        ("users", searched, [user]),
        ("applications", f"%{searched}%", sorted((application, second), key=in_order)),
        ("resources", searched, [resource]),
        ("resources", resource["indicator"].upper(), [resource]),
        ("roles", searched, sorted((role, user_role), key=in_order)),
        (f"resources/{resource['id']}/scopes", searched, [scopes[1]]),
        (f"resources/{resource['id']}/scopes", scopes[0]["name"].lower(), [scopes[0]]),
        (f"roles/{role['id']}/scopes", searched, [scopes[1]]),
        (f"roles/{role['id']}/applications", marker, sorted((application, second), key=in_order)),
        (f"roles/{user_role['id']}/users", searched, [user]),
        (f"roles/{user_role['id']}/users", "nowhere", []),
        (f"users/{user['id']}/roles", searched, [user_role]),
        (f"applications/{application['id']}/roles", searched, [role]),
    ):
        found = await management.client.get(f"/api/{path}", params={parameter: text})
        assert (found.json(), found.headers["Total-Number"]) == (expected, str(len(expected))), path
        nothing = await management.client.get(f"/api/{path}", params={parameter: "0%_'"})
        assert (nothing.json(), nothing.headers["Total-Number"]) == ([], "0"), path
        assert refusal(await management.client.get(f"/api/{path}?{parameter}=%00")) == (400, "guard.invalid_input")
    secrets = await management.client.get(
        f"/api/applications/{application['id']}/secrets", params={parameter: searched}
    )
    assert [secret["name"] for secret in secrets.json()] == [marker]
