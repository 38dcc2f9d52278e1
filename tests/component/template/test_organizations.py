"""``/api/organizations``."""

import asyncio
import time
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.management_api import issues, refusal, unique
from tests.support.template_api import RequestedFanOuts, Template, revision

PATH = "/api/organizations"
EVERYTHING: dict[str, Any] = {
    "description": "Makes things",
    "customData": {"plan": "gold", "nested": {"a": [1, None, "\U0001f600"]}},
    "isMfaRequired": True,
    "color": {"primaryColor": "#5d34f2", "isDarkModeEnabled": True},
}
NOTHING: dict[str, Any] = {
    "description": None,
    "customData": {},
    "isMfaRequired": False,
    "color": {},
    "branding": {},
    "customCss": None,
}


async def test_an_organization_is_shown_as_it_was_created_and_its_event_says_what_others_need(
    template: Template,
) -> None:
    name = unique("Acme")
    before_ms = time.time_ns() // 1_000_000
    answer = await template.client.post(PATH, json={"name": name, **EVERYTHING})
    organization = answer.json()
    assert answer.status_code == 201
    assert organization == {
        "tenantId": template.tenant_id,
        "id": organization["id"],
        "name": name,
        **NOTHING,
        **EVERYTHING,
        "createdAt": organization["createdAt"],
    }
    assert len(organization["id"]) == 12
    assert before_ms <= organization["createdAt"] <= time.time_ns() // 1_000_000
    assert (await template.client.get(f"{PATH}/{organization['id']}")).json() == organization
    event = await template.event("organization", organization["id"])
    assert event is not None
    assert (event.type, event.subject) == ("organization.created", organization["id"])
    assert event.revision == revision(answer)
    event_data = {"id": organization["id"], "name": name, "isMfaRequired": True}
    assert await template.event_data("organization", organization["id"]) == event_data
    for bare in ({}, dict.fromkeys(NOTHING)):
        made = await template.organization(name=name, **bare)  # names need not be unique
        assert made == {**organization, **NOTHING, "id": made["id"], "createdAt": made["createdAt"]}


async def test_a_patch_changes_only_the_given_members_of_an_organization(
    template: Template, fan_outs: RequestedFanOuts
) -> None:
    organization = await template.organization(**EVERYTHING)
    path, name = f"{PATH}/{organization['id']}", unique("renamed")
    answer = await template.client.patch(path, json={"name": name, "customData": {"plan": "free"}})
    changed = {**organization, "name": name, "customData": {"plan": "free"}}
    assert (answer.status_code, answer.json()) == (200, changed)
    assert (await template.client.get(path)).json() == changed
    event = await template.event("organization", organization["id"])
    assert event is not None
    assert (event.type, event.revision) == ("organization.updated", revision(answer))
    event_data = {"id": organization["id"], "name": name, "isMfaRequired": True}
    assert await template.event_data("organization", organization["id"]) == event_data
    for body in ({}, {"name": name}, {"customData": {"plan": "free"}, "isMfaRequired": True}):
        same = await template.client.patch(path, json=body)
        assert (same.json(), revision(same)) == (changed, revision(answer))
    cleared = await template.client.patch(path, json=dict.fromkeys(NOTHING))
    assert (cleared.json(), revision(cleared)) == ({**changed, **NOTHING}, revision(answer) + 1)
    assert await template.event_data("organization", organization["id"]) == {"id": organization["id"], "name": name}
    for member, value in EVERYTHING.items():
        assert (await template.client.patch(path, json={member: value})).json()[member] == value
    assert (await template.client.get(path)).json() == {**changed, **EVERYTHING}
    wrong: dict[str, Any] = {"name": None, "createdAt": 1, "customData": []}
    assert issues(await template.client.patch(path, json=wrong)) == wrong.keys()
    assert await fan_outs.new() == set()


async def test_a_deleted_organization_is_gone_at_once_and_its_members_are_removed_later(
    template: Template, fan_outs: RequestedFanOuts
) -> None:
    organization = (await template.organization())["id"]
    before = await template.revision()
    answer = await template.client.delete(f"{PATH}/{organization}")
    assert (answer.status_code, answer.content, revision(answer)) == (204, b"", before + 1)
    assert await template.event_data("organization", organization) == {"id": organization, "deleted": True}
    assert await fan_outs.new() == {("organization-deleted", organization)}
    assert refusal(await template.client.get(f"{PATH}/{organization}")) == (404, "entity.not_exists_with_id")
    assert refusal(await template.client.delete(f"{PATH}/{organization}")) == (404, "entity.not_found")
    assert refusal(await template.client.patch(f"{PATH}/{organization}", json={})) == (404, "entity.not_exists")


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name"}),
        ({"name": ""}, {"name"}),
        ({"name": "x" * 257, "description": "x" * 1025}, {"name", "description"}),
        ({"name": "n", "customData": [], "color": "red", "branding": 1}, {"customData", "color", "branding"}),
        ({"name": "n", "isMfaRequired": "yes", "customCss": {}}, {"isMfaRequired", "customCss"}),
        ({"name": "n", "id": "mine", "createdAt": 1, "usersCount": 1}, {"id", "createdAt", "usersCount"}),
    ],
)
async def test_every_wrong_member_of_a_new_organization_is_named(
    template_api: httpx.AsyncClient, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await template_api.post(PATH, json=body)) == paths


@pytest.mark.parametrize("member", ["customData", "color"])
async def test_free_form_members_are_bounded(template: Template, member: str) -> None:
    """64 KiB of JSON, counted in bytes."""
    organization = await template.organization()
    path = f"{PATH}/{organization['id']}"

    def value(size: int, character: str = "x") -> Any:
        return {"a": character * (size // len(character.encode()))}

    around = len('{"a":""}')
    largest = value(64 * 1024 - around)
    assert (await template.client.patch(path, json={member: largest})).json()[member] == largest
    for too_large in (value(64 * 1024 - around + 1), value(64 * 1024 + 2, "ä"), value(2_000_000)):
        for answer in (
            await template.client.patch(path, json={member: too_large}),
            await template.client.post(PATH, json={"name": "n", member: too_large}),
        ):
            assert refusal(answer) == (413, "request.too_large")
    assert (await template.client.get(path)).json()[member] == largest


@pytest.mark.parametrize(
    "body",
    [{"customCss": "a {}"}, {"branding": {"logoUrl": "https://example.com/logo.png"}},
     {"description": "d", "branding": {"a": 1}}, {"customCss": "x" * 70_000}],
)  # fmt: skip
async def test_what_no_sign_in_honours_is_refused(template: Template, body: dict[str, Any]) -> None:
    organization = await template.organization()
    path, before = f"{PATH}/{organization['id']}", await template.revision()
    for answer in (
        await template.client.patch(path, json=body),
        await template.client.post(PATH, json={"name": "n", **body}),
    ):
        assert refusal(answer) == (422, "entity.not_supported")
        assert list(body)[-1] in answer.json()["message"]
    assert (await template.client.get(path)).json() == organization
    assert await template.revision() == before
    assert refusal(await template.client.patch(f"{PATH}/none", json=body)) == (404, "entity.not_exists")
    empty = {"branding": {}, "customCss": None}
    assert (await template.client.patch(path, json=empty)).json() == organization


async def featured(template: Template, marker: str, value: str = "true") -> list[Any]:
    answer = await template.client.get(PATH, params={"q": marker, "showFeatured": value})
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()
    return found


async def test_the_list_shows_users_of_organizations_on_request(template: Template) -> None:
    marker = unique("featured")
    crowded = await template.organization(name=f"{marker} crowded")
    empty = await template.organization(name=f"{marker} empty")
    users = [
        await template.management.created("users", name=f"User {number}", avatar="https://example.com/a.png")
        for number in range(4)
    ]
    users.append(await template.management.created("users"))
    await template.caught_up()
    await template.join(crowded["id"], *(user["id"] for user in users))
    await template.database.execute(
        "INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at) "
        "VALUES ($1, $2, '000', 'application', 0)",
        template.tenant_id,
        crowded["id"],
    )
    first = sorted(users, key=lambda user: user["id"])[:3]
    shown = [{"id": user["id"], "name": user["name"], "avatar": user["avatar"]} for user in first]
    with_users = {**crowded, "usersCount": 5, "featuredUsers": shown}
    without = {**empty, "usersCount": 0, "featuredUsers": []}
    assert await featured(template, marker) == [with_users, without]
    assert await featured(template, marker, "1") == [with_users, without]
    for value in ("false", "0"):
        assert await featured(template, marker, value) == [crowded, empty]
    assert (await template.client.get(PATH, params={"q": marker})).json() == [crowded, empty]
    counted = [{**crowded, "usersCount": 5}, {**empty, "usersCount": 0}]
    for scope, expected in (
        ("organizations:read", counted),
        ("organizations users:read", [with_users, without]),
        ("read", [with_users, without]),
    ):
        async with template.client_with(template.management.token(scope=scope)) as client:
            assert (await client.get(PATH, params={"q": marker, "showFeatured": "true"})).json() == expected, scope
    await template.management.client.delete(f"/api/users/{first[0]['id']}")
    await template.caught_up()
    (found, _) = await featured(template, marker)
    assert (found["usersCount"], first[0]["id"] in str(found["featuredUsers"])) == (4, False)


@pytest.mark.parametrize("query", ["showFeatured=", "showFeatured=yes", "showFeatured=true&showFeatured=false",
                                   "showFeatured=%00", "showFeatured=%FF", "showFeatured=TRUE"])  # fmt: skip
async def test_an_invalid_show_featured_is_refused(template: Template, query: str) -> None:
    assert issues(await template.client.get(f"{PATH}?{query}")) == {"showFeatured"}


async def test_concurrent_patches_of_different_members_lose_nothing(template: Template) -> None:
    organization = await template.organization()
    path = f"{PATH}/{organization['id']}"
    for number in range(5):
        requests = [{member: {"round": number}} for member in ("customData", "color")]
        requests.append({"description": f"round {number}"})
        answers = await asyncio.gather(*(template.client.patch(path, json=body) for body in requests))
        assert {answer.status_code for answer in answers} == {200}
        expected = organization
        for body in requests:
            expected = {**expected, **body}
        assert (await template.client.get(path)).json() == expected
