"""Lists of template-service: pages, order, search, entity tags, and the number of statements."""

import re
import time
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from tests.support.databases import statements
from tests.support.management_api import issues, refusal, unique
from tests.support.template_api import Template

ITEMS = 30
TOMORROW_MS = int((time.time() + 86_400) * 1000)
LISTS = {
    "organization-scopes": 2,
    "organization-roles": 2,
    "organization-roles/{role_id}/scopes": 2,
    "organization-roles/{role_id}/resource-scopes": 2,
    "organizations": 2,
    "organizations?showFeatured=true": 2,
    "organization-invitations": 2,
}
"""Every list, but for those of members, and the most statements it may take."""


@pytest_asyncio.fixture(scope="module")
async def marker(template: Template) -> str:
    """Fill every list with items that have relations; return the marker in their names."""
    marker = unique("listed")
    resource = await template.resource(*(f"{marker}-{number:02}" for number in range(ITEMS)))
    permissions = [
        await template.created("organization-scopes", name=f"{marker}-{number:02}", description=f"About {marker}")
        for number in range(ITEMS)
    ]
    contents = {
        "organizationScopeIds": [each["id"] for each in permissions],
        "resourceScopeIds": [each["id"] for each in resource["scopes"]],
    }
    users = [(await template.management.created("users", name=f"{number}"))["id"] for number in range(5)]
    await template.caught_up()
    for number in range(ITEMS):
        role = await template.role(name=f"{marker} {number:02}", description="x", **contents)
        organization = await template.organization(name=f"{marker} {number // 2:02}")
        await template.join(organization["id"], *users, role_ids=[role["id"]])
        await template.created(
            "organization-invitations",
            organizationId=organization["id"],
            invitee=f"{marker}-{number // 2:02}@id.test",
            expiresAt=TOMORROW_MS,
            organizationRoleIds=[role["id"]],
        )
    return marker


@pytest_asyncio.fixture(scope="module")
async def paths(template: Template, marker: str) -> dict[str, str]:
    """Return the path of every list."""
    (role, *_) = (await template.client.get("/api/organization-roles", params={"q": marker})).json()
    return {each: f"/api/{each.format(role_id=role['id'])}" for each in LISTS}


async def test_the_table_names_every_list_of_the_document(template: Template) -> None:
    document = (await template.client.get("/schema")).json()
    lists = {
        path.removeprefix("/api/")
        for path, operations in document["paths"].items()
        if "Total-Number" in operations.get("get", {}).get("responses", {}).get("200", {}).get("headers", {})
        and path.startswith("/api/organization")
        and not path.startswith("/api/organizations/{organization_id}/")
    }
    assert lists == {name.partition("?")[0] for name in LISTS}


def links(answer: httpx.Response) -> dict[str, str]:
    return {relation: url for url, relation in re.findall(r'<([^>]+)>; rel="(\w+)"', answer.headers["Link"])}


def asked(path: str, **params: Any) -> dict[str, Any]:
    """Return the parameters of a request for a list, including those in its path."""
    return dict(httpx.URL(path).params) | params


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_is_paged_by_name_and_id_and_its_links_reach_every_page(
    template: Template, paths: dict[str, str], marker: str, name: str
) -> None:
    path = paths[name]
    whole = (await template.client.get(path, params=asked(path, q=marker, page_size=100))).json()
    assert len(whole) == ITEMS
    assert whole == sorted(whole, key=lambda each: (each.get("name") or each["invitee"], each["id"]))
    assert {each["tenantId"] for each in whole} == {template.tenant_id}
    found = await template.client.get(path, params=asked(path, q=marker, page_size=7))
    seen = list(found.json())
    assert (found.headers["Total-Number"], len(seen)) == (str(ITEMS), 7)
    while "next" in links(found):
        found = await template.client.get(links(found)["next"].removeprefix(template.settings.base_url))
        seen += found.json()
    assert seen == whole
    assert links(found).keys() == {"first", "prev", "last"}


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_without_a_page_returns_20_items_or_all_as_the_contract_says(
    template: Template, paths: dict[str, str], marker: str, name: str
) -> None:
    answer = await template.client.get(paths[name], params=asked(paths[name], search=f"%{marker.upper()}%"))
    is_whole = "scopes" in name
    assert answer.headers["Total-Number"] == str(ITEMS)
    assert len(answer.json()) == (ITEMS if is_whole else 20)
    assert ("Link" in answer.headers) is not is_whole


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_refuses_invalid_parameters(template: Template, paths: dict[str, str], name: str) -> None:
    path = paths[name]
    join = "&" if "?" in path else "?"
    for query in ("page=0", "page=x", "page_size=101", "page_size=0", "page=1&page=2", "page=99999999999999999999"):
        assert refusal(await template.client.get(f"{path}{join}{query}")) == (400, "guard.invalid_pagination")
    assert issues(await template.client.get(f"{path}{join}q=%00")) == {"q"}
    for text in ("0%_'", "\\", "'; drop table roles; --", unique("\U0001f600")):
        nothing = await template.client.get(path, params=asked(path, q=text))
        assert (nothing.status_code, nothing.json(), nothing.headers["Total-Number"]) == (200, [], "0")
    beyond = await template.client.get(path, params=asked(path, page=2**31 - 1))
    assert (beyond.status_code, beyond.json()) == (200, [])


async def test_lists_are_searched_by_description_resource_name_and_id(template: Template) -> None:
    word, resource = unique("Ärger"), await template.resource("read")
    permission = await template.created("organization-scopes", name=unique("p"), description=f"Bei {word}")
    role = await template.role(
        description=f"Bei {word}", organizationScopeIds=[permission["id"]],
        resourceScopeIds=[resource["scopes"][0]["id"]],
    )  # fmt: skip
    organization = await template.organization(description=f"Bei {word}")
    searched = word.upper()
    for path, text, expected in (
        ("organization-scopes", searched, permission),
        ("organization-roles", searched, role),
        (f"organization-roles/{role['id']}/scopes", searched, permission),
        (f"organization-roles/{role['id']}/resource-scopes", resource["name"].upper(), resource["scopes"][0]),
        ("organizations", searched, organization),
        ("organizations", organization["id"].upper(), organization),
    ):
        found = (await template.client.get(f"/api/{path}", params={"q": text})).json()
        assert [each["id"] for each in found] == [expected["id"]], path


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_takes_one_statement_and_a_count_however_long(
    template: Template, paths: dict[str, str], marker: str, name: str
) -> None:
    for params in ({"page_size": 1}, {"page_size": 100}, {}, {"page": 2}, {"q": marker, "page_size": 100}):
        with statements(template.settings.database_url) as sent:
            answer = await template.client.get(paths[name], params=asked(paths[name], **params))
        assert answer.status_code == 200
        assert len(sent) <= LISTS[name], sent
        if params == {"page_size": 100}:
            assert len(answer.json()) >= ITEMS


async def test_every_get_has_an_entity_tag_and_answers_304_if_it_matches(
    template: Template, paths: dict[str, str]
) -> None:
    permission, role = await template.permission(), await template.role()
    organization = await template.organization()
    invitation = await template.created(
        "organization-invitations", organizationId=organization["id"], invitee="bob@id.test", expiresAt=TOMORROW_MS
    )
    single = [
        f"/api/organization-scopes/{permission['id']}",
        f"/api/organization-roles/{role['id']}",
        f"/api/organizations/{organization['id']}",
        f"/api/organization-invitations/{invitation['id']}",
    ]
    for path in (*paths.values(), *single):
        answer = await template.client.get(path)
        etag = answer.headers["ETag"]
        for condition in (etag, f"W/{etag}", f'"x", {etag}', "*"):
            again = await template.client.get(path, headers={"If-None-Match": condition})
            assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag), path
        other = await template.client.get(path, headers={"If-None-Match": '"x"'})
        assert (other.status_code, other.content) == (200, answer.content)
        assert "Identity-Revision" not in answer.headers
    for path in single[:-1]:
        before = (await template.client.get(path)).headers["ETag"]
        await template.client.patch(path, json={"description": "other"})
        after = await template.client.get(path, headers={"If-None-Match": before})
        assert (after.status_code, after.json()["description"]) == (200, "other")
