"""``/api/users``: creation, reading, changes, refusals, and their events."""

from typing import Any

import httpx2 as httpx
import pytest

from tests.support.hashing_cost import has_current_cost
from tests.support.management_api import Management, at_once, issues, refusal, revision_of, unique


async def test_a_user_created_from_an_empty_body_is_complete(management: Management) -> None:
    answer = await management.client.post("/api/users", json={})
    user = answer.json()
    assert answer.status_code == 200
    assert user == {
        "tenantId": management.tenant_id,
        "id": user["id"],
        "username": None,
        "primaryEmail": None,
        "primaryPhone": None,
        "name": None,
        "avatar": None,
        "externalId": None,
        "customData": {},
        "profile": {},
        "isEmailVerified": False,
        "allowsPassword": False,
        "isSuspended": False,
        "hasPassword": False,
        "createdAt": user["createdAt"],
        "updatedAt": user["createdAt"],
    }
    assert len(user["id"]) == 12
    assert (await management.client.get(f"/api/users/{user['id']}")).json() == user


async def test_a_user_is_shown_as_it_was_created_and_its_event_says_the_same(management: Management) -> None:
    name = unique("alice")
    answer = await management.client.post(
        "/api/users",
        json={
            "username": name,
            "primaryEmail": f"{name}@example.com",
            "primaryPhone": f"+49151{abs(hash(name)) % 10**8:08}",
            "password": "correct horse battery",
            "name": "Alice",
            "avatar": "https://example.com/alice.png",
            "externalId": f"auth0|{name}",
            "customData": {"plan": {"seats": 3}},
            "profile": {"locale": "de"},
        },
    )
    user = answer.json()
    assert user["hasPassword"] is True
    assert user["customData"] == {"plan": {"seats": 3}}
    assert user["profile"] == {"locale": "de"}
    assert "password" not in str(user).replace("hasPassword", "")
    event = await management.event("user", user["id"])
    assert event is not None
    assert (event.type, event.revision) == ("user.created", revision_of(answer))
    assert await management.event_data("user", user["id"]) == {
        "id": user["id"],
        "username": name,
        "primary_email": f"{name}@example.com",
        "primary_phone": user["primaryPhone"],
        "name": "Alice",
        "avatar": "https://example.com/alice.png",
        "external_id": f"auth0|{name}",
        "has_password": True,
        "custom_data": {"plan": {"seats": 3}},
        "profile": {"locale": "de"},
        "created_at": user["createdAt"],
        "updated_at": user["createdAt"],
    }


@pytest.mark.parametrize(
    ("member", "first", "second", "code"),
    [
        ("username", "Straße", "STRASSE", "user.username_already_in_use"),
        ("username", "Zoë", "Zoe\u0308", "user.username_already_in_use"),
        ("primaryEmail", "Bob@Example.com", "bob@example.COM", "user.email_already_in_use"),
        ("primaryPhone", "+4915112345", "4915112345", "user.phone_already_in_use"),
        ("primaryPhone", "61412345679", "+610412345679", "user.phone_already_in_use"),
        ("externalId", "CN=Zoë,DC=example", "CN=Zoë,DC=example", "user.external_id_already_in_use"),
    ],
)
async def test_the_identifiers_of_a_user_are_unique_whatever_their_case_and_composition(
    management_api: httpx.AsyncClient, member: str, first: str, second: str, code: str
) -> None:
    made = await management_api.post("/api/users", json={member: first})
    assert made.status_code == 200, made.text
    assert refusal(await management_api.post("/api/users", json={member: second})) == (422, code)
    other = (await management_api.post("/api/users", json={})).json()["id"]
    assert refusal(await management_api.patch(f"/api/users/{other}", json={member: second})) == (422, code)
    await management_api.delete(f"/api/users/{made.json()['id']}")
    assert (await management_api.patch(f"/api/users/{other}", json={member: second})).status_code == 200
    await management_api.delete(f"/api/users/{other}")


async def test_a_patch_keeps_absent_members_clears_null_ones_and_changes_the_others(
    management: Management,
) -> None:
    name = unique("carol")
    user = await management.created("users", username=name, name="Carol", avatar="https://example.com/c.png")
    answer = await management.client.patch(
        f"/api/users/{user['id']}", json={"avatar": None, "name": "Caroline", "customData": {"a": 1}}
    )
    changed = answer.json()
    assert changed == {
        **user,
        "avatar": None,
        "name": "Caroline",
        "customData": {"a": 1},
        "updatedAt": changed["updatedAt"],
    }
    assert (await management.event_data("user", user["id"]))["name"] == "Caroline"
    assert (await management.client.get(f"/api/users/{user['id']}")).json() == changed


async def test_a_verification_counts_for_one_e_mail_address_only(management: Management) -> None:
    name = unique("verified")
    user = await management.created("users", primaryEmail=f"{name}@example.com", isEmailVerified=True)
    path = f"/api/users/{user['id']}"

    async def after(**body: Any) -> bool:
        changed = (await management.client.patch(path, json=body)).json()
        stated = (await management.event_data("user", user["id"])).get("is_email_verified", False)
        assert stated is changed["isEmailVerified"]
        return bool(stated)

    assert user["isEmailVerified"] is True
    assert await after(name="Eve", primaryEmail=f"{name}@example.com") is True
    assert await after(primaryEmail=f"{name.upper()}@Example.com") is True, "the same address in another spelling"
    assert await after(primaryEmail=f"{name}@example.org") is False
    assert await after(isEmailVerified=True) is True
    assert await after(primaryEmail=f"{name}@example.net", isEmailVerified=True) is True
    assert await after(isEmailVerified=False) is False
    assert await after(primaryEmail=None, isEmailVerified=True) is False, "there is no address to verify"
    assert (await management.created("users", isEmailVerified=True))["isEmailVerified"] is False
    assert issues(await management.client.patch(path, json={"isEmailVerified": None})) == {"isEmailVerified"}


async def test_an_external_id_is_compared_exactly_found_and_gone_with_its_user(management: Management) -> None:
    external_id = f"Auth0|{unique('x')}_%"
    user = await management.created("users", externalId=external_id, name="Ada")
    await management.created("users", externalId=external_id.lower(), name="Another")

    async def found(**params: str) -> list[str]:
        return [each["id"] for each in (await management.client.get("/api/users", params=params)).json()]

    exactly = {"search.externalId": external_id, "mode.externalId": "exact"}
    assert await found(**exactly) == [user["id"]]
    assert await found(**{"search.externalId": f"{external_id[:-2]}%"}) == [user["id"]]
    assert user["id"] in await found(q=external_id.upper())
    path = f"/api/users/{user['id']}"
    changed = await management.client.patch(path, json={"externalId": "new", "name": "Ada"})
    assert (changed.json()["externalId"], await found(**exactly)) == ("new", [])
    assert (await management.client.patch(path, json={"externalId": None})).json()["externalId"] is None
    await management.client.patch(path, json={"externalId": external_id})
    await management.client.delete(path)
    assert (await found(**exactly), await management.event_data("user", user["id"])) == (
        [],
        {"id": user["id"], "deleted": True},
    )


async def test_a_patch_that_changes_nothing_makes_no_event_and_returns_the_current_revision(
    management: Management,
) -> None:
    user = await management.created("users", name="Dora")
    before = await management.revision()
    for body in ({}, {"name": "Dora"}, {"avatar": None}, {"customData": {}}):
        answer = await management.client.patch(f"/api/users/{user['id']}", json=body)
        assert answer.json() == user
        assert revision_of(answer) == before
    assert await management.revision() == before


async def test_custom_data_of_a_user_is_merged(management: Management) -> None:
    user = await management.created("users", customData={"a": {"b": 1}, "c": 2, "kept": None})
    path = f"/api/users/{user['id']}/custom-data"
    assert (await management.client.get(path)).json() == {"a": {"b": 1}, "c": 2, "kept": None}
    answer = await management.client.patch(path, json={"customData": {"a": {"d": 1}, "c": None, "e": [3]}})
    whole = {"a": {"d": 1}, "kept": None, "e": [3]}
    assert (answer.status_code, answer.json()) == (200, whole)
    assert (await management.client.get(path)).json() == whole
    assert (await management.event_data("user", user["id"]))["custom_data"] == whole
    nothing = await management.client.patch(path, json={"customData": {"gone": None}})
    assert revision_of(nothing) == revision_of(answer)
    too_large = await management.client.patch(path, json={"customData": {"f": "x" * 65_536}})
    assert refusal(too_large) == (413, "request.too_large")
    assert issues(await management.client.patch(path, json={"customData": None})) == {"customData"}
    assert issues(await management.client.patch(path, json={"a": 1})) == {"a", "customData"}
    for method in ("GET", "PATCH"):
        missing = await management.client.request(method, "/api/users/none/custom-data", json=1)
        assert refusal(missing) == (404, "entity.not_exists_with_id")


async def test_concurrent_merges_all_reach_the_custom_data(management: Management) -> None:
    user = await management.created("users")
    path = f"/api/users/{user['id']}/custom-data"
    answers = await at_once(
        *(management.client.patch(path, json={"customData": {f"m{number}": number}}) for number in range(20))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert (await management.client.get(path)).json() == {f"m{number}": number for number in range(20)}


async def test_a_suspension_ends_earlier_tokens_for_good(management: Management) -> None:
    user = await management.created("users", name="Eve")
    path = f"/api/users/{user['id']}/is-suspended"
    suspended = await management.client.patch(path, json={"isSuspended": True})
    assert suspended.json() == {**user, "isSuspended": True, "updatedAt": suspended.json()["updatedAt"]}
    after = (await management.event_data("user", user["id"]))["tokens_valid_after"]
    assert after >= user["createdAt"]
    again = await management.client.patch(path, json={"isSuspended": True})
    assert revision_of(again) == revision_of(suspended)
    lifted = await management.client.patch(path, json={"isSuspended": False})
    assert lifted.json()["isSuspended"] is False
    state = await management.event_data("user", user["id"])
    assert "is_suspended" not in state
    assert state["tokens_valid_after"] >= after, "a token minted during the commit of the suspension is ended too"


async def test_a_new_password_ends_earlier_tokens_and_is_never_shown(management: Management) -> None:
    user = await management.created("users", name="Frank")
    answer = await management.client.patch(f"/api/users/{user['id']}/password", json={"password": "hunter2-hunter2"})
    assert answer.json() == {**user, "hasPassword": True, "updatedAt": answer.json()["updatedAt"]}
    state = await management.event_data("user", user["id"])
    assert state["tokens_valid_after"] >= user["createdAt"]
    stored = await management.database.fetchval("SELECT password_hash FROM users WHERE id = $1", user["id"])
    assert has_current_cost(stored)
    assert "argon2" not in str(state)
    again = await management.client.patch(f"/api/users/{user['id']}/password", json={"password": "hunter2-hunter2"})
    assert revision_of(again) == revision_of(answer) + 1, "setting the same password again ends all tokens again"


async def test_a_deleted_user_is_gone_with_its_roles_and_there_is_an_event_for_both(management: Management) -> None:
    role = await management.created("roles", name=unique("role"), description="", type="User")
    user = await management.created("users", username=unique("gone"))
    await management.client.post(f"/api/users/{user['id']}/roles", json={"roleIds": [role["id"]]})
    answer = await management.client.delete(f"/api/users/{user['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert await management.event_data("user", user["id"]) == {"id": user["id"], "deleted": True}
    assert await management.event_data("assignment", "user", user["id"]) == {"id": user["id"], "deleted": True}
    remembered = await management.database.fetch(
        "SELECT subject, revision FROM deleted_aggregate WHERE subject LIKE $1 ORDER BY revision", f"%{user['id']}"
    )
    assert [row["revision"] for row in remembered] == [revision_of(answer) - 1, revision_of(answer)]
    assert refusal(await management.client.get(f"/api/users/{user['id']}")) == (404, "entity.not_exists_with_id")
    assert (await management.client.get(f"/api/roles/{role['id']}/users")).json() == []
    again = await management.client.post("/api/users", json={"username": user["username"]})
    assert again.json()["id"] != user["id"], "a name may be reused, an id never is"


async def test_a_missing_user_is_a_404_with_the_code_of_its_method(management_api: httpx.AsyncClient) -> None:
    with_id, exists, found = "entity.not_exists_with_id", "entity.not_exists", "entity.not_found"
    assert refusal(await management_api.get("/api/users/nobody")) == (404, with_id)
    assert refusal(await management_api.patch("/api/users/nobody", json={})) == (404, exists)
    assert refusal(await management_api.delete("/api/users/nobody")) == (404, found)
    assert refusal(await management_api.patch("/api/users/nobody/password", json={"password": 1})) == (404, with_id)
    assert refusal(await management_api.patch("/api/users/nobody/is-suspended", json=[])) == (404, with_id)
    assert refusal(await management_api.get("/api/users/nobody/roles")) == (404, with_id)
    assert refusal(await management_api.post("/api/users/nobody/roles", json={"roleIds": 1})) == (404, with_id)
    assert refusal(await management_api.put("/api/users/nobody/roles", content=b"{")) == (404, with_id)
    assert refusal(await management_api.delete("/api/users/nobody/roles/none")) == (404, with_id)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"username": ""}, {"username"}),
        ({"username": "two words"}, {"username"}),
        ({"username": "someone@example.com"}, {"username"}),
        ({"username": "x" * 129}, {"username"}),
        ({"username": 1}, {"username"}),
        ({"primaryEmail": "no address"}, {"primaryEmail"}),
        ({"primaryEmail": f"{'x' * 250}@example.com"}, {"primaryEmail"}),
        ({"primaryPhone": "4" * 65}, {"primaryPhone"}),
        ({"password": "short"}, {"password"}),
        ({"password": "x" * 257}, {"password"}),
        ({"name": "x" * 257}, {"name"}),
        ({"avatar": "x" * 2049}, {"avatar"}),
        ({"externalId": ""}, {"externalId"}),
        ({"externalId": "x" * 256}, {"externalId"}),
        ({"externalId": "line\nbreak"}, {"externalId"}),
        ({"externalId": 4711}, {"externalId"}),
        ({"customData": []}, {"customData"}),
        ({"profile": "text"}, {"profile"}),
        ({"isSuspended": True}, {"isSuspended"}),
        ({"username": 1, "name": 2, "surname": 3}, {"username", "name", "surname"}),
        ({"username": "a b", "primaryEmail": "c"}, {"username", "primaryEmail"}),
    ],
)
async def test_every_wrong_member_of_a_new_user_is_named(
    management_api: httpx.AsyncClient, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await management_api.post("/api/users", json=body)) == paths
    user_id = (await management_api.post("/api/users", json={})).json()["id"]
    if "password" not in body:
        assert issues(await management_api.patch(f"/api/users/{user_id}", json=body)) == paths


@pytest.mark.parametrize("phone", ["call me", "015112345678", "+110"])
async def test_a_telephone_number_must_have_its_international_form(
    management_api: httpx.AsyncClient, phone: str
) -> None:
    refused = (422, "user.invalid_phone")
    assert refusal(await management_api.post("/api/users", json={"primaryPhone": phone})) == refused
    user_id = (await management_api.post("/api/users", json={})).json()["id"]
    assert refusal(await management_api.patch(f"/api/users/{user_id}", json={"primaryPhone": phone})) == refused
    assert (await management_api.get(f"/api/users/{user_id}")).json()["primaryPhone"] is None


async def test_a_free_form_object_may_have_64_kib_and_not_a_byte_more(management_api: httpx.AsyncClient) -> None:
    def sized(size: int) -> dict[str, str]:
        return {"a": "ü" * ((size - len('{"a":""}')) // 2)}

    for member in ("customData", "profile"):
        assert (await management_api.post("/api/users", json={member: sized(64 * 1024)})).status_code == 200
        too_large = await management_api.post("/api/users", json={member: sized(64 * 1024 + 2)})
        assert refusal(too_large) == (413, "request.too_large")


async def test_exactly_one_of_50_concurrent_users_with_the_same_name_is_created(management: Management) -> None:
    name = unique("racer")
    before = await management.revision()
    answers = await at_once(*(management.client.post("/api/users", json={"username": name}) for _ in range(50)))
    lost = [refusal(answer) for answer in answers if answer.status_code != 200]
    assert lost == [(422, "user.username_already_in_use")] * 49
    assert await management.revision() == before + 1


@pytest.mark.heavy
async def test_patches_racing_a_deletion_succeed_before_it_or_get_a_404(management: Management) -> None:
    for _ in range(10):
        user = await management.created("users", name="Racer")
        path = f"/api/users/{user['id']}"
        answers = await at_once(
            *(management.client.patch(path, json={"name": f"Racer {number}"}) for number in range(5)),
            management.client.delete(path),
            management.client.delete(path),
            *(management.client.patch(f"{path}/is-suspended", json={"isSuspended": True}) for _ in range(3)),
        )
        assert {answer.status_code for answer in answers} <= {200, 204, 404}
        assert sorted(answer.status_code for answer in answers[5:7]) == [204, 404]
        assert await management.event_data("user", user["id"]) == {"id": user["id"], "deleted": True}


async def test_a_new_user_gets_every_default_role(management: Management) -> None:
    role = await management.created("roles", name=unique("default"), description="", type="User", isDefault=True)
    user = await management.created("users")
    listed = (await management.client.get(f"/api/users/{user['id']}/roles")).json()
    assert listed == [role]
    assert await management.event_data("assignment", "user", user["id"]) == {
        "id": user["id"],
        "role_ids": [role["id"]],
    }
    await management.client.delete(f"/api/roles/{role['id']}")
    later = await management.created("users")
    assert (await management.client.get(f"/api/users/{later['id']}/roles")).json() == []
    assert await management.event_data("assignment", "user", later["id"]) is None
