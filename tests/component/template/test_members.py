"""Members of organizations and their roles, users and applications alike, and the events about them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from identity_common.clock import now_ms
from stead.event_types import MemberState
from tests.support.management_api import issues, refusal, unique
from tests.support.organizations import (
    APPLICATIONS,
    KINDS,
    USERS,
    Kind,
    Organization,
    member_of_kind,
    organization_role,
)
from tests.support.template_api import Template, revision

of_both_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)


@contextmanager
def requested_fan_outs() -> Iterator[list[Any]]:
    """Collect the fan-outs requested meanwhile; not from the table, which a worker may empty at once."""
    asked: list[Any] = []

    def remember(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if "INSERT INTO fan_outs" in statement:
            asked.append(parameters)

    event.listen(Engine, "before_cursor_execute", remember)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", remember)


@of_both_kinds
async def test_members_are_added_once_and_removed_once(template: Template, kind: Kind) -> None:
    ids = sorted([await member_of_kind(template, kind) for _ in range(3)])
    own = await Organization.new(template, kind)
    before = await template.revision()
    added = await own.add(ids[0], ids[1], ids[0])
    assert (added.status_code, added.json(), revision(added)) == (201, {kind.ids: ids[:2]}, before + 2)
    again = await own.add(*ids[:2])
    assert (again.status_code, revision(again)) == (201, before + 2)
    assert revision(await own.add(*ids)) == before + 3
    assert (await own.members()).keys() == set(ids)
    assert await own.event(ids[2]) == own.said(ids[2])
    event = await template.event("member", own.id, ids[2])
    assert event is not None
    assert (event.type, event.revision, event.subject) == ("member.created", before + 3, f"{own.id}/{ids[2]}")

    removed = await own.remove(ids[0])
    assert (removed.status_code, removed.content, revision(removed)) == (204, b"", before + 4)
    assert refusal(await own.remove(ids[0])) == (404, "entity.not_found")
    assert (await own.members()).keys() == set(ids[1:])
    assert await own.event(ids[0]) == own.removed(ids[0])
    assert issues(await own.add()) == {kind.ids}
    assert await template.revision() == before + 4


@of_both_kinds
async def test_events_say_when_a_member_joined_for_the_last_time(template: Template, kind: Kind) -> None:
    stays, returns = sorted([await member_of_kind(template, kind) for _ in range(2)])
    role = await organization_role(template, kind)
    own = await Organization.new(template, kind)

    async def joined(member: str) -> tuple[int, bool]:
        event = await template.event("member", own.id, member)
        assert event is not None
        state = msgspec.json.decode(event.data, type=MemberState)
        return state.joined_at, state.rejoined

    before = now_ms()
    await own.replace(stays, returns)
    first, _ = await joined(stays)
    assert before <= first <= now_ms()
    assert [await joined(member) for member in (stays, returns)] == [(first, False)] * 2
    await own.assign([stays, returns], [role])
    assert [await joined(member) for member in (stays, returns)] == [(first, False)] * 2

    await own.replace(stays)
    assert await joined(returns) == (0, False)
    await asyncio.sleep(0.002)
    await own.replace(stays, returns)
    second, rejoined = await joined(returns)
    assert (await joined(stays), second > first, rejoined) == ((first, False), True, True)
    await own.assign([stays, returns], [role])
    assert [await joined(member) for member in (stays, returns)] == [(first, False), (second, True)]


@of_both_kinds
async def test_replacing_members_keeps_the_roles_of_those_that_stay(template: Template, kind: Kind) -> None:
    ids = [await member_of_kind(template, kind) for _ in range(4)]
    role = await organization_role(template, kind, name=unique("stays"))
    own = await Organization.new(template, kind, *ids[:3])
    await own.assign(ids[:2], [role])
    before = await template.revision()
    replaced = await own.replace(ids[3], ids[1], ids[1])
    assert (replaced.status_code, replaced.content, revision(replaced)) == (204, b"", before + 3)
    listed = await own.members()
    assert listed.keys() == {ids[1], ids[3]}
    assert (len(listed[ids[1]]), listed[ids[3]]) == (1, [])
    assert await own.event(ids[1]) == own.said(ids[1], role)
    assert await own.event(ids[0]) == own.removed(ids[0])
    same = await own.replace(ids[1], ids[3])
    assert revision(same) == revision(replaced)
    assert refusal(await own.replace(ids[0], "unknown")) == (422, "entity.relation_foreign_key_not_found")
    assert (await own.members()).keys() == {ids[1], ids[3]}
    assert (await own.replace()).status_code == 204
    assert await own.members() == {}

    back = await own.add(ids[1])
    assert back.status_code == 201
    assert await own.members() == {ids[1]: []}, "roles do not come back with a member"


@of_both_kinds
async def test_roles_are_assigned_by_id_and_by_name_replaced_and_removed(template: Template, kind: Kind) -> None:
    member = await member_of_kind(template, kind)
    own = await Organization.new(template, kind, member)
    names = sorted(unique("role") for _ in range(3))
    first, second, third = [await organization_role(template, kind, name=name) for name in names]
    path, client = f"{own.path}/{member}/roles", template.client

    given = await client.post(path, json={"organizationRoleIds": [first, first], "organizationRoleNames": [names[0]]})
    assert (given.status_code, given.json()) == (201, {"organizationRoleIds": [first]})
    assert await own.event(member) == own.said(member, first)
    again = await client.post(path, json={"organizationRoleIds": [first]})
    assert revision(again) == revision(given)
    by_name = await client.post(path, json={"organizationRoleNames": [names[1]]})
    assert by_name.json() == {"organizationRoleIds": [second]}
    for nothing in ({}, {"organizationRoleIds": [], "organizationRoleNames": []}):
        assert issues(await client.post(path, json=nothing)) == {"organizationRoleIds"}
    assert await own.event(member) == own.said(member, first, second)
    expected = [
        {
            "tenantId": template.tenant_id,
            "id": role_id,
            "name": name,
            "description": None,
            "type": kind.role_type,
            "origins": ["manual"],
        }
        for role_id, name in zip((first, second, third), names, strict=True)
    ]
    assert (await client.get(path)).json() == expected[:2]

    body = {"organizationRoleIds": [third], "organizationRoleNames": [names[1]]}
    replaced = await client.put(path, json=body)
    assert (replaced.status_code, replaced.content) == (204, b"")
    assert (await client.get(path)).json() == expected[1:]
    assert revision(await client.put(path, json=body)) == revision(replaced)
    assert await own.event(member) == own.said(member, second, third)

    assert (await client.delete(f"{path}/{second}")).status_code == 204
    assert refusal(await client.delete(f"{path}/{second}")) == (404, "entity.not_found")
    assert await own.event(member) == own.said(member, third)
    assert (await client.put(path, json={})).status_code == 204
    assert (await client.get(path)).json() == []
    assert await own.event(member) == own.said(member)


@of_both_kinds
async def test_assigning_roles_to_many_members_skips_those_that_have_them(template: Template, kind: Kind) -> None:
    ids = sorted([await member_of_kind(template, kind) for _ in range(3)])
    roles = [await organization_role(template, kind) for _ in range(2)]
    own = await Organization.new(template, kind, *ids)
    assert (await own.assign(ids[:1], roles)).status_code == 201
    before = await template.revision()
    given = await own.assign([*ids, ids[0]], roles)
    assert (given.status_code, revision(given)) == (201, before + 2)
    assert given.json() == {kind.ids: ids, "organizationRoleIds": roles}
    assert all(len(held) == 2 for held in (await own.members()).values())
    assert await own.event(ids[2]) == own.said(ids[2], *roles)
    assert revision(await own.assign(ids, roles)) == before + 2
    assert issues(await own.assign([], roles)) == {kind.ids}
    assert issues(await own.assign(ids, [])) == {"organizationRoleIds"}


@of_both_kinds
async def test_a_fan_out_is_requested_for_members_whose_roles_changed(template: Template, kind: Kind) -> None:
    """A new member holds nothing, so adding it requests no fan-out."""
    ids = sorted([await member_of_kind(template, kind) for _ in range(2)])
    role = await organization_role(template, kind)
    with requested_fan_outs() as asked:
        own = await Organization.new(template, kind, *ids)
        assert asked == []
        await own.assign(ids, [role])
        await own.assign(ids, [role])
        await own.replace(ids[1])
        await template.client.delete(f"{own.path}/{ids[1]}/roles/{role}")
        await own.remove(ids[1])
    assert asked == [
        (template.tenant_id, "assignment", None, own.id, ids, "fan_out"),
        (template.tenant_id, "member-removed", None, own.id, ids[:1], "fan_out"),
        (template.tenant_id, "assignment", None, own.id, ids[1:], "fan_out"),
        (template.tenant_id, "member-removed", None, own.id, ids[1:], "fan_out"),
    ]


@of_both_kinds
async def test_a_non_member_has_no_roles(template: Template, kind: Kind) -> None:
    """A member is looked up within the organization of the path and within its kind (CVE-2026-32131)."""
    client, role = template.client, await organization_role(template, kind)
    stranger, removed = await member_of_kind(template, kind), await member_of_kind(template, kind)
    other_kind = APPLICATIONS if kind is USERS else USERS
    of_other_kind = await member_of_kind(template, other_kind)
    own = await Organization.new(template, kind, removed)
    await own.remove(removed)
    await Organization(template, own.id, other_kind).add(of_other_kind)
    elsewhere = await Organization.new(template, kind, stranger)
    assert (await elsewhere.assign([stranger], [role])).status_code == 201
    before = await template.revision()
    not_a_member = (422, "organization.require_membership")
    for member in (stranger, removed, of_other_kind, "unknown"):
        path = f"{own.path}/{member}/roles"
        body = {"organizationRoleIds": [role]}
        assert refusal(await client.get(path)) == not_a_member
        assert refusal(await client.post(path, json=body)) == not_a_member
        assert refusal(await client.put(path, json=body)) == not_a_member
        assert refusal(await client.delete(f"{path}/{role}")) == not_a_member
        assert refusal(await own.assign([member], [role])) == not_a_member
        assert refusal(await own.remove(member)) == (404, "entity.not_found")
    assert await template.revision() == before
    assert list((await elsewhere.members()).keys()) == [stranger]


@of_both_kinds
async def test_unknown_ids_and_roles_of_the_wrong_type_change_nothing(template: Template, kind: Kind) -> None:
    client, member = template.client, await member_of_kind(template, kind)
    own = await Organization.new(template, kind, member)
    other = await member_of_kind(template, kind)
    role, wrong = await organization_role(template, kind), unique("wrong")
    wrong_role = await organization_role(template, APPLICATIONS if kind is USERS else USERS, name=wrong)
    before, path = await template.revision(), f"{own.path}/{member}/roles"
    unknown, misfit = (422, "entity.relation_foreign_key_not_found"), (422, "entity.db_constraint_violated")
    assert refusal(await own.add(other, "unknown")) == unknown
    assert refusal(await own.add(other, "😀" * 64)) == unknown
    unknown_name = (422, "organization.role_names_not_found")
    for ids, names, expected in (
        ([role, "none"], [], unknown),
        ([role], ["none"], unknown_name),
        ([], [""], unknown_name),
        ([role], [role], unknown_name),
        (["none"], ["none"], unknown),
    ):
        body = {"organizationRoleIds": ids, "organizationRoleNames": names}
        assert refusal(await client.post(path, json=body)) == expected
        assert refusal(await client.put(path, json=body)) == expected
    for body in ({"organizationRoleIds": [role, wrong_role]}, {"organizationRoleNames": [wrong]}):
        assert refusal(await client.post(path, json=body)) == misfit
        assert refusal(await client.put(path, json=body)) == misfit
    assert refusal(await own.assign([member], [role, wrong_role])) == misfit
    assert refusal(await own.assign([member], [role, "none"])) == unknown
    assert await template.revision() == before
    assert await own.members() == {member: []}


@pytest.mark.parametrize("application_type", ["SPA", "Native", "Traditional"])
async def test_only_machine_to_machine_applications_are_members(template: Template, application_type: str) -> None:
    machine = await member_of_kind(template, APPLICATIONS)
    other = await member_of_kind(template, APPLICATIONS, type=application_type)
    own = await Organization.new(template, APPLICATIONS)
    misfit = (422, "entity.db_constraint_violated")
    assert refusal(await own.add(machine, other)) == misfit
    assert refusal(await own.replace(other)) == misfit
    assert await own.members() == {}
    assert (await template.client.get(f"/api/applications/{other}/organizations")).json() == []


@of_both_kinds
async def test_an_unknown_organization_is_not_found_whatever_is_sent(template: Template, kind: Kind) -> None:
    client, missing = template.client, (404, "entity.not_exists_with_id")
    deleted = await Organization.new(template, kind, await member_of_kind(template, kind))
    await deleted.delete()
    for organization_id in (deleted.id, "nowhere"):
        path = f"/api/organizations/{organization_id}/{kind.path}"
        for method, at in (
            ("GET", path),
            ("POST", path),
            ("PUT", path),
            ("DELETE", f"{path}/x"),
            ("POST", f"{path}/roles"),
            ("GET", f"{path}/x/roles"),
            ("POST", f"{path}/x/roles"),
            ("PUT", f"{path}/x/roles"),
            ("DELETE", f"{path}/x/roles/y"),
        ):
            assert refusal(await client.request(method, at, content=b"{")) == missing


WRONG_BODIES: list[tuple[Any, set[str]]] = [
    ({}, {"{ids}"}),
    ({"{ids}": None}, {"{ids}"}),
    ({"{ids}": "abc"}, {"{ids}"}),
    ({"{ids}": [1]}, {"{ids}[0]"}),
    ({"{ids}": ["x" * 257]}, {"{ids}[0]"}),
    ({"{ids}": ["a\0"]}, {""}),
    ({"{ids}": ["x"], "more": 1}, {"more"}),
    ([], {""}),
]


@of_both_kinds
async def test_every_wrong_member_of_a_body_is_named(template: Template, kind: Kind) -> None:
    member = await member_of_kind(template, kind)
    own = await Organization.new(template, kind, member)

    def spelt(value: Any) -> Any:
        return {name.replace("{ids}", kind.ids): member for name, member in value.items()} if value else value

    for body, named in WRONG_BODIES:
        expected = {path.replace("{ids}", kind.ids) for path in named}
        for method in ("POST", "PUT"):
            answer = await template.client.request(method, own.path, json=spelt(body))
            assert issues(answer) == expected, body
    assert issues(await template.client.post(f"{own.path}/roles", json={})) == {kind.ids, "organizationRoleIds"}
    for body, named in (
        ({"organizationRoleIds": "x", "organizationRoleNames": [None]}, None),
        ({"organizationRoleNames": ["x" * 257]}, {"organizationRoleNames[0]"}),
        ({"roleIds": []}, {"roleIds"}),
    ):
        for method in ("POST", "PUT"):
            answer = await template.client.request(method, f"{own.path}/{member}/roles", json=body)
            assert issues(answer) == (named or {"organizationRoleIds", "organizationRoleNames[0]"})
    assert (await template.client.post(own.path, content=b"[]")).status_code == 415
    assert refusal(await template.client.post(f"{own.path}/%00/roles", json={})) == (400, "guard.invalid_input")


async def test_only_clients_of_the_management_api_may_read_and_write_members(template: Template) -> None:
    own = await Organization.new(template, USERS)
    async with template.client_with(None) as anonymous:
        assert refusal(await anonymous.get(own.path)) == (401, "auth.authorization_header_missing")
        assert refusal(await anonymous.put("/api/organizations/x/users", json={})) == (
            401,
            "auth.authorization_header_missing",
        )
    narrow = template.management.token(scope="subject-tokens")
    async with template.client_with(narrow) as minter:
        assert refusal(await minter.post(own.path, json={})) == (403, "auth.forbidden")
        assert refusal(await minter.get("/api/users/x/organizations")) == (403, "auth.forbidden")


async def test_a_user_is_shown_as_in_the_management_api_with_its_organizations(
    template: Template,
) -> None:
    user = await template.management.created(
        "users",
        username=unique("ada").replace("-", "_"),
        primaryEmail=f"{unique('ada')}@example.com",
        name="Ada",
        password="correct horse",
        customData={"plan": {"gold": [1, None]}},
        profile={"locale": "de"},
    )
    role_name = unique("editor")
    role = await organization_role(template, USERS, name=role_name)
    own = await Organization.new(template, USERS, user["id"])
    await own.assign([user["id"]], [role])
    held = {"organizationRoles": [{"id": role, "name": role_name, "origins": ["manual"]}]}
    user.pop("allowsPassword")  # of no interest to an organization
    assert (await template.client.get(own.path)).json() == [{**user, **held}]
    organizations = (await template.client.get(f"/api/users/{user['id']}/organizations")).json()
    assert organizations == [
        {
            "tenantId": template.tenant_id,
            "id": own.id,
            "name": organizations[0]["name"],
            "description": None,
            "customData": {},
            "isMfaRequired": False,
            "color": {},
            "branding": {},
            "customCss": None,
            "createdAt": organizations[0]["createdAt"],
            **held,
        }
    ]
    changed = (await template.management.client.patch(f"/api/users/{user['id']}", json={"name": "Ada L."})).json()
    changed.pop("allowsPassword")
    await template.caught_up()
    assert (await template.client.get(own.path)).json() == [{**changed, **held}]


async def test_an_application_is_shown_in_brief(template: Template) -> None:
    application = await template.management.created(
        "applications", name="Batch", type="MachineToMachine", customData={"team": "a"}
    )
    own = await Organization.new(template, APPLICATIONS, application["id"])
    shown = ("tenantId", "id", "name", "type", "isThirdParty", "customData")
    assert (await template.client.get(own.path)).json() == [
        {**{name: application[name] for name in shown}, "organizationRoles": []}
    ]


@of_both_kinds
async def test_a_deleted_role_or_organization_stops_counting_at_once(template: Template, kind: Kind) -> None:
    member, client = await member_of_kind(template, kind), template.client
    names = [unique("kept"), unique("lost")]
    kept, lost = [await organization_role(template, kind, name=name) for name in names]
    own = await Organization.new(template, kind, member)
    other = await Organization.new(template, kind, member)
    for each in (own, other):
        await each.assign([member], [kept, lost])
    await client.delete(f"/api/organization-roles/{lost}")
    assert await own.members() == {member: names[:1]}
    assert await own.members(organizationRoleId=lost) == {}
    path = f"{own.path}/{member}/roles"
    assert [role["id"] for role in (await client.get(path)).json()] == [kept]
    assert refusal(await client.delete(f"{path}/{lost}")) == (404, "entity.not_found")
    assert refusal(await own.assign([member], [lost])) == (422, "entity.relation_foreign_key_not_found")
    await other.delete()
    found = (await client.get(f"/api/{kind.path}/{member}/organizations")).json()
    assert [(each["id"], [role["id"] for role in each["organizationRoles"]]) for each in found] == [(own.id, [kept])]


@of_both_kinds
async def test_a_user_or_application_deleted_in_management_service_is_no_longer_a_member(
    template: Template, kind: Kind
) -> None:
    member = await member_of_kind(template, kind)
    own = await Organization.new(template, kind, member)
    await template.management.client.delete(f"/api/{kind.path}/{member}")
    await template.caught_up()
    assert await own.members() == {}
    await own.says(member, own.removed(member))
    assert refusal(await own.add(member)) == (422, "entity.relation_foreign_key_not_found")
    missing = (404, "entity.not_exists_with_id")
    assert refusal(await template.client.get(f"/api/{kind.path}/{member}/organizations")) == missing


@of_both_kinds
async def test_a_user_or_application_just_created_is_known_without_a_header(template: Template, kind: Kind) -> None:
    own = await Organization.new(template, kind)
    for _ in range(10):
        member = await member_of_kind(template, kind)
        assert (await template.client.get(f"/api/{kind.path}/{member}/organizations")).json() == []
        member = await member_of_kind(template, kind)
        assert (await own.add(member)).status_code == 201


@of_both_kinds
async def test_a_renamed_member_is_listed_and_found_by_its_new_name(template: Template, kind: Kind) -> None:
    marker = unique("name")
    first, second = [await member_of_kind(template, kind, name=f"{marker} {letter}") for letter in "ab"]
    own = await Organization.new(template, kind, first, second)
    other = await Organization.new(template, kind, first)
    assert list(await own.members(q=marker)) == [first, second]

    renamed = await template.management.client.patch(f"/api/{kind.path}/{first}", json={"name": f"{marker} c"})
    assert renamed.status_code == 200, renamed.text
    await template.caught_up()
    assert list(await own.members(q=marker)) == [second, first]
    assert list(await other.members(q=f"{marker} c".upper())) == [first]
    assert await own.members(q=f"{marker} a") == {}


async def test_members_are_searched_like_users_and_by_role(template: Template) -> None:
    marker = unique("ärger")
    users = [
        await template.management.created("users", name=f"Frau {marker} {letter}", primaryPhone=None)
        for letter in "cab"
    ]
    bob = await template.management.created("users", username=unique("bob").replace("-", "_"))
    own = await Organization.new(template, USERS, bob["id"], *(user["id"] for user in users))
    role, other = [await organization_role(template, USERS) for _ in range(2)]
    await own.assign([users[0]["id"], bob["id"]], [role, other])
    await own.assign([users[1]["id"]], [other])
    by_name = sorted(users, key=lambda user: user["name"])

    async def found(**params: Any) -> list[str]:
        return list((await own.members(**params)).keys())

    assert await found(q=marker.upper()) == [user["id"] for user in by_name]
    assert await found(search=f"%{bob['username'][3:].upper()}%") == [bob["id"]]
    assert await found(q="%x%y") == []
    assert await found(organizationRoleId=role) == [users[0]["id"], bob["id"]]
    assert await found(organizationRoleId=other, q=marker) == [users[1]["id"], users[0]["id"]]
    assert await found(organizationRoleId="none") == []
    assert await found(excludeOrganizationRoleId=role) == [users[1]["id"], users[2]["id"]]
    assert await found(excludeOrganizationRoleId=role, organizationRoleId=other) == [users[1]["id"]]
    assert len(await found(excludeOrganizationRoleId="none")) == 4
    assert issues(await template.client.get(f"{own.path}?organizationRoleId=")) == {"organizationRoleId"}
    page = await template.client.get(own.path, params={"page_size": 1, "page": 2, "organizationRoleId": other})
    assert [user["id"] for user in page.json()] == [users[0]["id"]]
    assert page.headers["Total-Number"] == "3"
    assert f"organizationRoleId={other}&page=3&page_size=1>" in page.headers["Link"]
    refused = await template.client.get(f"{own.path}?organizationRoleId=%00")
    assert issues(refused) == {"organizationRoleId"}
    wrong = await template.client.get(f"{own.path}?page=0&organizationRoleId=x")
    assert refusal(wrong) == (400, "guard.invalid_pagination")


async def test_unchanged_lists_answer_304(template: Template) -> None:
    user = await member_of_kind(template, USERS)
    own = await Organization.new(template, USERS, user)
    role = await organization_role(template, USERS)
    for path in (own.path, f"{own.path}/{user}/roles", f"/api/users/{user}/organizations"):
        first = await template.client.get(path)
        condition = {"If-None-Match": first.headers["ETag"]}
        assert (await template.client.get(path, headers=condition)).status_code == 304
        await own.assign([user], [role])
        changed = await template.client.get(path, headers=condition)
        assert changed.status_code == 200
        await template.client.put(f"{own.path}/{user}/roles", json={})


@pytest.mark.heavy
async def test_organizations_of_a_member_are_listed_whole_or_in_pages_by_name(template: Template) -> None:
    user, marker = await member_of_kind(template, USERS), unique("firm")
    made = []
    for number in range(21):
        own = Organization(template, (await template.organization(name=f"{marker} {number:02}"))["id"], USERS)
        await own.add(user)
        made.append(own.id)
    path = f"/api/users/{user}/organizations"
    answer = await template.client.get(path)
    assert [each["id"] for each in answer.json()] == made
    assert answer.headers["Total-Number"] == "21"
    first = await template.client.get(path, params={"page": 1})
    assert [each["id"] for each in first.json()] == made[:20]
    rest = await template.client.get(path, params={"page": 2})
    assert [each["id"] for each in rest.json()] == made[20:]
    found = await template.client.get(path, params={"q": f"{marker.upper()} 1"})
    assert [each["id"] for each in found.json()] == made[10:20]


@pytest.mark.heavy
async def test_a_member_has_at_most_10_000_roles(template: Template) -> None:
    """The limit is explicit: nothing is dropped silently."""
    marker = unique("many")
    rows = await template.database.fetch(
        "INSERT INTO roles (tenant_id, id, name, type, version)"
        " SELECT $1, $2 || number, $2 || number, 'User', 1 FROM generate_series(1, 10001) AS number RETURNING id",
        template.tenant_id,
        marker,
    )
    await template.database.execute("ANALYZE roles")  # autovacuum would do it within a minute
    role_ids = [row["id"] for row in rows]
    user = await member_of_kind(template, USERS)
    own = await Organization.new(template, USERS, user)
    path, refused = f"{own.path}/{user}/roles", (422, "entity.db_constraint_violated")
    body = {"organizationRoleIds": role_ids}
    for method in ("POST", "PUT"):
        assert refusal(await template.client.request(method, path, json=body)) == refused
    body = {"organizationRoleNames": role_ids[:10_000]}
    assert (await template.client.put(path, json=body)).status_code == 204
    assert await own.event(user) == own.said(user, *role_ids[:10_000])
    assert len((await template.client.get(path)).json()) == 10_000
    assert refusal(await own.assign([user], role_ids[10_000:])) == refused
    moved = await template.client.put(path, json={"organizationRoleIds": role_ids[1:]})
    assert moved.status_code == 204
    assert await own.event(user) == own.said(user, *role_ids[1:])
