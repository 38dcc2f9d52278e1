"""Names of every kind of object: their order in lists, the form in which they are stored, and what is refused."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identity_common.names import sort_key
from tests.support.management_api import Management, unique
from tests.support.template_api import Template

Create = Callable[[Template, str], Awaitable[Any]]


async def _user(template: Template, name: str) -> Any:
    return await template.management.created("users", name=name)


async def _application(template: Template, name: str) -> Any:
    return await template.management.created("applications", name=name, type="MachineToMachine")


async def _resource(template: Template, name: str) -> Any:
    indicator = f"https://{unique('r')}.example.com"
    return await template.management.created("resources", name=name, indicator=indicator)


async def _role(template: Template, name: str) -> Any:
    return await template.management.created("roles", name=name, description="", type="User")


async def _organization(template: Template, name: str) -> Any:
    return await template.organization(name=name)


async def _organization_role(template: Template, name: str) -> Any:
    return await template.role(name=name)


KINDS: Final[dict[str, tuple[Create, bool]]] = {
    "users": (_user, False),
    "applications": (_application, False),
    "resources": (_resource, False),
    "roles": (_role, True),
    "organizations": (_organization, False),
    "organization-roles": (_organization_role, True),
}
"""How an object of each kind is made, and whether its name is unique."""

of_every_kind = pytest.mark.parametrize("kind", KINDS)


def of(template: Template, kind: str) -> Management | Template:
    """Return the service of a kind."""
    return template if kind.startswith("organization") else template.management


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
        await KINDS[kind][0](template, f"{word} {marker}")
    expected = sorted((f"{word} {marker}" for word in WORDS), key=lambda name: (sort_key(name), name))
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
    application = await _application(template, unique("a"))
    for token in tokens:
        await management.created(f"applications/{application['id']}/secrets", name=token)
    marker = unique(":")
    permissions = [await template.permission(f"{token}{marker}") for token in tokens]
    of_role = {
        "organizationScopeIds": [each["id"] for each in permissions],
        "resourceScopeIds": scope_ids,
    }
    roles = [await template.role(name=f"{token}{marker}", **of_role) for token in tokens]
    user = await _user(template, unique("u"))
    organization = await template.organization()
    people = [await _user(template, token) for token in tokens]
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

    @settings(max_examples=300, database=None)
    @given(st.text(characters, max_size=20) | st.text(st.sampled_from(SPECIAL), max_size=8))
    def collected(text: str) -> None:
        texts.append(text)

    collected()
    for service in (management, template):
        keys = await service.database.fetch(
            "SELECT name, name_sort_key(name) AS key FROM unnest($1::text[]) AS name", texts
        )
        assert [row["key"] for row in keys] == [sort_key(row["name"]) for row in keys]
