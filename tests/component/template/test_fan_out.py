"""A change of permissions reaches every member it affects, in the background, exactly once."""

import asyncio
import random
from typing import Any

import asyncpg
import msgspec
import pytest

from identity_common.identifiers import new_short_id
from stead.event_types import GrantedPermission, MemberPermissionsState, MemberState
from template_service.fan_out.batch import BATCH
from template_service.fan_out.requests import request_member_fan_out, request_role_fan_out
from tests.support.captured_logs import captured_logs
from tests.support.issuer import Issuer
from tests.support.lengths import length
from tests.support.management_api import Management, unique
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_api import Template
from tests.support.template_tables import JOINED_AT, TemplateTables, fold

AROUND_A_BATCH = [BATCH, BATCH + 1, *(BATCH - 1, 2 * BATCH, 2 * BATCH + 1, 2500)[: length(short=0, long=4)]]


def granted(*names: str) -> tuple[GrantedPermission, ...]:
    return tuple(GrantedPermission(name) for name in names)


def summary(told: list[MemberPermissionsState]) -> list[tuple[int, str, list[str], list[str], list[str]]]:
    return [
        (
            state.version,
            state.cause,
            [each.name for each in state.added],
            [each.name for each in state.removed],
            [each.name for each in state.permissions],
        )
        for state in told
    ]


async def test_an_assignment_a_role_edit_and_a_removal_publish_what_they_changed(tables: TemplateTables) -> None:
    read, write = unique("read"), unique("write")
    read_id, write_id = await tables.permissions([read, write])
    role = await tables.role(read_id)
    organization = await tables.organization()
    (member,) = await tables.members(organization, 1, role)
    await tables.settled()
    await tables.grant(role, write_id)
    await tables.settled()
    await tables.revoke(role, read_id)
    await tables.settled()
    await tables.remove(organization, member)
    await tables.settled()
    told = await tables.told(organization)
    assert summary(told) == [
        (1, "assignment", [read], [], [read]),
        (2, "role-changed", [write], [], [read, write]),
        (3, "role-changed", [], [read], [write]),
        (4, "member-removed", [], [write], []),
    ]
    assert {(state.organization_id, state.member_id, state.member_type) for state in told} == {
        (organization, member, "user")
    }


async def test_versions_continue_when_a_member_returns(tables: TemplateTables) -> None:
    (permission,) = await tables.permissions([name := unique("p")])
    role, organization = await tables.role(permission), await tables.organization()
    (member,) = await tables.members(organization, 1, role, kind="application")
    await tables.settled()
    await tables.remove(organization, member)
    await tables.settled()
    await tables.members(organization, 1, role, kind="application", ids=[member])
    await tables.settled()
    told = await tables.told(organization)
    assert [(state.version, state.permissions) for state in told] == [(1, granted(name)), (2, ()), (3, granted(name))]
    assert {state.member_type for state in told} == {"application"}


async def test_the_event_is_a_cloud_event_of_its_member(tables: TemplateTables) -> None:
    (permission,) = await tables.permissions([unique("p")])
    role, organization = await tables.role(permission), await tables.organization()
    (member,) = await tables.members(organization, 1, role)
    await tables.settled()
    (event,) = await tables.events("member-permissions", organization, member)
    assert (event.type, event.subject) == ("member-permissions.updated", f"{organization}/{member}")
    assert event.id == f"{tables.tenant_id}:template:{event.revision}"


async def test_api_scopes_are_published_with_their_indicator_while_scope_and_resource_are_known(
    tables: TemplateTables,
) -> None:
    (permission,) = await tables.permissions(["a:" + unique("p")])
    indicator = f"https://{unique('api')}.test"
    scope, orphan = await tables.known_scope("read:orders", indicator), await tables.known_scope("lost", "https://gone")
    await tables.database.execute(
        "DELETE FROM known_resources WHERE tenant_id = $1 AND indicator = 'https://gone'", tables.tenant_id
    )
    role, organization = await tables.role(permission, scope_ids=[scope, orphan]), await tables.organization()
    await tables.members(organization, 1, role)
    await tables.settled()
    (state,) = await tables.told(organization)
    assert [(each.name[:2], each.resource) for each in state.permissions] == [("a:", None), ("re", indicator)]
    (raw,) = await tables.events("member-permissions", organization, "*")
    assert b'"resource":"' + indicator.encode() in bytes(raw.data)
    assert b"null" not in bytes(raw.data)


async def test_a_member_that_never_had_a_permission_gets_no_event_and_no_row(tables: TemplateTables) -> None:
    empty, organization = await tables.role(), await tables.organization()
    members = await tables.members(organization, 3, empty)
    await tables.remove(organization, members[0])
    await tables.delete_organization(organization)
    await tables.settled()
    assert await tables.told(organization) == []
    assert not [key for key in await tables.published_versions() if key[0] == organization]


async def test_only_members_whose_permissions_changed_get_an_event(tables: TemplateTables) -> None:
    first, second = await tables.permissions([unique("a"), unique("b")])
    role, other = await tables.role(first), await tables.role(first, second)
    organization = await tables.organization()
    touched = await tables.members(organization, 5, role)
    both = await tables.members(organization, 5, role, other)
    await tables.settled()
    await tables.grant(role, second)
    await tables.settled()
    versions = await tables.published_versions()
    assert [versions[organization, member] for member in touched] == [2] * 5
    assert [versions[organization, member] for member in both] == [1] * 5


async def test_events_for_a_renamed_and_a_deleted_permission_name_their_cause(tables: TemplateTables) -> None:
    old, new = unique("old"), unique("new")
    (permission,) = await tables.permissions([old])
    role, organization = await tables.role(permission), await tables.organization()
    await tables.members(organization, 1, role)
    await tables.settled()
    await tables.rename_permission(permission, new)
    await tables.settled()
    await tables.delete_permission(permission)
    await tables.settled()
    assert summary(await tables.told(organization))[1:] == [
        (2, "permission-changed", [new], [old], [new]),
        (3, "permission-deleted", [], [new], []),
    ]


async def test_a_deleted_role_is_unassigned_and_its_holders_get_events(tables: TemplateTables) -> None:
    gone, kept = await tables.permissions([unique("gone"), unique("kept")])
    role, other = await tables.role(gone), await tables.role(kept)
    organization = await tables.organization()
    members = await tables.members(organization, 3, role, other, rejoined=True)
    await tables.settled()
    await tables.delete_role(role)
    await tables.settled()
    told = await tables.told(organization)
    assert {(state.version, state.cause) for state in told[3:]} == {(2, "role-deleted")}
    query = "SELECT count(*) FROM member_roles WHERE tenant_id = $1 AND role_id = $2"
    assert await tables.database.fetchval(query, tables.tenant_id, role) == 0
    last = {event.subject: event for event in await tables.events("member", organization, "*")}
    assert last.keys() == {f"{organization}/{member}" for member in members}
    for event in last.values():
        state = msgspec.json.decode(event.data, type=MemberState)
        assert event.type == "member.updated"
        assert state == MemberState(
            organization_id=organization,
            member_id=state.member_id,
            joined_at=JOINED_AT,
            rejoined=True,
            role_ids=(other,),
        )


async def test_the_members_of_a_deleted_organization_are_removed_and_get_events(tables: TemplateTables) -> None:
    (permission,) = await tables.permissions([unique("p")])
    role = await tables.role(permission)
    organization, untouched = await tables.organization(), await tables.organization()
    members = await tables.members(organization, 3, role)
    await tables.members(untouched, 1, role)
    await tables.settled()
    await tables.delete_organization(organization)
    await tables.settled()
    assert {(state.version, state.cause) for state in (await tables.told(organization))[3:]} == {
        (2, "organization-deleted")
    }
    assert len(await tables.told(untouched)) == 1
    query = "SELECT count(*) FROM members WHERE tenant_id = $1 AND organization_id = $2"
    assert await tables.database.fetchval(query, tables.tenant_id, organization) == 0
    deleted = [event for event in await tables.events("member", organization, "*") if event.type == "member.deleted"]
    assert {event.subject for event in deleted} == {f"{organization}/{member}" for member in members}
    assert len(deleted) == len(members)


async def test_rapid_changes_coalesce_and_a_reverted_one_publishes_nothing(tables: TemplateTables) -> None:
    permissions = await tables.permissions([unique(f"p{number}") for number in range(5)])
    role, organization = await tables.role(permissions[0]), await tables.organization()
    await tables.members(organization, 3, role)
    await tables.settled()
    async with tables.transaction() as held:  # the worker waits while the changes pile up
        await tables.execute(
            held, "SELECT pg_advisory_xact_lock(hashtext('identity-fan-out-batch'), hashtext(:tenant))"
        )
        for permission in permissions[1:]:
            await tables.grant(role, permission)
        await tables.revoke(role, *permissions[1:3])
    await tables.settled()
    told = (await tables.told(organization))[3:]
    assert [(state.version, len(state.added), state.removed) for state in told] == [(2, 2, ())] * 3


@pytest.mark.heavy
async def test_a_message_too_large_says_that_it_is_incomplete(tables: TemplateTables) -> None:
    """A message is bounded to 512 KiB; 65,537 permissions are far beyond it (compare CVE-2024-27101)."""
    count = length(short=5_000, long=65_537)
    many = await tables.permissions([f"{'x' * 100}-{number}" for number in range(count)])
    few = await tables.permissions([unique("few")])
    parts = [await tables.role(*many[start : start + 4096]) for start in range(0, len(many), 4096)]
    organization = await tables.organization()
    (member,) = await tables.members(organization, 1, *parts)
    await tables.settled()
    (event,) = await tables.events("member-permissions", organization, member)
    assert len(msgspec.json.encode(event)) < 512 * 1024
    (state,) = await tables.told(organization)
    assert (state.version, state.incomplete, state.permissions, state.added) == (1, True, (), ())
    await tables.assign(organization, [member], await tables.role(*few))
    await tables.settled()
    assert [(state.version, state.incomplete) for state in await tables.told(organization)] == [(1, True), (2, True)]
    await tables.unassign(organization, [member], *parts)
    await tables.settled()
    last = (await tables.told(organization))[-1]
    assert (last.version, last.incomplete) == (3, True)  # the removed permissions do not fit either
    await tables.remove(organization, member)
    await tables.settled()
    last = (await tables.told(organization))[-1]
    assert (last.version, last.incomplete, len(last.removed)) == (4, False, 1)


@pytest.mark.heavy
async def test_events_that_are_large_together_are_recorded_in_smaller_batches(tables: TemplateTables) -> None:
    """Events of nearly 512 KiB each would be 23 MB in one transaction, and in memory; in full, 40 MB."""
    names = [f"{'y' * 100}-{number:04}-{tables.tenant_id[:4]}" for number in range(2_000)]
    role, organization = await tables.role(*await tables.permissions(names)), await tables.organization()
    with captured_logs("template-service") as log:
        members = await tables.members(organization, length(short=48, long=80), role)
        await tables.settled(60)
    events = await tables.events("member-permissions", organization, "*")
    assert sorted(event.subject for event in events) == [f"{organization}/{member}" for member in members]
    assert min(len(bytes(event.data)) for event in events) > 400_000
    assert len({event.time for event in events}) > 1  # ``time`` is that of the transaction
    query = "DELETE FROM members WHERE tenant_id = $1 AND organization_id = $2"  # a later test reads who holds what
    await tables.database.execute(query, tables.tenant_id, organization)
    assert "fan-out.failed" not in log.getvalue()


@pytest.mark.heavy
@pytest.mark.parametrize("count", AROUND_A_BATCH)
async def test_every_member_gets_one_event_whatever_the_batch_size(tables: TemplateTables, count: int) -> None:
    first, second = await tables.permissions([unique("a"), unique("b")])
    role, organization = await tables.role(first), await tables.organization()
    members = await tables.members(organization, count, role)
    await tables.settled()
    await tables.grant(role, second)
    await tables.settled()
    told = await tables.told(organization)
    assert len(told) == 2 * count
    assert len(fold(told)) == count
    await tables.delete_role(role)
    await tables.settled()
    await tables.delete_organization(organization)
    await tables.settled()
    told = await tables.told(organization)
    assert fold(told) == {}
    assert len(told) == 3 * count
    assert {state.cause for state in told[2 * count :]} == {"role-deleted"}
    assert {state.member_id for state in told} == set(members)
    query = "SELECT count(*) FROM members WHERE tenant_id = $1 AND organization_id = $2"
    assert await tables.database.fetchval(query, tables.tenant_id, organization) == 0


@pytest.mark.heavy
async def test_a_small_fan_out_does_not_wait_for_a_large_one(tables: TemplateTables) -> None:
    permission, other = await tables.permissions([unique("a"), unique("b")])
    role, second, organization = await tables.role(permission), await tables.role(other), await tables.organization()
    count = length(short=5_000, long=20_000)
    await tables.members(organization, count, role, quietly=True)
    small = await tables.organization()
    async with tables.transaction() as transaction:
        await request_role_fan_out(transaction, tables.tenant_id, role, "role-changed")
    (member,) = await tables.members(small, 1, second)
    await tables.settled(60)
    mine = (await tables.events("member-permissions", small, member))[0].revision
    last = (await tables.events("member-permissions", organization, "*"))[-1].revision
    assert mine < last - count // 2


async def test_a_fan_out_may_name_an_id_that_is_not_a_member(
    tables: TemplateTables,
) -> None:
    organization, stranger = await tables.organization(), new_short_id()
    async with tables.transaction() as transaction:
        await request_member_fan_out(transaction, tables.tenant_id, organization, [stranger], "member-removed")
    await tables.settled()
    assert await tables.told(organization) == []


@pytest.mark.heavy
async def test_the_fan_out_continues_while_the_bus_is_down_and_publishes_afterwards(
    template: Template, issuer: Issuer
) -> None:
    addresses = template.management.addresses
    async with (
        Management(addresses, issuer) as management,
        TcpProxy(addresses.template_nats_url) as bus,
        Template(management, nats_url=bus.url) as own,
        TemplateTables(own.settings.database_url, addresses.subscriber_nats_url, own.tenant_id) as tables,
    ):
        first, second = await tables.permissions([unique("a"), unique("b")])
        role, organization = await tables.role(first), await tables.organization()
        count = 2 * BATCH + length(short=100, long=1500)
        await tables.members(organization, count, role)
        await tables.settled(60)
        await bus.cut()
        await tables.grant(role, second)
        waiting = "SELECT count(*) FROM outbox WHERE tenant_id = $1"
        async with asyncio.timeout(60):
            while await tables.database.fetchval(waiting, tables.tenant_id) < count:  # noqa: ASYNC110 - from outside
                await asyncio.sleep(0.05)
        await bus.mend()
        await tables.settled(60)
        told = await tables.told(organization)
        assert len(told) == 2 * count
        assert fold(told) == await tables.held()


async def test_changes_over_http_are_published(template: Template, tables: TemplateTables) -> None:
    read, write = await template.permission(), await template.permission()
    role = await template.role(organizationScopeIds=[read["id"]])
    organization = (await template.organization())["id"]
    user = (await template.management.created("users", name="Member"))["id"]
    people = f"/api/organizations/{organization}/users"
    contents = f"/api/organization-roles/{role['id']}/scopes"
    steps: list[tuple[str, str, Any]] = [
        ("POST", people, {"userIds": [user]}),
        ("POST", f"{people}/{user}/roles", {"organizationRoleIds": [role["id"]]}),
        ("POST", contents, {"organizationScopeIds": [write["id"]]}),
        ("PATCH", f"/api/organization-scopes/{write['id']}", {"name": (renamed := unique("renamed"))}),
        ("DELETE", f"/api/organization-scopes/{read['id']}", None),
        ("DELETE", f"{people}/{user}", None),
        ("POST", people, {"userIds": [user]}),
        ("POST", f"{people}/{user}/roles", {"organizationRoleIds": [role["id"]]}),
        ("DELETE", f"/api/organization-roles/{role['id']}", None),
    ]
    for method, path, body in steps:
        answer = await template.client.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        await tables.settled()
    old, first = write["name"], read["name"]
    held = [
        (state.version, state.cause, {each.name for each in state.permissions})
        for state in await tables.told(organization)
    ]
    assert held == [
        (1, "assignment", {first}),
        (2, "role-changed", {first, old}),
        (3, "permission-changed", {first, renamed}),
        (4, "permission-deleted", {renamed}),
        (5, "member-removed", set()),
        (6, "assignment", {renamed}),
        (7, "role-deleted", set()),
    ]
    last = (await tables.events("member", organization, user))[-1]
    assert msgspec.json.decode(last.data, type=MemberState).role_ids == ()


async def random_change(tables: TemplateTables, chance: random.Random, world: dict[str, list[str]]) -> None:
    organization = chance.choice(world["organizations"])
    role = chance.choice(world["roles"])
    members = chance.sample(world["people"], chance.randint(1, 8))
    permissions = chance.sample(world["permissions"], 2)
    present = await tables.database.fetch(
        "SELECT member_id FROM members WHERE tenant_id = $1 AND organization_id = $2 AND member_id = ANY($3)",
        tables.tenant_id,
        organization,
        members,
    )
    there = [row[0] for row in present]
    match chance.randint(0, 6):
        case 0:
            await tables.members(organization, 0, role, ids=[each for each in members if each not in there])
        case 1 if there:
            await tables.assign(organization, there, role)
        case 2 if there:
            await tables.unassign(organization, there, role)
        case 3 if there:
            await tables.remove(organization, there[0])
        case 4:
            await tables.revoke(role, *permissions)
        case 5:
            await tables.rename_permission(permissions[0], unique("renamed"))
        case _:
            await tables.revoke(role, *permissions)
            await tables.grant(role, *permissions)


@pytest.mark.heavy
async def test_the_events_agree_with_the_database_after_random_changes_and_killed_connections(
    tables: TemplateTables, template: Template
) -> None:
    """Database sessions are terminated repeatedly; the events of every member still fold to its permissions."""
    chance = random.Random(4)
    world = {
        "permissions": await tables.permissions([unique(f"p{number}") for number in range(6)]),
        "people": [new_short_id() for _ in range(40)],
    }
    world["roles"] = [await tables.role(*chance.sample(world["permissions"], 3)) for _ in range(4)]
    world["organizations"] = [await tables.organization() for _ in range(3)]
    quiet = asyncio.Event()

    async def kill() -> None:
        """Terminate every session of the service: worker, relay and projection, whatever they are doing."""
        connection = await asyncpg.connect(template.management.addresses.admin_postgres_url)
        statement = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = $1 AND application_name <> 'tests'"""
        try:
            while not quiet.is_set():
                await connection.execute(statement, template.settings.database_url.rpartition("/")[2])
                await asyncio.sleep(chance.uniform(0.3, 0.6))
        finally:
            await connection.close()

    killer = asyncio.create_task(kill())
    for _ in range(length(short=75, long=150)):
        await random_change(tables, chance, world)
        await asyncio.sleep(0.02)
    quiet.set()
    await killer
    await tables.delete_role(world["roles"][0])
    await tables.delete_organization(world["organizations"][0])
    await tables.settled()
    told = [state for each in world["organizations"] for state in await tables.told(each)]
    held = {key: value for key, value in (await tables.held()).items() if key[0] in world["organizations"]}
    assert fold(told) == held
    assert held
    last = {(state.organization_id, state.member_id): state.version for state in told}
    assert last == {key: version for key, version in (await tables.published_versions()).items() if key in last}
