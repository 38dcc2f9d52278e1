"""``/api/organization-template``: the whole template as one document, in a tenant of its own."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

import asyncpg
import httpx2 as httpx
import pytest
import pytest_asyncio

from provision import ServerAddresses
from tests.support.databases import waits_for_a_lock
from tests.support.issuer import Issuer
from tests.support.management_api import AUDIENCE, Management, issues, refusal, unique
from tests.support.organizations import APPLICATIONS, KINDS, USERS, Kind, Organization, member_of_kind
from tests.support.template_api import RequestedFanOuts, Template, revision

PATH = "/api/organization-template"
EMPTY: dict[str, Any] = {"permissions": [], "roles": []}
NOTHING = {"created": [], "updated": [], "deleted": []}
UNCHANGED = {"permissions": NOTHING, "roles": NOTHING, "members": []}
UNKNOWN = (422, "entity.relation_foreign_key_not_found")
WRONG_KIND = (422, "entity.db_constraint_violated")


@pytest_asyncio.fixture(scope="module")
async def management(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Management]:
    """A tenant of its own, because a document replaces the whole template."""
    async with Management(servers, issuer) as management:
        yield management


@pytest_asyncio.fixture(scope="module")
async def template(management: Management) -> AsyncIterator[Template]:
    async with Template(management) as template:
        yield template


@pytest_asyncio.fixture(autouse=True)
async def emptied(template: Template) -> None:
    """Empty the template and wait for the fan-out, so that a test counts only its own changes."""
    await put(template, EMPTY)
    await held(template)


@pytest_asyncio.fixture(scope="module")
async def resource(template: Template) -> Any:
    """A resource with three scopes."""
    return await template.resource("orders:delete", "orders:read", "orders:write")


def permission(name: str, description: str | None = None) -> dict[str, Any]:
    return {"name": name, "description": description}


def role(name: str, *permissions: str, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": None,
        "type": "User",
        "permissions": list(permissions),
        "scopes": [],
        **members,
    }


def document(names: Iterable[str], *roles: dict[str, Any]) -> dict[str, Any]:
    return {"permissions": [permission(name) for name in names], "roles": list(roles)}


def scopes(resource: Any, *names: str) -> list[dict[str, str]]:
    return [{"resource": resource["indicator"], "name": name} for name in names]


async def send(template: Template, wanted: dict[str, Any], *, dry_run: bool = False) -> httpx.Response:
    return await template.client.put(PATH, json=wanted, params={"dry-run": "true"} if dry_run else {})


async def put(template: Template, wanted: dict[str, Any], *, dry_run: bool = False) -> Any:
    answer = await send(template, wanted, dry_run=dry_run)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(template: Template) -> Any:
    answer = await template.client.get(PATH)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ids(template: Template, path: str) -> dict[str, str]:
    return {each["name"]: each["id"] for each in (await template.client.get(path, params={"page_size": 100})).json()}


async def role_ids(template: Template) -> dict[str, str]:
    return await ids(template, "/api/organization-roles")


async def permission_ids(template: Template) -> dict[str, str]:
    return await ids(template, "/api/organization-scopes")


class Permission(NamedTuple):
    """A permission that a member holds."""

    name: str
    resource: str | None


Held = dict[tuple[str, str], set[Permission]]


async def held(template: Template) -> Held:
    """Wait for the fan-out; return the permissions last published for each member."""
    async with asyncio.timeout(300):
        query = "SELECT count(*) FROM fan_outs WHERE tenant_id = $1"
        while await template.database.fetchval(query, template.tenant_id):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.02)
    rows = await template.database.fetch(
        "SELECT organization_id, member_id, permissions FROM published_permissions WHERE tenant_id = $1",
        template.tenant_id,
    )
    return {
        (organization, member): {Permission(each["name"], each.get("resource")) for each in json.loads(permissions)}
        for organization, member, permissions in rows
    }


def effects(before: Held, after: Held) -> list[dict[str, Any]]:
    """Return the effects on members that a report must list between these two states."""
    gaining: Counter[tuple[Permission, str]] = Counter()
    losing: Counter[tuple[Permission, str]] = Counter()
    for key in before.keys() | after.keys():
        old, new = before.get(key, set()), after.get(key, set())
        gaining.update((each, key[0]) for each in new - old)
        losing.update((each, key[0]) for each in old - new)
    return [
        {
            "name": each.name,
            **({} if each.resource is None else {"resource": each.resource}),
            "gaining": reach(each, gaining),
            "losing": reach(each, losing),
        }
        for each in sorted({each for each, _ in gaining | losing}, key=lambda each: (each.name, each.resource or ""))
    ]


def reach(of: Permission, counted: Counter[tuple[Permission, str]]) -> dict[str, int]:
    members = [count for (each, _), count in counted.items() if each == of]
    return {"members": sum(members), "organizations": len(members)}


async def test_a_template_is_shown_sorted_by_name_with_what_roles_grant(template: Template, resource: Any) -> None:
    assert await shown(template) == EMPTY
    by_name = {name: (await template.permission(name))["id"] for name in ("b", "c", "a")}
    scope_ids = {scope["name"]: scope["id"] for scope in resource["scopes"]}
    await template.client.patch(f"/api/organization-scopes/{by_name['b']}", json={"description": "Do b"})
    await template.role(
        name="z",
        type="MachineToMachine",
        description="Last",
        organizationScopeIds=[by_name["c"], by_name["a"]],
        resourceScopeIds=[scope_ids["orders:write"], scope_ids["orders:read"]],
    )
    await template.role(name="y")
    answer = await template.client.get(PATH)
    assert answer.json() == {
        "permissions": [permission("a"), permission("b", "Do b"), permission("c")],
        "roles": [
            role("y"),
            role(
                "z",
                "a",
                "c",
                description="Last",
                type="MachineToMachine",
                scopes=scopes(resource, "orders:read", "orders:write"),
            ),
        ],
    }
    again = await template.client.get(PATH, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    await template.permission("d")
    changed = await template.client.get(PATH, headers={"If-None-Match": answer.headers["ETag"]})
    assert (changed.status_code, changed.headers["ETag"] != answer.headers["ETag"]) == (200, True)


async def test_a_document_that_was_read_can_be_put_back_and_changes_nothing(
    template: Template, resource: Any, fan_outs: RequestedFanOuts
) -> None:
    wanted = {
        "permissions": [permission("b", "Do b"), permission("a")],
        "roles": [
            role("z", "b", "a", scopes=scopes(resource, "orders:write", "orders:read"), description="Last"),
            role("y", type="MachineToMachine"),
        ],
    }
    report = await put(template, wanted)
    assert report == {
        "permissions": {**NOTHING, "created": ["a", "b"]},
        "roles": {**NOTHING, "created": ["y", "z"]},
        "members": [],
    }
    found, before = await shown(template), await template.revision()
    assert found == {
        "permissions": [permission("a"), permission("b", "Do b")],
        "roles": [
            role("y", type="MachineToMachine"),
            role("z", "a", "b", scopes=scopes(resource, "orders:read", "orders:write"), description="Last"),
        ],
    }
    for each in (wanted, found):
        for dry_run in (False, True):
            answer = await send(template, each, dry_run=dry_run)
            assert (answer.json(), revision(answer)) == (UNCHANGED, before)
    assert (await template.revision(), await shown(template)) == (before, found)
    assert await fan_outs.new() == set()  # no role has holders yet


async def test_omitted_members_have_the_defaults_of_a_new_role(template: Template) -> None:
    await put(template, {"permissions": [{"name": "a"}], "roles": [{"name": "r"}]})
    assert await shown(template) == {"permissions": [permission("a")], "roles": [role("r")]}


async def test_every_changed_aggregate_gets_its_event_and_a_version_and_roles_a_fan_out(
    template: Template, resource: Any, fan_outs: RequestedFanOuts
) -> None:
    await put(
        template,
        {
            "permissions": [permission(name) for name in ("described", "gone", "kept")],
            "roles": [
                role("described", "kept"),
                role("gone", "kept"),
                role("loses", "gone", "kept"),
                role("both", "gone"),
                role("grants"),
                role("same", "kept"),
                role("typed", type="User"),
            ],
        },
    )
    permissions, roles = await permission_ids(template), await role_ids(template)
    await fan_outs.new()
    before = await template.revision()
    wanted = {
        "permissions": [permission("described", "d"), permission("kept"), permission("new", "n")],
        "roles": [
            role("described", "kept", description="d"),
            role("loses", "kept"),
            role("both", "new"),
            role("grants", "kept", scopes=scopes(resource, "orders:read")),
            role("same", "kept"),
            role("typed", type="MachineToMachine"),
            role("new", "new"),
        ],
    }
    report = await put(template, wanted, dry_run=True)
    assert await template.revision() == before
    answer = await send(template, wanted)
    described = {"before": None, "after": "d"}
    assert answer.json() == report == {
        "permissions": {
            "created": ["new"],
            "updated": [{"name": "described", "description": described}],
            "deleted": ["gone"],
        },
        "roles": {
            "created": ["new"],
            "updated": [
                {"name": "both", "added": [{"name": "new"}], "removed": [{"name": "gone"}]},
                {"name": "described", "description": described, "added": [], "removed": []},
                {
                    "name": "grants",
                    "added": [{"name": "kept"}, {"name": "orders:read", "resource": resource["indicator"]}],
                    "removed": [],
                },
                {"name": "loses", "added": [], "removed": [{"name": "gone"}]},
                {"name": "typed", "type": {"before": "User", "after": "MachineToMachine"}, "added": [], "removed": []},
            ],
            "deleted": ["gone"],
        },
        "members": [],
    }  # fmt: skip
    assert (revision(answer), await template.revision()) == (before + 10, before + 10)
    now, roles_now = await permission_ids(template), await role_ids(template)
    assert {name: now[name] for name in ("described", "kept")} == {
        name: permissions[name] for name in ("described", "kept")
    }
    assert roles_now == {**{name: each for name, each in roles.items() if name != "gone"}, "new": roles_now["new"]}
    assert await fan_outs.new() == {
        ("role-deleted", roles["gone"]),
        ("permission-deleted", roles["loses"]),
        ("role-changed", roles["both"]),
        ("role-changed", roles["grants"]),
    }
    created = {"id": now["new"], "name": "new", "description": "n"}
    assert await said(template, "permission", now["new"]) == ("permission.created", created)
    assert await said(template, "permission", now["described"]) == (
        "permission.updated",
        {"id": now["described"], "name": "described", "description": "d"},
    )
    gone = permissions["gone"]
    assert await said(template, "permission", gone) == ("permission.deleted", {"id": gone, "deleted": True})
    assert await said(template, "role", roles["gone"]) == ("role.deleted", {"id": roles["gone"], "deleted": True})
    new = {"id": roles_now["new"], "name": "new", "type": "User", "permissionIds": [now["new"]]}
    assert await said(template, "role", roles_now["new"]) == ("role.created", new)
    granted = {"permissionIds": [now["kept"]], "scopeIds": [resource["scopes"][1]["id"]]}
    expected: dict[str, dict[str, Any]] = {
        "both": {"permissionIds": [now["new"]]},
        "described": {"permissionIds": [now["kept"]]},
        "grants": granted,
        "loses": {"permissionIds": [now["kept"]]},
        "typed": {"type": "MachineToMachine"},
    }
    for name, members in expected.items():
        state = {"id": roles[name], "name": name, "type": "User", **members}
        assert await said(template, "role", roles[name]) == ("role.updated", state)
        assert await template.version("roles", roles[name]) == 2
    assert await template.version("roles", roles["same"]) == 1
    assert await template.version("permissions", now["described"]) == 2
    assert await template.version("permissions", now["kept"]) == 1


async def said(template: Template, *subject: str) -> tuple[str, Any]:
    """Return type and content of the last event of an aggregate."""
    event = await template.event(*subject)
    assert event is not None
    return event.type, json.loads(bytes(event.data))


class People:
    """Members of both kinds in several organizations, with random roles of the matching type."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._groups: list[tuple[Organization, list[str]]] = []

    async def gather(self, organizations: int, each: int) -> None:
        ids = {kind: [await member_of_kind(self._template, kind) for _ in range(each)] for kind in KINDS}
        for _ in range(organizations):
            users = await Organization.new(self._template, USERS, *ids[USERS])
            applications = Organization(self._template, users.id, APPLICATIONS)
            assert (await applications.add(*ids[APPLICATIONS])).status_code == 201
            self._groups += [(users, ids[USERS]), (applications, ids[APPLICATIONS])]

    async def assign(self, dice: random.Random, wanted: dict[str, Any]) -> None:
        """Assign to each member some of the roles of the current document."""
        by_name = await role_ids(self._template)
        for organization, members in self._groups:
            fitting = [each["name"] for each in wanted["roles"] if each["type"] == organization.kind.role_type]
            for member in members:
                chosen = [by_name[name] for name in dice.sample(fitting, dice.randint(0, min(3, len(fitting))))]
                if chosen:
                    assert (await organization.assign([member], chosen)).status_code == 201

    async def remove_an_organization(self) -> None:
        organization, _ = self._groups.pop()
        self._groups.pop()
        assert (await organization.delete()).status_code == 204


def random_document(dice: random.Random, resource: Any) -> dict[str, Any]:
    """Return a random subset of eight permissions and of seven roles; the last two roles are for machines."""
    names = dice.sample([f"p{number}" for number in range(8)], dice.randint(3, 8))
    known = [scope["name"] for scope in resource["scopes"]]
    return {
        "permissions": [permission(name, dice.choice([None, "d", "e"])) for name in names],
        "roles": [
            role(
                f"r{number}",
                *dice.sample(names, dice.randint(0, 3)),
                scopes=scopes(resource, *dice.sample(known, dice.randint(0, 2))),
                type="MachineToMachine" if number > 4 else "User",
                description=dice.choice([None, "d"]),
            )
            for number in dice.sample(range(7), dice.randint(3, 7))
        ],
    }


@pytest.mark.heavy
async def test_a_dry_run_reports_the_effects_on_members(template: Template, resource: Any) -> None:
    dice = random.Random(4)
    people = People(template)
    await people.gather(organizations=3, each=3)
    reached = 0
    for number in range(12):
        if number == 8:
            await people.remove_an_organization()  # its members no longer count, at once
        before = await held(template)
        wanted = random_document(dice, resource)
        counted = await template.revision()
        report = await put(template, wanted, dry_run=True)
        assert (await template.revision(), await held(template)) == (counted, before)
        assert await put(template, wanted) == report
        after = await held(template)
        assert report["members"] == effects(before, after)
        assert await put(template, await shown(template)) == UNCHANGED
        reached += len(report["members"])
        await people.assign(dice, wanted)
        await held(template)
    assert reached > 20


async def test_a_member_that_holds_a_permission_through_another_role_neither_gains_nor_loses_it(
    template: Template,
) -> None:
    await put(template, document("ab", role("one", "a"), role("other", "a", "b"), role("none")))
    by_name = await role_ids(template)
    users = [await member_of_kind(template, USERS) for _ in range(3)]
    here, there = [await Organization.new(template, USERS, *users) for _ in range(2)]
    await here.assign(users, [by_name["one"]])
    await here.assign(users[:1], [by_name["other"]])
    await there.assign(users[:2], [by_name["other"], by_name["none"]])
    report = await put(template, document("ab", role("other", "a"), role("none", "b")))
    none = {"members": 0, "organizations": 0}
    assert report["members"] == [
        {"name": "a", "gaining": none, "losing": {"members": 2, "organizations": 1}},
        {"name": "b", "gaining": none, "losing": {"members": 1, "organizations": 1}},
    ]
    for user, path in ((users[0], here.path), (users[1], there.path)):
        assert [each["name"] for each in (await template.client.get(f"{path}/{user}/scopes")).json()] == (
            ["a"] if path == here.path else ["a", "b"]
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


def places(answer: httpx.Response) -> set[str]:
    """Return the paths that a refusal names in the document."""
    return {issue["path"] for issue in answer.json()["data"]["issues"]}


async def refused_paths(template: Template, wanted: dict[str, Any], expected: tuple[int, str]) -> set[str]:
    """Assert that a document is refused with and without a dry run; return the paths that are named."""
    await held(template)
    before, found = await template.revision(), await shown(template)
    dry, wet = [await send(template, wanted, dry_run=dry_run) for dry_run in (True, False)]
    assert (refusal(dry), refusal(wet)) == (expected, expected)
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


async def test_a_role_grants_only_permissions_of_the_document_and_known_scopes(
    template: Template, resource: Any
) -> None:
    wanted = document("a", role("r", "a"), role("s", "a", "b"), role("t", "A"))
    assert await refused_paths(template, wanted, UNKNOWN) == {"roles[1].permissions[1]", "roles[2].permissions[0]"}
    known, other = scopes(resource, "orders:read"), [{"resource": "https://other.example.com", "name": "orders:read"}]
    wanted = document("", role("r", scopes=known + scopes(resource, "orders:burn")), role("s", scopes=other))
    assert await refused_paths(template, wanted, UNKNOWN) == {"roles[0].scopes[1]", "roles[1].scopes[0]"}


async def test_a_scope_that_was_just_created_is_found_without_a_header(template: Template) -> None:
    for _ in range(5):
        resource = await template.resource("read")
        wanted = document("", role("r", scopes=scopes(resource, "read")))
        await put(template, wanted)
        assert await shown(template) == wanted


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
async def test_one_of_several_concurrent_documents_is_applied_whole(template: Template, resource: Any) -> None:
    """Two admins put documents: no PUT is half applied."""
    dice = random.Random(7)
    for _ in range(5):
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
    for number in range(8):
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


async def test_a_document_waits_for_a_name_that_is_being_created(template: Template) -> None:
    """Otherwise it would be created twice."""
    for number in range(8):
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
        other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
        try:
            await waits_for_a_lock(other)
        finally:
            await other.close()
    answer = await applying
    assert answer.json()["roles"]["updated"] == [{"name": "r", "added": [], "removed": [{"name": "b"}]}]


async def test_a_scope_deleted_meanwhile_is_unknown_or_revoked(template: Template) -> None:
    for _ in range(4):
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


@pytest.mark.slow
async def test_a_thousand_roles_with_a_hundred_permissions_each(template: Template) -> None:
    """100,000 grants in one document, some of them to members."""
    names = [f"permission:{number:03}" for number in range(100)]
    first = document(names, *(role(f"role {number:04}", *names) for number in range(1000)))
    report = await put(template, first)
    assert (len(report["permissions"]["created"]), len(report["roles"]["created"])) == (100, 1000)
    assert await shown(template) == first
    assert await put(template, first) == UNCHANGED
    by_name = dict(await template.database.fetch("SELECT name, id FROM roles WHERE tenant_id = $1", template.tenant_id))
    users = [await member_of_kind(template, USERS) for _ in range(5)]
    organization = await Organization.new(template, USERS, *users)
    some = [by_name[f"role {number:04}"] for number in range(0, 1000, 10)]
    assert (await organization.assign(users, some)).status_code == 201
    before = await held(template)
    second = document(names[:50], *(role(f"role {number:04}", *names[number % 2 : 50 : 2]) for number in range(1000)))
    report = await put(template, second, dry_run=True)
    assert await put(template, second) == report
    assert len(report["roles"]["updated"]) == 1000
    assert report["members"] == effects(before, await held(template))
    assert len(report["members"]) == 75
    assert await shown(template) == second


async def test_a_document_holds_at_most_250_000_grants(template: Template) -> None:
    names = [f"{number}" for number in range(500)]
    roles = [role(f"{number}", *names) for number in range(501)]
    for dry_run in (True, False):
        answer = await send(template, document(names, *roles), dry_run=dry_run)
        assert refusal(answer) == (413, "request.too_large")
    assert await shown(template) == EMPTY


async def test_the_template_of_another_tenant_is_left_alone(
    template: Template, servers: ServerAddresses, issuer: Issuer
) -> None:
    async with Management(servers, issuer) as management, Template(management) as other:
        wanted = document("ab", role("r", "a"))
        await put(other, wanted)
        await put(template, document("bc", role("r", "b"), role("s")))
        await put(template, EMPTY)
        assert await shown(other) == wanted
        foreign = await other.resource("read")
        await other.caught_up()
        answer = await send(template, document("", role("r", scopes=scopes(foreign, "read"))))
        assert refusal(answer) == UNKNOWN
