"""``/api/resources`` and their scopes; the Management API among them."""

import httpx2 as httpx
import pytest

from identity_common.rights.scopes import MANAGEMENT_SCOPES
from tests.support.management_api import AUDIENCE, Management, at_once, issues, refusal, revision_of, unique


def indicator() -> str:
    return f"https://{unique('api')}.example.com/v1"


async def test_a_resource_is_shown_as_it_was_created_and_its_event_says_the_same(management: Management) -> None:
    body = {"name": "Shop", "indicator": indicator(), "accessTokenTtl": 600}
    answer = await management.client.post("/api/resources", json=body)
    resource = answer.json()
    assert answer.status_code == 201
    assert resource == {"tenantId": management.tenant_id, "id": resource["id"], **body, "isDefault": False}
    assert (await management.client.get(f"/api/resources/{resource['id']}")).json() == resource
    event = await management.event("resource", resource["id"])
    assert event is not None
    assert (event.type, event.revision) == ("resource.created", revision_of(answer))
    assert await management.event_data("resource", resource["id"]) == {
        "id": resource["id"],
        "name": "Shop",
        "indicator": body["indicator"],
        "access_token_ttl_s": 600,
    }


async def test_a_resource_may_be_renamed_but_keeps_its_indicator(management: Management) -> None:
    resource = await management.created("resources", name="Shop", indicator=indicator())
    path = f"/api/resources/{resource['id']}"
    answer = await management.client.patch(path, json={"name": "Store", "accessTokenTtl": 60})
    assert answer.json() == {**resource, "name": "Store", "accessTokenTtl": 60}
    assert (await management.client.patch(path, json={"accessTokenTtl": None})).json()["accessTokenTtl"] == 3600
    assert issues(await management.client.patch(path, json={"indicator": indicator()})) == {"indicator"}
    assert issues(await management.client.patch(path, json={"name": None})) == {"name"}


async def test_scopes_are_listed_by_name_and_deleted_with_their_resource(management: Management) -> None:
    resource = await management.created("resources", name="Shop", indicator=indicator())
    path = f"/api/resources/{resource['id']}/scopes"
    answer = await management.client.post(path, json={"name": "write:orders", "description": "Change orders"})
    write = answer.json()
    assert answer.status_code == 201
    assert write == {
        "tenantId": management.tenant_id,
        "id": write["id"],
        "resourceId": resource["id"],
        "name": "write:orders",
        "description": "Change orders",
        "createdAt": write["createdAt"],
    }
    assert await management.event_data("scope", resource["id"], write["id"]) == {
        "id": write["id"],
        "resource_id": resource["id"],
        "name": "write:orders",
        "description": "Change orders",
    }
    read = await management.created(f"resources/{resource['id']}/scopes", name="read:orders")
    listed = await management.client.get(path)
    assert (listed.json(), listed.headers["Total-Number"]) == ([read, write], "2")
    assert refusal(await management.client.post(path, json={"name": "read:orders"})) == (422, "scope.name_exists")
    before = await management.revision()
    deleted = await management.client.delete(f"/api/resources/{resource['id']}")
    assert (deleted.status_code, revision_of(deleted)) == (204, before + 3)
    deletion = {"id": resource["id"], "deleted": True, "indicator": resource["indicator"]}
    assert await management.event_data("resource", resource["id"]) == deletion
    for scope in (read, write):
        assert await management.event_data("scope", resource["id"], scope["id"]) == {
            "id": scope["id"],
            "deleted": True,
            "resource_id": resource["id"],
        }
    assert refusal(await management.client.get(path)) == (404, "entity.not_exists_with_id")


async def test_a_scope_under_another_resource_is_not_found(management: Management) -> None:
    """The child is looked up under its parent."""
    mine = await management.created("resources", name="Mine", indicator=indicator())
    other = await management.created("resources", name="Other", indicator=indicator())
    scope = await management.created(f"resources/{mine['id']}/scopes", name="read")
    path = f"/api/resources/{other['id']}/scopes/{scope['id']}"
    assert refusal(await management.client.delete(path)) == (404, "entity.not_found")
    assert (await management.client.delete(f"/api/resources/{mine['id']}/scopes/{scope['id']}")).status_code == 204
    assert await management.event_data("scope", mine["id"], scope["id"]) == {
        "id": scope["id"],
        "deleted": True,
        "resource_id": mine["id"],
    }


async def test_an_indicator_is_unique(management: Management) -> None:
    resource = await management.created("resources", name="Shop", indicator=indicator())
    body = {"name": "Shop again", "indicator": resource["indicator"]}
    in_use = (422, "resource.resource_identifier_in_use")
    assert refusal(await management.client.post("/api/resources", json=body)) == in_use
    contested = indicator()
    answers = await at_once(
        *(management.client.post("/api/resources", json={"name": "n", "indicator": contested}) for _ in range(20))
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 19


async def test_the_management_api_cannot_be_changed(management: Management) -> None:
    listed = (await management.client.get("/api/resources")).json()
    own = next(resource for resource in listed if resource["indicator"] == AUDIENCE)
    path = f"/api/resources/{own['id']}"
    scopes = (await management.client.get(f"{path}/scopes")).json()
    assert {scope["name"]: scope["description"] for scope in scopes} == MANAGEMENT_SCOPES
    refused = (400, "resource.cannot_modify_management_api")
    assert refusal(await management.client.patch(path, json={"name": "Mine"})) == refused
    assert refusal(await management.client.delete(path)) == refused
    assert refusal(await management.client.patch(f"{path}/is-default", json={"isDefault": True})) == refused
    assert refusal(await management.client.post(f"{path}/scopes", json={"name": "more"})) == refused
    assert refusal(await management.client.patch(f"{path}/scopes/{scopes[0]['id']}", json={"name": "x"})) == refused
    assert refusal(await management.client.delete(f"{path}/scopes/{scopes[0]['id']}")) == refused
    assert (await management.client.get(f"{path}/scopes")).json() == scopes


async def test_the_management_api_answers_under_its_fixed_id_too(management: Management) -> None:
    path, client = "/api/resources/management-api", management.client
    own = (await client.get(path)).json()
    assert own in (await client.get("/api/resources")).json()
    assert (own["indicator"], own["id"] == "management-api") == (AUDIENCE, False)
    scopes = await client.get(f"{path}/scopes", params={"page_size": 1})
    assert [scope["name"] for scope in scopes.json()] == ["all"]
    assert {scope["resourceId"] for scope in scopes.json()} == {own["id"]}
    assert (await client.get(scopes.links["next"]["url"])).json()[0]["name"] == "applications"
    refused = (400, "resource.cannot_modify_management_api")
    assert refusal(await client.delete(path)) == refused
    assert refusal(await client.patch(f"{path}/is-default", json={"isDefault": True})) == refused
    assert refusal(await client.post(f"{path}/scopes", json={"name": "more"})) == refused
    async with management.client_with(None) as anonymous:
        assert refusal(await anonymous.get(path)) == (401, "auth.authorization_header_missing")


@pytest.mark.parametrize(
    "name",
    ["", "two words", 'quo"te', "back\\slash", "ümlaut", "x" * 129, "openid", "profile", "offline_access", "roles",
     "urn:service:scope:x", "tab\t"],
)  # fmt: skip
async def test_an_invalid_scope_name_is_refused(management: Management, name: str) -> None:
    resource = await management.created("resources", name="Shop", indicator=indicator())
    answer = await management.client.post(f"/api/resources/{resource['id']}/scopes", json={"name": name})
    assert refusal(answer) == (422, "scope.invalid_name")


@pytest.mark.parametrize(
    "wrong",
    ["", "api", "/api", "//host/api", "https://", "https:///path", "https://example.com/#a", "https://example.com#",
     "urn:service:organization:1", "URN:SERVICE:x", "https://example.com/a b", "https://exämple.com", "http://[::1",
     "{issuer}", "{issuer}/me", "{issuer}?x"],
)  # fmt: skip
async def test_an_invalid_indicator_is_refused(management: Management, wrong: str) -> None:
    body = {"name": "n", "indicator": wrong.replace("{issuer}", management.issuer.issuer)}
    answer = await management.client.post("/api/resources", json=body)
    assert refusal(answer) == (422, "resource.invalid_indicator")


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name", "indicator"}),
        ({"name": "", "indicator": "https://a.example"}, {"name"}),
        ({"name": "n", "indicator": 1}, {"indicator"}),
        ({"name": "n", "indicator": "x" * 2049}, {"indicator"}),
        ({"name": "n", "indicator": "https://a.example", "accessTokenTtl": 0}, {"accessTokenTtl"}),
        ({"name": "n", "indicator": "https://a.example", "accessTokenTtl": 2**40}, {"accessTokenTtl"}),
        ({"name": "n", "indicator": "https://a.example", "accessTokenTtl": 1.5}, {"accessTokenTtl"}),
        ({"name": "n", "indicator": "https://a.example", "scopes": []}, {"scopes"}),
    ],
)
async def test_every_wrong_member_of_a_new_resource_is_named(
    management_api: httpx.AsyncClient, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await management_api.post("/api/resources", json=body)) == paths


async def test_a_missing_resource_is_a_404_with_the_code_of_its_method(management_api: httpx.AsyncClient) -> None:
    with_id, exists, found = "entity.not_exists_with_id", "entity.not_exists", "entity.not_found"
    assert refusal(await management_api.get("/api/resources/none")) == (404, with_id)
    assert refusal(await management_api.patch("/api/resources/none", json={})) == (404, exists)
    assert refusal(await management_api.delete("/api/resources/none")) == (404, found)
    assert refusal(await management_api.get("/api/resources/none/scopes?page=0")) == (404, with_id)
    assert refusal(await management_api.post("/api/resources/none/scopes", json={})) == (404, with_id)
    assert refusal(await management_api.delete("/api/resources/none/scopes/none")) == (404, with_id)


async def test_at_most_one_resource_is_the_default(management: Management) -> None:
    first, second = [await management.created("resources", name="n", indicator=indicator()) for _ in range(2)]
    path = "/api/resources/{}/is-default"
    made = await management.client.patch(path.format(first["id"]), json={"isDefault": True})
    assert (made.status_code, made.json()) == (200, {**first, "isDefault": True})
    before = await management.revision()
    moved = await management.client.patch(path.format(second["id"]), json={"isDefault": True})
    assert (moved.json(), revision_of(moved)) == ({**second, "isDefault": True}, before + 2)
    assert "is_default" not in await management.event_data("resource", first["id"])
    assert (await management.event_data("resource", second["id"]))["is_default"] is True
    again = await management.client.patch(path.format(second["id"]), json={"isDefault": True})
    assert revision_of(again) == revision_of(moved)
    answers = await at_once(
        *(
            management.client.patch(path.format(resource["id"]), json={"isDefault": True})
            for resource in (first, second) * 5
        )
    )
    assert {answer.status_code for answer in answers} == {200}
    listed = (await management.client.get("/api/resources")).json()
    assert sum(resource["isDefault"] for resource in listed) == 1
    for resource in (first, second):
        await management.client.patch(path.format(resource["id"]), json={"isDefault": False})
    assert not any(resource["isDefault"] for resource in (await management.client.get("/api/resources")).json())
    none = await management.client.patch(path.format("none"), json={"isDefault": 1})
    assert refusal(none) == (404, "entity.not_exists_with_id")
    assert issues(await management.client.patch(path.format(first["id"]), json={"isDefault": None})) == {"isDefault"}


async def test_a_scope_is_changed_under_the_rules_of_its_creation(management: Management) -> None:
    resource = await management.created("resources", name="Shop", indicator=indicator())
    path = f"/api/resources/{resource['id']}/scopes"
    scope = await management.created(f"resources/{resource['id']}/scopes", name="read", description="Read")
    await management.created(f"resources/{resource['id']}/scopes", name="write")
    answer = await management.client.patch(f"{path}/{scope['id']}", json={"name": "read:all", "description": None})
    assert (answer.status_code, answer.json()) == (200, {**scope, "name": "read:all", "description": None})
    event = await management.event("scope", resource["id"], scope["id"])
    assert event is not None
    assert (event.type, event.revision) == ("scope.updated", revision_of(answer) - 1)  # the lost name follows
    assert (await management.event_data("scope", resource["id"], scope["id"]))["name"] == "read:all"
    same = await management.client.patch(f"{path}/{scope['id']}", json={"name": "read:all"})
    assert revision_of(same) == revision_of(answer)
    for name, refused in (("write", "scope.name_exists"), ("openid", "scope.invalid_name"), ("", "scope.invalid_name")):
        wrong = await management.client.patch(f"{path}/{scope['id']}", json={"name": name})
        assert refusal(wrong) == (422, refused)
    assert issues(await management.client.patch(f"{path}/{scope['id']}", json={"name": None, "id": 1})) == {
        "name",
        "id",
    }
    assert refusal(await management.client.patch(f"{path}/none", json={})) == (404, "entity.not_exists")
