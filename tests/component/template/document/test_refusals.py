"""``/api/organization-template``: documents that are refused, and the places that the refusal names."""

from typing import Any

import httpx2 as httpx
import pytest

from tests.support.management_api import AUDIENCE, issues, refusal
from tests.support.organizations import KINDS, Kind, Organization, member_of_kind
from tests.support.template_api import Template, revision
from tests.support.template_documents import (
    EMPTY,
    PATH,
    UNKNOWN,
    WRONG_KIND,
    document,
    held,
    permission,
    put,
    role,
    role_ids,
    scopes,
    send,
    shown,
)


@pytest.mark.parametrize("name", ["dryRun", "dry_run", "DRY-RUN", "dry-run ", "page", ""])
async def test_an_unknown_query_parameter_is_refused(template: Template, name: str) -> None:
    """If a misspelt dry-run were ignored, the request would delete everything that the document does not name."""
    await put(template, document("ab"))
    before = await shown(template)
    answer = await template.client.put(PATH, json=document("a"), params={name: "true"})
    assert issues(answer) == {name}
    assert await shown(template) == before


@pytest.mark.parametrize("value", ["yes", "", "TRUE"])
async def test_an_ambiguous_dry_run_parameter_is_refused(template: Template, value: str) -> None:
    before = await template.revision()
    for params in ({"dry-run": value}, {"dry-run": ["true", "false"]}):
        assert issues(await template.client.put(PATH, json=document("a"), params=params)) == {"dry-run"}
    assert (await template.revision(), await shown(template)) == (before, EMPTY)
    answer = await template.client.put(PATH, json=document("a"), params={"dry-run": "false"})
    assert revision(answer) == before + 1


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.5", "", "many"])
async def test_an_impossible_number_of_affected_members_is_refused(template: Template, limit: str) -> None:
    path = f"{PATH}/affected-members"
    assert issues(await template.client.post(path, json=EMPTY, params={"limit": limit})) == {"limit"}
    assert issues(await template.client.post(f"{path}/export", json=EMPTY, params={"limit": "1"})) == {"limit"}


def places(answer: httpx.Response) -> set[str]:
    """Return the paths that a refusal names in the document."""
    return {issue["path"] for issue in answer.json()["data"]["issues"]}


async def refused_paths(template: Template, wanted: dict[str, Any], expected: tuple[int, str]) -> set[str]:
    """Assert that a document is refused with and without a dry run; return the paths that are named."""
    await held(template)
    before, found = await template.revision(), await shown(template)
    dry, wet = [await send(template, wanted, dry_run=dry_run) for dry_run in (True, False)]
    previews = [await template.client.post(f"{PATH}/affected-members{end}", json=wanted) for end in ("", "/export")]
    assert [refusal(each) for each in (dry, wet, *previews)] == [expected] * 4
    assert [places(each) for each in previews] == [places(dry)] * 2
    assert (await template.revision(), await shown(template)) == (before, found)
    assert places(dry) == places(wet)
    return places(wet)


async def test_duplicates_in_a_document_are_refused(template: Template, resource: Any) -> None:
    twice = scopes(resource, "orders:read", "orders:write", "orders:read")
    wanted = {
        "permissions": [permission("a"), permission("b"), permission("a", "d")],
        "roles": [role("r", "a", "b", "b"), role("s", scopes=twice), role("r")],
    }
    assert await refused_paths(template, wanted, (400, "guard.invalid_input")) == {
        "permissions[2].name",
        "roles[0].permissions[2]",
        "roles[1].scopes[2]",
        "roles[2].name",
    }


@pytest.mark.parametrize("name", ["with space", "", "ä", "🙂", "openid", "urn:service:organization:x", "x" * 129])
async def test_an_invalid_permission_name_is_refused(template: Template, name: str) -> None:
    wanted = {"permissions": [permission("a"), permission(name)], "roles": [role("r", name)]}
    assert await refused_paths(template, wanted, (422, "scope.invalid_name")) == {"permissions[1].name"}


async def test_an_invalid_role_name_is_refused(template: Template) -> None:
    wanted = document("a", role("r", "a"), role(" "), role("s\u200b"), role("\u202et"), role("\u0958" * 256))
    expected = {f"roles[{number}].name" for number in range(1, 5)}
    assert await refused_paths(template, wanted, (422, "entity.invalid_name")) == expected
    alike = document("", role("Zoë"), role("r"), role(" Zoe\u0308"))
    assert await refused_paths(template, alike, (400, "guard.invalid_input")) == {"roles[2].name"}


async def test_a_role_grants_only_permissions_of_the_document_and_known_scopes(
    template: Template, resource: Any
) -> None:
    wanted = document("a", role("r", "a"), role("s", "a", "b"), role("t", "A"))
    assert await refused_paths(template, wanted, UNKNOWN) == {"roles[1].permissions[1]", "roles[2].permissions[0]"}
    known, other = scopes(resource, "orders:read"), [{"resource": "https://other.example.com", "name": "orders:read"}]
    wanted = document("", role("r", scopes=known + scopes(resource, "orders:burn")), role("s", scopes=other))
    assert await refused_paths(template, wanted, UNKNOWN) == {"roles[0].scopes[1]", "roles[1].scopes[0]"}


async def test_no_role_of_a_document_grants_scopes_of_the_management_api(template: Template) -> None:
    for name in ("all", "subject-tokens", "nothing"):
        wanted = document("", role("r"), role("s", scopes=[{"resource": AUDIENCE, "name": name}]))
        assert await refused_paths(template, wanted, WRONG_KIND) == {"roles[1].scopes[0]"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)
async def test_the_type_of_an_assigned_role_cannot_change(template: Template, kind: Kind) -> None:
    await put(template, document("a", role("free"), role("r", "a", type=kind.role_type)))
    organization = await Organization.new(template, kind, member := await member_of_kind(template, kind))
    await organization.assign([member], [(await role_ids(template))["r"]])
    (other,) = {"User", "MachineToMachine"} - {kind.role_type}
    wanted = document("a", role("free", type="MachineToMachine"), role("r", "a", type=other))
    assert await refused_paths(template, wanted, WRONG_KIND) == {"roles[1].type"}
    await organization.delete()
    await put(template, wanted)
    assert await shown(template) == wanted


async def test_a_role_grants_at_most_10_000_permissions_and_scopes(template: Template, resource: Any) -> None:
    names = [f"p{number:05}" for number in range(10_000)]
    report = await put(template, document(names, role("r", *names)), dry_run=True)
    assert (report["permissions"]["created"], report["roles"]["created"]) == (names, ["r"])
    too_much = document(names, role("s"), role("r", *names, scopes=scopes(resource, "orders:read")))
    assert await refused_paths(template, too_much, WRONG_KIND) == {"roles[1]"}


async def test_at_most_100_issues_are_named(template: Template) -> None:
    many = document("", *(role(f"{number}", "unknown") for number in range(200)))
    assert len(await refused_paths(template, many, UNKNOWN)) == 100


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"permissions", "roles"}),
        ({"permissions": []}, {"roles"}),
        ({"permissions": None, "roles": None}, {"permissions", "roles"}),
        ({**EMPTY, "organizations": []}, {"organizations"}),
        ({"permissions": [{"name": "a", "id": "x"}], "roles": []}, {"permissions[0]"}),
        ({"permissions": [{"name": "a", "description": "x" * 257}], "roles": [{"name": ""}]},
         {"permissions[0].description", "roles[0].name"}),
        ({"permissions": [], "roles": [{"name": "r", "type": "Machine"}]}, {"roles[0].type"}),
        ({"permissions": [], "roles": [{"name": "r", "description": "x" * 1025}]}, {"roles[0].description"}),
        ({"permissions": [], "roles": [{"name": "r", "scopes": [{"name": "x"}]}]}, {"roles[0].scopes[0]"}),
    ],
)  # fmt: skip
async def test_every_wrong_member_of_a_document_is_named(
    template: Template, body: dict[str, Any], paths: set[str]
) -> None:
    assert issues(await template.client.put(PATH, json=body)) == paths


@pytest.mark.heavy
async def test_a_document_holds_at_most_250_000_grants(template: Template) -> None:
    names = [f"{number}" for number in range(500)]
    roles = [role(f"{number}", *names) for number in range(501)]
    for dry_run in (True, False):
        answer = await send(template, document(names, *roles), dry_run=dry_run)
        assert refusal(answer) == (413, "request.too_large")
    assert await shown(template) == EMPTY
