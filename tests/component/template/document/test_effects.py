"""``/api/organization-template``: the effects on members that a dry run reports."""

import csv
import io
import random
from typing import Any

import httpx2 as httpx
import pytest

from template_service.affected_members.service import LOOKED_AT
from tests.support.lengths import length
from tests.support.management_api import unique
from tests.support.organizations import (
    APPLICATIONS,
    KINDS,
    USERS,
    Organization,
    known_users,
    member_of_kind,
)
from tests.support.template_api import Template
from tests.support.template_documents import (
    PATH,
    UNCHANGED,
    Permission,
    affected,
    document,
    effects,
    held,
    put,
    random_document,
    role,
    role_ids,
    shown,
)

AFFECTED = f"{PATH}/affected-members"


async def listed(client: httpx.AsyncClient, wanted: dict[str, Any], limit: int = 100) -> Any:
    answer = await client.post(AFFECTED, json=wanted, params={"limit": limit})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def table(client: httpx.AsyncClient, wanted: dict[str, Any]) -> list[dict[str, str]]:
    answer = await client.post(f"{AFFECTED}/export", json=wanted)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/csv; charset=utf-8"), answer.text
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def permissions(found: list[dict[str, str]]) -> set[Permission]:
    return {Permission(each["name"], each.get("resource")) for each in found}


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


@pytest.mark.heavy
async def test_a_dry_run_reports_the_effects_on_members(template: Template, resource: Any) -> None:
    dice = random.Random(4)
    people = People(template)
    await people.gather(organizations=3, each=3)
    reached, rounds = 0, length(short=6, long=12)
    for number in range(rounds):
        if number == rounds * 2 // 3:
            await people.remove_an_organization()  # its members no longer count, at once
        before = await held(template)
        wanted = random_document(dice, resource)
        counted = await template.revision()
        report = await put(template, wanted, dry_run=True)
        named, rows = await listed(template.client, wanted), await table(template.client, wanted)
        assert (await template.revision(), await held(template)) == (counted, before)
        assert await put(template, wanted) == report
        after = await held(template)
        assert report["members"] == effects(before, after)
        assert {
            (each["organization"]["id"], each["id"]): (permissions(each["gaining"]), permissions(each["losing"]))
            for each in named["members"]
        } == affected(before, after)
        assert not named["hasMore"]
        assert [
            (row["organizationId"], row["memberId"], row["change"], row["permission"], row["resource"]) for row in rows
        ] == [
            (each["organization"]["id"], each["id"], change, one["name"], one.get("resource", ""))
            for each in named["members"]
            for change, some in (("gains", each["gaining"]), ("loses", each["losing"]))
            for one in some
        ]
        assert await put(template, await shown(template)) == UNCHANGED
        reached += len(report["members"])
        await people.assign(dice, wanted)
        await held(template)
    assert reached > 10


@pytest.mark.heavy
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


@pytest.mark.slow
async def test_many_roles_with_a_hundred_permissions_each(template: Template) -> None:
    """Many grants in one document, some of them to members: more than asyncpg has parameters for, at three a grant."""
    count = length(short=110, long=1000)
    names = [f"permission:{number:03}" for number in range(100)]
    first = document(names, *(role(f"role {number:04}", *names) for number in range(count)))
    report = await put(template, first)
    assert (len(report["permissions"]["created"]), len(report["roles"]["created"])) == (100, count)
    assert await shown(template) == first
    assert await put(template, first) == UNCHANGED
    by_name = dict(await template.database.fetch("SELECT name, id FROM roles WHERE tenant_id = $1", template.tenant_id))
    users = [await member_of_kind(template, USERS) for _ in range(5)]
    organization = await Organization.new(template, USERS, *users)
    some = [by_name[f"role {number:04}"] for number in range(0, count, 10)]
    assert (await organization.assign(users, some)).status_code == 201
    before = await held(template)
    second = document(names[:50], *(role(f"role {number:04}", *names[number % 2 : 50 : 2]) for number in range(count)))
    report = await put(template, second, dry_run=True)
    assert await put(template, second) == report
    assert len(report["roles"]["updated"]) == count
    assert report["members"] == effects(before, await held(template))
    assert len(report["members"]) == 75
    assert await shown(template) == second


@pytest.mark.heavy
async def test_all_of_very_many_affected_members_are_exported_and_the_first_are_listed(template: Template) -> None:
    await put(template, document("a", role("one", "a")))
    by_name = await role_ids(template)
    users = await known_users(template, 1100)  # more than two batches
    organization = await Organization.new(template, USERS)
    assert (await organization.replace(*users)).status_code == 204
    assert (await organization.assign(users, [by_name["one"]])).status_code == 201
    wanted = document("", role("one"))
    first = await listed(template.client, wanted, limit=7)
    assert ([each["id"] for each in first["members"]], first["hasMore"]) == (sorted(users)[:7], True)
    assert [row["memberId"] for row in await table(template.client, wanted)] == sorted(users)
    assert (await listed(template.client, document("a", role("one", "a")))) == {"members": [], "hasMore": False}


@pytest.mark.heavy
async def test_the_first_affected_members_are_sought_among_a_bounded_number_of_holders(template: Template) -> None:
    """No holder of both roles is affected; before the one that is, there may be a million of them."""
    await put(template, document("a", role("one", "a"), role("other")))
    by_name = await role_ids(template)
    users = sorted(await known_users(template, LOOKED_AT + 1))
    organization = await Organization.new(template, USERS)
    assert (await organization.replace(*users)).status_code == 204
    assert (await organization.assign(users, [by_name["one"]])).status_code == 201
    assert (await organization.assign(users[:-1], [by_name["other"]])).status_code == 201
    wanted = document("a", role("one"), role("other", "a"))
    assert await listed(template.client, wanted) == {"members": [], "hasMore": True}
    assert [row["memberId"] for row in await table(template.client, wanted)] == users[-1:]
    for user in users[:2]:
        assert (await organization.remove(user)).status_code == 204
    found = await listed(template.client, wanted)
    assert ([each["id"] for each in found["members"]], found["hasMore"]) == (users[-1:], False)


@pytest.mark.heavy
async def test_members_are_named_for_callers_that_may_see_users_and_applications(template: Template) -> None:
    """Names are text of others: in a spreadsheet, none may begin a formula."""
    roles = {USERS: role("user", "a"), APPLICATIONS: role("machine", "a", type="MachineToMachine")}
    await put(template, document("a", *roles.values()))
    by_name = await role_ids(template)
    names = {USERS: "=HYPERLINK(1)", APPLICATIONS: "Machine"}
    nameless = await member_of_kind(template, USERS, username=unique("nameless").replace("-", "_"))
    for kind in KINDS:
        members = [await member_of_kind(template, kind, name=names[kind]), *([nameless] if kind is USERS else [])]
        organization = await Organization.new(template, kind, *members)
        assert (await organization.assign(members, [by_name[roles[kind]["name"]]])).is_success
    wanted = document("", role("user"), role("machine", type="MachineToMachine"))
    both = {"user", "application"}
    for scope, shown_kinds in (
        ("all", both),
        ("organizations:read users:read", {"user"}),
        ("organizations:read applications:read", {"application"}),
        ("organizations:read template", set()),
    ):
        client = template.client_with(template.management.token(scope=scope))
        found = (await listed(client, wanted))["members"]
        assert len(found) == 3
        assert {each["type"] for each in found if "name" in each} == shown_kinds
        assert {row["memberType"] for row in await table(client, wanted) if row["member"]} == shown_kinds
    assert {row["member"] for row in await table(template.client, wanted)} >= {"'=HYPERLINK(1)", "Machine"}
    assert {each["name"] for each in (await listed(template.client, wanted))["members"]} >= set(names.values())
