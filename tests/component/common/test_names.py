"""Names of every kind of object: their order in lists, the form in which they are stored, and what is refused."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import httpx2 as httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identity_common.names import by_name, canonical_name, sort_key
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.template_api import Template


class _Kind(NamedTuple):
    """A kind of objects that have names.

    Attributes:
        others: The required members besides the name.
        is_unique: Whether no two may have the same name.
    """

    others: Callable[[], dict[str, Any]] = dict
    is_unique: bool = False

    def members(self, name: str) -> dict[str, Any]:
        return {"name": name, **self.others()}


KINDS: Final[dict[str, _Kind]] = {
    "users": _Kind(),
    "applications": _Kind(lambda: {"type": "MachineToMachine"}),
    "resources": _Kind(lambda: {"indicator": f"https://{unique('r')}.example.com"}),
    "roles": _Kind(lambda: {"type": "User", "description": ""}, is_unique=True),
    "organizations": _Kind(),
    "organization-roles": _Kind(is_unique=True),
}

of_every_kind = pytest.mark.parametrize("kind", KINDS)


def of(template: Template, kind: str) -> Management | Template:
    """Return the service of a kind."""
    return template if kind.startswith("organization") else template.management


async def created(template: Template, kind: str, name: str) -> httpx.Response:
    """Return the response to the creation of an object with this name."""
    return await of(template, kind).client.post(f"/api/{kind}", json=KINDS[kind].members(name))


async def names(service: Management | Template, path: str, **params: Any) -> list[str]:
    """Return the names in a list."""
    answer = await service.client.get(f"/api/{path}", params={"page_size": 100, **params})
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()]


WORDS: Final = ("apple", "Apple pie", "Äpfel", "Banana", "Łódź", "naïve", "Österreich", "Zucchini", "Ёлка", "ёлочка")


@of_every_kind
async def test_a_list_is_in_the_order_of_people_not_of_code_points(template: Template, kind: str) -> None:
    marker = unique("o")
    for word in sorted(WORDS, reverse=True):
        assert (await created(template, kind, f"{word} {marker}")).is_success
    expected = sorted((f"{word} {marker}" for word in WORDS), key=by_name)
    assert [name.removesuffix(f" {marker}") for name in expected[:4]] == ["Äpfel", "apple", "Apple pie", "Banana"]
    service = of(template, kind)
    assert await names(service, kind, q=marker) == expected
    pages = [await names(service, kind, q=marker, page=page, page_size=3) for page in range(1, 5)]
    assert [name for page in pages for name in page] == expected


async def test_relations_and_names_for_machines_are_in_the_same_order(template: Template) -> None:
    management, tokens = template.management, ["Zucchini", "apple", "Banana"]
    expected = ["apple", "Banana", "Zucchini"]
    resource = await template.resource(*tokens)
    scope_ids = [scope["id"] for scope in resource["scopes"]]
    application = (await created(template, "applications", unique("a"))).json()
    for token in tokens:
        await management.created(f"applications/{application['id']}/secrets", name=token)
    marker = unique(":")
    permissions = [await template.permission(f"{token}{marker}") for token in tokens]
    of_role = {
        "organizationScopeIds": [each["id"] for each in permissions],
        "resourceScopeIds": scope_ids,
    }
    roles = [await template.role(name=f"{token}{marker}", **of_role) for token in tokens]
    user = (await created(template, "users", unique("u"))).json()
    organization = await template.organization()
    people = [(await created(template, "users", token)).json() for token in tokens]
    member = f"organizations/{organization['id']}/users"
    await template.caught_up()
    for path, body in (
        (member, {"userIds": [user["id"], *(each["id"] for each in people)]}),
        (f"{member}/{user['id']}/roles", {"organizationRoleIds": [each["id"] for each in roles]}),
    ):
        assert (await template.client.post(f"/api/{path}", json=body)).status_code == 201
    role = await management.created("roles", name=unique("r"), description="", type="User", scopeIds=scope_ids)
    await management.client.post(f"/api/roles/{role['id']}/users", json={"userIds": [each["id"] for each in people]})
    for path, service in (
        (f"resources/{resource['id']}/scopes", management),
        (f"roles/{role['id']}/scopes", management),
        (f"roles/{role['id']}/users", management),
        (f"applications/{application['id']}/secrets", management),
        (f"organization-roles/{roles[0]['id']}/resource-scopes", template),
    ):
        assert await names(service, path) == expected, path
    marked = [f"{token}{marker}" for token in expected]
    for path in (
        f"organization-roles/{roles[0]['id']}/scopes",
        f"{member}/{user['id']}/roles",
        f"{member}/{user['id']}/scopes",
    ):
        assert [each["name"] for each in (await template.client.get(f"/api/{path}")).json()] == marked, path
    assert (await names(template, "organization-scopes", q=marker)) == marked
    assert [name for name in await names(template, member) if name in tokens] == expected
    listed = (await template.client.get("/api/organization-roles", params={"q": marker})).json()
    assert [each["name"] for each in listed] == marked
    assert [each["name"] for each in listed[0]["scopes"]] == marked
    assert [each["name"] for each in listed[0]["resourceScopes"]] == expected


SPECIAL: Final = "aÄßŁøǆ\u0130\u0131\u03a3\u03c2Ёй\u2019\u2010\ufb01\uac00\u304c\u200d\u0301 Z"


@pytest.mark.servers
async def test_the_key_in_the_database_is_the_one_in_the_code(management: Management, template: Template) -> None:
    """Of characters that both versions of Unicode have."""
    texts: list[str] = []
    characters = st.characters(exclude_categories=["Cn", "Cs"], exclude_characters="\0")

    @settings(max_examples=150, database=None)
    @given(st.text(characters, max_size=20) | st.text(st.sampled_from(SPECIAL), max_size=8))
    def collected(text: str) -> None:
        texts.append(text)

    collected()
    for service in (management, template):
        keys = await service.database.fetch(
            "SELECT name, name_sort_key(name) AS key FROM unnest($1::text[]) AS name", texts
        )
        assert [row["key"] for row in keys] == [sort_key(row["name"]) for row in keys]


VARIANTS: Final = ("Zoe\u0308 {0} Muller", "  Zoë\u00a0{0}\tMuller\n", "Zoë {0}  Muller")
"""Texts that look alike: decomposed, with other blanks, with too many of them."""


@of_every_kind
async def test_names_that_look_alike_are_stored_alike(template: Template, kind: str) -> None:
    marker, service = unique("c"), of(template, kind)
    canonical = f"Zoë {marker} Muller"
    for number, variant in enumerate(VARIANTS):
        answer = await created(template, kind, variant.format(marker))
        if KINDS[kind].is_unique and number:
            assert refusal(answer) == (422, "entity.unique_integrity_violation")
        else:
            assert answer.json()["name"] == canonical
    other = (await created(template, kind, unique("other"))).json()
    path = f"/api/{kind}/{other['id']}"
    renamed = await service.client.patch(path, json={"name": VARIANTS[0].format(marker)})
    if KINDS[kind].is_unique:
        assert refusal(renamed) == (422, "entity.unique_integrity_violation")
    else:
        assert (renamed.status_code, renamed.json()["name"]) == (200, canonical)
    found = await names(service, kind, q=f"zoe\u0308 {marker}".upper())
    assert set(found) == {canonical}


@of_every_kind
async def test_blank_and_invisible_names_are_refused(template: Template, kind: str) -> None:
    service, before = of(template, kind), unique("kept")
    path = f"/api/{kind}/{(await created(template, kind, before)).json()['id']}"
    blank = "\u3000\t"
    for name in (blank, "a\u200bb", "\u202eadmin", "\u0958" * 200):
        for answer in (await created(template, kind, name), await service.client.patch(path, json={"name": name})):
            if kind == "users" and name == blank:  # a user need not have a name
                assert answer.json()["name"] is None
                continue
            assert refusal(answer) == (422, "entity.invalid_name")
            assert [issue["path"] for issue in answer.json()["data"]["issues"]] == ["name"]
    assert (await service.client.get(path)).json()["name"] == (None if kind == "users" else before)


TABLES: Final = {"organization-roles": "roles"}
EARLIER: Final = ("Zoe\u0308 {0}", "\u200b{0}", "  {0}  ")


@of_every_kind
async def test_a_name_of_an_earlier_release_stays_until_it_is_changed(template: Template, kind: str) -> None:
    service = of(template, kind)
    for name in EARLIER:
        stored = name.format(unique("e"))
        made = (await created(template, kind, unique("new"))).json()
        table = TABLES.get(kind, kind)
        await service.database.execute(f"UPDATE {table} SET name = $1 WHERE id = $2", stored, made["id"])
        path = f"/api/{kind}/{made['id']}"
        other = {"accessTokenTtl": 60} if kind == "resources" else {"avatar": "https://example.com/"}
        if kind not in {"users", "resources"}:
            other = {"description": "changed"}
        answer = await service.client.patch(path, json={"name": stored, **other})
        assert (answer.status_code, answer.json()["name"]) == (200, stored)
        if KINDS[kind].is_unique and "\u200b" not in stored:
            alike = await created(template, kind, canonical_name(stored))
            assert refusal(alike) == (422, "entity.unique_integrity_violation")
        renamed = await service.client.patch(path, json={"name": f"{canonical_name(stored).strip(chr(0x200B))} "})
        assert renamed.json()["name"] == canonical_name(stored).strip("\u200b")


async def test_a_secret_is_named_and_found_in_canonical_form(template: Template) -> None:
    client = template.management.client
    application = (await created(template, "applications", unique("a"))).json()
    path = f"/api/applications/{application['id']}/secrets"
    made = await client.post(path, json={"name": " Zoe\u0308  1"})
    assert (made.status_code, made.json()["name"]) == (201, "Zoë 1")
    assert refusal(await client.post(path, json={"name": "Zoë 1 "})) == (422, "application.secret_name_exists")
    assert refusal(await client.post(path, json={"name": " "})) == (422, "entity.invalid_name")
    assert refusal(await client.post(path, json={"name": "a\u200bb"})) == (400, "guard.invalid_input")
    assert refusal(await client.patch(f"{path}/Zoë 1", json={"name": "\u3000"})) == (422, "entity.invalid_name")
    renamed = await client.patch(f"{path}/Zoe\u0308 1", json={"name": "Zoe\u0308\u00a02"})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "Zoë 2")
    assert (await client.patch(f"{path}/Zoe\u0308 2", json={})).json()["name"] == "Zoë 2"
    assert (await client.delete(f"{path}/Zoe\u0308 2")).status_code == 204
    assert refusal(await client.delete(f"{path}/Zoe\u0308 2")) == (404, "entity.not_found")


async def test_roles_are_assigned_by_names_that_look_alike(template: Template) -> None:
    marker = unique("n")
    role = await template.role(name=f"Zoë {marker}")
    earlier = await template.role(name=unique("earlier"))
    await template.database.execute("UPDATE roles SET name = $1 WHERE id = $2", f"Zoe\u0308 {marker}", earlier["id"])
    user, organization = (await created(template, "users", unique("u"))).json(), await template.organization()
    await template.caught_up()
    await template.join(organization["id"], user["id"])
    path = f"/api/organizations/{organization['id']}/users/{user['id']}/roles"
    for name, expected in (
        (f"Zoë  {marker}", role),
        (f"Zoe\u0308 {marker}", earlier),  # its exact name
        (f"Zoe\u0308  {marker}", role),
    ):
        assert (await template.client.put(path, json={"organizationRoleNames": [name]})).status_code == 204
        assert [each["id"] for each in (await template.client.get(path)).json()] == [expected["id"]]
    unknown = await template.client.put(path, json={"organizationRoleNames": [f"\u200bZoë {marker}"]})
    assert refusal(unknown) == (422, "organization.role_names_not_found")


@pytest.mark.parametrize("username", ["a\u3164b", "\u3164", "a\ufe0f", "\u2800"])
async def test_what_identifies_a_user_is_visible(template: Template, username: str) -> None:
    for member in ({"username": username}, {"primaryEmail": f"{username}@example.com"}):
        answer = await template.management.client.post("/api/users", json=member)
        assert (refusal(answer), issues(answer)) == ((400, "guard.invalid_input"), set(member))
