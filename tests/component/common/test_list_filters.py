"""Filters of lists: each selects what it says, together they narrow, and what cannot be selected is refused."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.msg import Msg

from identity_common.wire.memberships import MEMBERS_IN_A_REPLY, MembersAnswer, members_subject
from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.running_stack import RunningStack
from tests.support.template_api import Template


async def found(service: Management | Template, path: str, **params: str | list[str]) -> list[str]:
    answer = await service.client.get(f"/api/{path}", params={"page_size": "100", **params})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Total-Number"] == str(len(answer.json()))
    return [each["id"] for each in answer.json()]


async def test_a_user_and_no_other_is_found_by_each_field(management: Management) -> None:
    marker = unique("z").replace("-", "_")
    right = await management.created(
        "users",
        username=f"{marker}_ärger",
        primaryEmail=f"{marker}@example.com",
        primaryPhone=f"+490151{int(marker[2:8], 16):08}",
        name=f"Frau Ärger {marker}",
    )
    await management.created(
        "users",
        username=f"x{marker}_ärger",
        primaryEmail=f"x{marker}@example.com",
        name=f"x Frau Ärger {marker}",
    )
    await management.created("users")
    for field in ("id", "username", "primaryEmail", "primaryPhone", "name"):
        for mode in ({}, {f"mode.{field}": "exact"}, {f"mode.{field}": "like"}):
            assert await found(management, "users", **{f"search.{field}": right[field]}, **mode) == [right["id"]], field
            assert await found(management, "users", **{f"search.{field}": right[field][:-1]}, **mode) == []
    for field in ("username", "primaryEmail", "name"):
        assert await found(management, "users", **{f"search.{field}": right[field].upper()}) == [right["id"]]
    for phone in (right["primaryPhone"][1:], right["primaryPhone"].replace("+490", "+49")):
        for query in ("search.primaryPhone", "search"):
            assert await found(management, "users", **{query: phone}) == [right["id"]], (query, phone)
    assert await found(management, "users", **{"search.id": right["id"].upper()}) == []


async def test_a_percent_sign_stands_for_any_text_in_the_mode_like_and_for_itself_in_the_other(
    management: Management,
) -> None:
    marker = unique("m")
    names = [f"{marker} a_b", f"{marker} axb", f"{marker} 100%", f"{marker} \\x"]
    by_name = {name: (await management.created("users", name=name))["id"] for name in names}
    for text, expected in (
        (f"{marker}%", set(names)),
        (f"%{marker[1:]} a%b", {names[0], names[1]}),
        (f"{marker} a_b", {names[0]}),
        (f"{marker} a__", set()),
        (f"{marker} \\x", {names[3]}),
        (f"{marker} \\%", {names[3]}),
    ):
        ids = await found(management, "users", **{"search.name": text})
        assert set(ids) == {by_name[name] for name in expected}, text
    exact = {"mode.name": "exact"}
    assert await found(management, "users", **{"search.name": names[2]}, **exact) == [by_name[names[2]]]
    assert await found(management, "users", **{"search.name": f"{marker}%"}, **exact) == []


async def test_conditions_are_joined_by_or_unless_the_query_says_and(management: Management) -> None:
    marker = unique("j").replace("-", "_")
    first = (await management.created("users", username=f"{marker}1", name=marker))["id"]
    second = (await management.created("users", username=f"{marker}2", name=marker))["id"]
    both = {"search.username": f"{marker}1", "search.name": marker}
    assert set(await found(management, "users", **both)) == {first, second}
    assert set(await found(management, "users", **both, joint="or")) == {first, second}
    assert await found(management, "users", **both, joint="and") == [first]
    assert await found(management, "users", search=f"{marker}2", **{"search.name": marker}, joint="and") == [second]


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("search.customData=x", "search.customData"),
        ("search.username=", "search.username"),
        ("search.username=%00", "search.username"),
        ("search.username=" + "a" * 129, "search.username"),
        ("search.username=a&search.username=b", "search.username"),
        ("search.username=a&mode.username=EXACT", "mode.username"),
        ("search.username=a&joint=xor", "joint"),
        ("mode.username=exact", "mode.username"),
        ("mode.username=exact&search.name=x", "mode.username"),
    ],
)
async def test_a_search_that_cannot_be_meant_is_refused(management: Management, query: str, wrong: str) -> None:
    assert issues(await management.client.get(f"/api/users?{query}")) == {wrong}


@pytest.mark.parametrize("mode", ["posix", "similar_to"])
async def test_regular_expressions_are_refused_with_a_reason_and_another_way(management: Management, mode: str) -> None:
    answer = await management.client.get(f"/api/users?search.username=(a%2B)%2B&mode.username={mode}")
    assert issues(answer) == {"mode.username"}
    assert answer.json()["data"]["issues"][0]["message"] == (
        "must be exact or like; regular expressions are refused, as one can keep the database busy: use like with %"
    )


@asynccontextmanager
async def reading_takes(management: Management, user_id: str, *, seconds: float) -> AsyncIterator[None]:
    """Let the database take this long for the row of a user."""
    policy = f"CREATE POLICY slow ON users USING (id <> '{user_id}' OR pg_sleep({seconds}) IS NOT NULL)"
    await management.database.execute(policy)
    try:
        await management.database.execute("ALTER TABLE users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        yield
    finally:
        await management.database.execute("ALTER TABLE users DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
        await management.database.execute("DROP POLICY slow ON users")


@pytest.mark.heavy
async def test_a_search_that_takes_too_long_ends_and_says_so(management: Management) -> None:
    name = unique("slow").replace("-", "_")
    user = (await management.created("users", username=name))["id"]
    queries = [
        f"search={name}",
        f"q={name}",
        f"search.name=%25{name}%25",
        f"search.username={name}&mode.username=exact",
    ]
    assert (await management.client.post(f"/api/users/{user}/invitation", json={})).is_success
    async with reading_takes(management, user, seconds=1.5):
        for query in queries:
            answer = await management.client.get(f"/api/users?{query}")
            assert refusal(answer) == (422, "user.search_too_slow"), query
            assert "Retry-After" not in answer.headers
        answer = await management.client.get(f"/api/invitations?q={name}")
        assert refusal(answer) == (422, "user.search_too_slow")
    for query in queries:
        assert (await management.client.get(f"/api/users?{query}")).status_code == 200


async def test_applications_are_found_by_type_party_and_the_role_that_they_lack(management: Management) -> None:
    marker = unique("application")
    machine = (await management.created("applications", name=marker, type="MachineToMachine"))["id"]
    idle = (await management.created("applications", name=marker, type="MachineToMachine"))["id"]
    spa = (await management.created("applications", name=marker, type="SPA"))["id"]
    third = (await management.created("applications", name=marker, type="SPA", isThirdParty=True))["id"]
    role = (await management.created("roles", name=unique("r"), description="", type="MachineToMachine"))["id"]
    await management.client.post(f"/api/applications/{machine}/roles", json={"roleIds": [role]})

    async def of(**params: str | list[str]) -> set[str]:
        return set(await found(management, "applications", q=marker, **params))

    assert await of() == {machine, idle, spa, third}
    assert await of(types="SPA") == {spa, third}
    assert await of(types=["SPA", "MachineToMachine"], isThirdParty="false") == {machine, idle, spa}
    assert await of(isThirdParty="true") == {third}
    assert await of(excludeRoleId=role) == {idle, spa, third}
    assert await of(excludeRoleId=role, types="MachineToMachine") == {idle}
    assert await of(excludeRoleId="none") == {machine, idle, spa, third}
    for query in ("types=Other", "types=SPA&types=x", "isThirdParty=maybe", "isThirdParty=", "excludeRoleId="):
        answer = await management.client.get(f"/api/applications?{query}")
        assert issues(answer) == {query.partition("=")[0]}


@pytest.mark.parametrize("path", ["users", "applications"])
async def test_what_has_one_of_some_ids_is_found(management: Management, path: str) -> None:
    body, marker = {"type": "SPA"} if path == "applications" else {}, unique("of-some")
    made = [(await management.created(path, name=f"{marker} {number}", **body))["id"] for number in range(3)]
    assert await found(management, path, ids=made[1:]) == made[1:]
    assert await found(management, path, ids=[made[0], made[0], "unknown"]) == made[:1]
    assert await found(management, path, ids="unknown") == []
    assert await found(management, path, ids=made, q=f"{marker} 2") == made[2:]
    assert await found(management, path, ids=[*made, *["x" * 128] * 97]) == made
    for wrong in ("ids=", f"ids=a&ids={'x' * 129}", "ids=a%00", "&".join(["ids=a"] * 101)):
        assert issues(await management.client.get(f"/api/{path}?{wrong}")) == {"ids"}


async def test_users_are_found_by_the_role_that_they_lack(management: Management) -> None:
    marker = unique("holder")
    first, second = [(await management.created("users", name=f"{marker} {number}"))["id"] for number in range(2)]
    role = (await management.created("roles", name=marker, description="", type="User"))["id"]
    await management.client.post(f"/api/users/{first}/roles", json={"roleIds": [role]})
    assert await found(management, "users", q=marker, excludeRoleId=role) == [second]
    assert await found(management, "users", q=marker, excludeRoleId="none") == [first, second]
    joined = {"q": marker, "search.name": f"{marker} 0", "joint": "or", "excludeRoleId": role}
    assert await found(management, "users", **joined) == [second]
    assert issues(await management.client.get("/api/users?excludeRoleId=")) == {"excludeRoleId"}


async def test_roles_are_found_by_type_and_by_who_lacks_them(management: Management) -> None:
    marker = unique("role")
    of_users = [
        (await management.created("roles", name=f"{marker} {number}", description="", type="User"))["id"]
        for number in range(2)
    ]
    of_machines = (await management.created("roles", name=f"{marker} m", description="", type="MachineToMachine"))["id"]
    user, machine = (await management.created("users"))["id"], await management.machine()
    await management.client.post(f"/api/users/{user}/roles", json={"roleIds": of_users[:1]})
    await management.client.post(f"/api/applications/{machine}/roles", json={"roleIds": [of_machines]})
    assert await found(management, "roles", q=marker, type="User") == of_users
    assert await found(management, "roles", q=marker, type="MachineToMachine") == [of_machines]
    assert await found(management, "roles", q=marker, excludeUserId=user) == [of_users[1], of_machines]
    assert await found(management, "roles", q=marker, excludeApplicationId=machine) == of_users
    assert await found(management, "roles", q=marker, type="User", excludeUserId=user) == of_users[1:]
    both = {"excludeUserId": user, "excludeApplicationId": machine}
    assert await found(management, "roles", q=marker, **both) == of_users[1:]
    assert issues(await management.client.get("/api/roles?type=Machine")) == {"type"}


async def test_organizations_and_organization_roles_are_found_by_what_they_lack(template: Template) -> None:
    marker = unique("lacking")
    organizations = [(await template.organization(name=f"{marker} {number}"))["id"] for number in range(2)]
    user = (await template.management.created("users"))["id"]
    machine = await template.management.machine()
    await template.client.post(f"/api/organizations/{organizations[0]}/users", json={"userIds": [user]})
    ids = {"applicationIds": [machine]}
    await template.client.post(f"/api/organizations/{organizations[1]}/applications", json=ids)
    assert await found(template, "organizations", q=marker, excludeUserId=user) == organizations[1:]
    assert await found(template, "organizations", q=marker, excludeApplicationId=machine) == organizations[:1]
    assert await found(template, "organizations", q=marker, excludeUserId=machine) == organizations
    both = {"excludeUserId": user, "excludeApplicationId": machine, "showFeatured": "true"}
    assert await found(template, "organizations", q=marker, **both) == []
    role = (await template.role(name=f"{marker} u"))["id"]
    other = (await template.role(name=f"{marker} m", type="MachineToMachine"))["id"]
    assert await found(template, "organization-roles", q=marker, type="User") == [role]
    assert await found(template, "organization-roles", q=marker, type="MachineToMachine") == [other]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["user", "application"])
async def test_the_organizations_of_a_member_come_whole_unless_a_page_is_requested(
    template: Template, kind: str
) -> None:
    management = template.management
    member = (await management.created("users"))["id"] if kind == "user" else await management.machine()
    await template.caught_up()
    for number in range(21):
        organization = (await template.organization(name=f"many {number:02}"))["id"]
        await template.client.post(f"/api/organizations/{organization}/{kind}s", json={f"{kind}Ids": [member]})
    answer = await template.client.get(f"/api/{kind}s/{member}/organizations")
    assert len(answer.json()) == 21
    assert "Link" not in answer.headers
    paged = await template.client.get(f"/api/{kind}s/{member}/organizations?page=2")
    assert [each["id"] for each in paged.json()] == [answer.json()[20]["id"]]


@pytest.mark.heavy
def test_the_sdk_names_every_filter(stack: RunningStack) -> None:
    client, marker = stack.management, unique("sdk").replace("-", "_")
    user = client.users.create(username=f"{marker}a", name=marker)
    other = client.users.create(username=f"{marker}b", name=marker)
    machine = client.applications.create(name=marker, type="MachineToMachine")
    third = client.applications.create(name=marker, type="SPA", is_third_party=True)
    role = client.roles.create(name=f"{marker} 1", description="")
    machine_role = client.roles.create(name=f"{marker} 2", description="", type="MachineToMachine")
    client.users.assign_roles(user.id, [role.id])
    client.applications.assign_roles(machine.id, [machine_role.id])

    def ids(listed: Iterable[Any]) -> list[str]:
        return [each.id for each in listed]

    assert ids(client.users.list(exact={"username": f"{marker}A"})) == [user.id]
    assert set(ids(client.users.list(like={"username": f"{marker}%"}))) == {user.id, other.id}
    assert ids(client.users.list(exact={"name": marker}, like={"username": "%b"})) == [other.id]
    either = client.users.list(exact={"name": marker, "username": f"{marker}b"}, joint="or")
    assert set(ids(either)) == {user.id, other.id}
    with pytest.raises(ValueError, match="name is in both exact and like"):
        client.users.list(exact={"name": "a"}, like={"name": "a"})
    assert ids(client.users.list(ids=[other.id, "unknown"])) == [other.id]
    client.users.invite(user.id)
    assert [each.user_id for each in client.users.invitations(search=marker, status="Pending")] == [user.id]
    assert list(client.users.invitations(user_id=user.id, status="Expired")) == []
    assert ids(client.users.list(exact={"username": f"{marker}a"}, ids=[other.id], joint="or")) == []
    assert set(ids(client.applications.list(ids=(machine.id, third.id)))) == {machine.id, third.id}
    assert ids(client.applications.list(search=marker, is_third_party=True)) == [third.id]
    assert ids(client.applications.list(search=marker, types=["MachineToMachine", "Native"])) == [machine.id]
    assert ids(client.applications.list(search=marker, without_role_id=machine_role.id)) == [third.id]
    assert ids(client.roles.list(search=marker, type="User")) == [role.id]
    assert ids(client.roles.list(search=marker, without_user_id=user.id)) == [machine_role.id]
    assert ids(client.roles.list(search=marker, without_application_id=machine.id)) == [role.id]
    organizations = [client.organizations.create(f"{marker} {number}") for number in range(2)]
    client.organizations.add_users(organizations[0].id, [user.id, other.id])
    client.organizations.add_applications(organizations[1].id, [machine.id])
    assert ids(client.organizations.list(search=marker, without_user_id=user.id)) == [organizations[1].id]
    without = client.organizations.list(search=marker, without_application_id=machine.id)
    assert ids(without) == [organizations[0].id]
    organization_role = client.organization_roles.create(marker)
    assert ids(client.organization_roles.list(search=marker, type="User")) == [organization_role.id]
    assert ids(client.organization_roles.list(ids=[organization_role.id, "unknown"])) == [organization_role.id]
    assert ids(client.organization_roles.list(search=marker, type="MachineToMachine")) == []
    client.organizations.assign_user_roles(organizations[0].id, user.id, [organization_role.id])
    members = client.organizations.users(organizations[0].id, without_role_id=organization_role.id)
    assert ids(members) == [other.id]
    assert ids(client.users.list(search=marker, without_organization_id=organizations[0].id)) == []
    others = client.users.list(search=marker, without_organization_id=organizations[1].id)
    assert set(ids(others)) == {user.id, other.id}
    outside = client.applications.list(search=marker, without_organization_id=organizations[1].id)
    assert ids(outside) == [third.id]


@pytest.mark.parametrize("kind", ["user", "application"])
async def test_members_of_an_organization_are_left_out(template: Template, kind: str) -> None:
    """Together with every other filter, in pages that add up; a change counts from its answer on."""
    management, marker, path = template.management, unique("outside").replace("-", "_"), f"{kind}s"
    members = {"type": "MachineToMachine"} if kind == "application" else {}
    ids = [(await management.created(path, name=f"{marker} {number}", **members))["id"] for number in range(5)]
    await template.caught_up()
    organization, other = [(await template.organization())["id"] for _ in range(2)]
    relation = f"/api/organizations/{organization}/{path}"
    assert (await template.client.post(relation, json={f"{kind}Ids": [ids[1], ids[3]]})).status_code == 201
    await template.client.post(f"/api/organizations/{other}/{path}", json={f"{kind}Ids": [ids[0]]})

    async def of(**params: str) -> list[str]:
        return await found(management, path, **{"q": marker, "excludeOrganizationId": organization, **params})

    assert await of() == [ids[0], ids[2], ids[4]]
    assert await of(excludeOrganizationId="unknown") == ids
    if kind == "user":
        assert await of(**{"search.name": f"{marker} 1", "joint": "or"}) == [ids[0], ids[2], ids[4]]
        assert await of(**{"search.name": f"{marker} 2", "joint": "and"}) == [ids[2]]
    else:
        assert await of(types="MachineToMachine", isThirdParty="false", excludeRoleId="x") == [ids[0], ids[2], ids[4]]
        assert await of(types="SPA") == []
    pages = [
        await management.client.get(f"/api/{path}?q={marker}&excludeOrganizationId={organization}&page={n}&page_size=2")
        for n in (1, 2)
    ]
    assert [each["id"] for page in pages for each in page.json()] == [ids[0], ids[2], ids[4]]
    assert {page.headers["Total-Number"] for page in pages} == {"3"}
    everyone = await management.client.get(f"/api/{path}?page_size=1")
    but_members = await management.client.get(f"/api/{path}?page_size=1&excludeOrganizationId={organization}")
    assert int(but_members.headers["Total-Number"]) == int(everyone.headers["Total-Number"]) - 2
    assert (await template.client.delete(f"{relation}/{ids[1]}")).status_code == 204
    assert await of() == [ids[0], ids[1], ids[2], ids[4]]
    assert (await template.client.delete(f"/api/organizations/{organization}")).status_code == 204
    assert await of() == ids
    for query in (
        "excludeOrganizationId=",
        "excludeOrganizationId=%00",
        "excludeOrganizationId=a&excludeOrganizationId=b",
    ):
        assert issues(await management.client.get(f"/api/{path}?{query}")) == {"excludeOrganizationId"}
    unprivileged = management.client_with(management.token(scope="subject-tokens"))
    assert refusal(await unprivileged.get(f"/api/{path}?excludeOrganizationId={other}")) == (403, "auth.forbidden")


@pytest.mark.heavy
async def test_an_organization_may_have_more_members_than_a_reply_holds(template: Template) -> None:
    management, marker = template.management, unique("crowd")
    last = (await management.created("users", name=f"{marker} b", username=f"zz{marker}"))["id"]
    outside = (await management.created("users", name=f"{marker} a"))["id"]
    organization = (await template.organization())["id"]
    crowd = [f"0{number:011}" for number in range(MEMBERS_IN_A_REPLY)]
    await template.join(organization, *crowd, last)
    assert await found(management, "users", q=marker, excludeOrganizationId=organization) == [outside]


@pytest.mark.heavy
async def test_without_template_service_only_this_filter_is_refused(servers: ServerAddresses, issuer: Issuer) -> None:
    """There is no listener, then one whose database is down, then one that makes no sense, then one without an end."""
    async with Management(servers, issuer) as alone:
        bus = await nats.connect(servers.template_nats_url, inbox_prefix="_INBOX_template")
        try:
            for reply in (None, b'{"unavailable":true}', b'{"ids":[1]}', b"nonsense"):
                if reply is not None:
                    listener = await bus.subscribe(members_subject(alone.tenant_id), cb=partial(_respond, reply))
                    await bus.flush()
                for path in ("users", "applications"):
                    answer = await alone.client.get(f"/api/{path}?excludeOrganizationId=x")
                    assert refusal(answer) == (503, "temporarily_unavailable")
                    assert int(answer.headers["Retry-After"]) > 0
                    assert (await alone.client.get(f"/api/{path}")).status_code == 200
                if reply is not None:
                    await listener.unsubscribe()
            endless = msgspec.json.encode(MembersAnswer(("x" * 21,) * MEMBERS_IN_A_REPLY))
            await bus.subscribe(members_subject(alone.tenant_id), cb=partial(_respond, endless))
            await bus.flush()
            answer = await alone.client.get("/api/users?excludeOrganizationId=x")
            assert refusal(answer) == (422, "organization.too_many_members")
        finally:
            await bus.close()


async def _respond(reply: bytes, message: Msg) -> None:
    await message.respond(reply)
