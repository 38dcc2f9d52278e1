"""Concurrent changes of members are serialized or refused, never half applied, and never fail."""

import asyncio
from typing import Any

import pytest

from identity_common.clock import now_ms
from identity_common.stores.database import create_database_engine
from identity_common.wire.events import UserState
from stead.event_types import MemberState
from template_service.known.store import Known, put_users
from template_service.members import store
from tests.support.lengths import length
from tests.support.management_api import refusal
from tests.support.organizations import (
    KINDS,
    USERS,
    Kind,
    Organization,
    member_of_kind,
    organization_role,
)
from tests.support.template_api import Template

pytestmark = pytest.mark.heavy

ROUNDS = length(short=4, long=8)
of_both_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)


async def stored(template: Template, own: Organization) -> dict[str, MemberState]:
    """Return the members of an organization from the database; assert that no assignment lacks its member."""
    orphans = """
        SELECT count(*) FROM member_roles AS held WHERE tenant_id = $1 AND organization_id = $2 AND NOT EXISTS (
            SELECT FROM members WHERE members.tenant_id = $1 AND members.organization_id = $2
                AND members.member_id = held.member_id
        )
    """
    assert await template.database.fetchval(orphans, template.tenant_id, own.id) == 0
    rows = await template.database.fetch(
        """
        SELECT member_id, ARRAY(SELECT role_id FROM member_roles AS held WHERE held.tenant_id = $1
            AND held.organization_id = $2 AND held.member_id = members.member_id ORDER BY 1) AS role_ids
        FROM members WHERE tenant_id = $1 AND organization_id = $2
        """,
        template.tenant_id,
        own.id,
    )
    return {row["member_id"]: own.said(row["member_id"], *row["role_ids"]) for row in rows}


async def assert_events_agree(template: Template, own: Organization, members: list[str]) -> None:
    """Assert that the last event of every member agrees with the database."""
    there = await stored(template, own)
    for member in members:
        await own.says(member, there.get(member, own.removed(member)))


def outcomes(answers: list[Any]) -> set[int]:
    return {answer.status_code for answer in answers}


@of_both_kinds
async def test_one_of_several_concurrent_replacements_holds_whole(template: Template, kind: Kind) -> None:
    ids = [await member_of_kind(template, kind) for _ in range(6)]
    own = await Organization.new(template, kind, ids[0])
    replacements = [ids[:3], ids[2:5], ids[4:], []]
    for _ in range(ROUNDS):
        answers = await asyncio.gather(*(own.replace(*each) for each in replacements))
        assert outcomes(answers) == {204}
        assert set(await stored(template, own)) in [set(each) for each in replacements]
    await own.replace(*ids)
    await own.replace(*ids[:3])
    await assert_events_agree(template, own, ids)


@of_both_kinds
async def test_a_member_removed_during_an_assignment_has_no_roles(template: Template, kind: Kind) -> None:
    ids = [await member_of_kind(template, kind) for _ in range(3)]
    roles = [await organization_role(template, kind) for _ in range(2)]
    own = await Organization.new(template, kind)
    for number in range(ROUNDS):
        await own.add(*ids)
        take_away = own.remove(ids[1]) if number % 2 else own.replace(ids[0])
        path = f"{own.path}/{ids[1]}/roles"
        answers = await asyncio.gather(
            own.assign(ids, roles),
            template.client.put(path, json={"organizationRoleIds": roles[:1]}),
            take_away,
            template.client.delete(f"{path}/{roles[0]}"),
            own.assign(ids[::-1], roles),
        )
        assert outcomes(answers) <= {201, 204, 404, 422}
        assert answers[2].status_code == 204
        for answer in answers:
            if answer.status_code == 422:
                assert refusal(answer) == (422, "organization.require_membership")
        assert ids[1] not in await stored(template, own)
        await assert_events_agree(template, own, ids)


@of_both_kinds
async def test_a_role_deleted_during_an_assignment_has_no_holders(template: Template, kind: Kind) -> None:
    ids = [await member_of_kind(template, kind) for _ in range(3)]
    own = await Organization.new(template, kind, *ids)
    for _ in range(ROUNDS):
        role = await organization_role(template, kind)
        answers = await asyncio.gather(
            template.client.delete(f"/api/organization-roles/{role}"), *(own.assign(ids, [role]) for _ in range(4))
        )
        assert answers[0].status_code == 204
        for answer in answers[1:]:
            assert answer.status_code == 201 or refusal(answer) == (422, "entity.relation_foreign_key_not_found")
        assert await own.members() == {member: [] for member in ids}


@of_both_kinds
async def test_a_user_or_application_deleted_while_being_added_is_not_a_member(template: Template, kind: Kind) -> None:
    own = await Organization.new(template, kind)
    stays = await member_of_kind(template, kind)
    for number in range(ROUNDS):
        member = await member_of_kind(template, kind)
        answers = await asyncio.gather(
            own.add(stays, member),
            template.management.client.delete(f"/api/{kind.path}/{member}"),
            own.replace(member, stays) if number % 2 else own.add(member),
        )
        assert outcomes(answers) <= {201, 204, 422}
        await template.caught_up()
        assert member not in await stored(template, own)
        if await own.event(member) is not None:
            await own.says(member, own.removed(member))


@of_both_kinds
async def test_a_user_or_application_renamed_while_being_added_has_its_new_name(template: Template, kind: Kind) -> None:
    """The new name waits until the member is there to get it."""
    own = await Organization.new(template, kind)
    member = await member_of_kind(template, kind, name="Before")
    await template.caught_up()
    rename = f"UPDATE known_{kind.path} SET name = 'After' WHERE tenant_id = $1 AND id = $2"
    engine = create_database_engine(template.settings.database_url, service="tests", pool_size=1)
    async with engine.begin() as connection:
        assert await store.lock_known(connection, template.tenant_id, kind.member_type, [member]) == {member: True}
        added = store.Members(connection, template.tenant_id, own.id, kind.member_type)
        assert await added.add([member], now=now_ms()) == [member]
        renaming = asyncio.create_task(template.database.execute(rename, template.tenant_id, member))
        await asyncio.sleep(0.1)
        assert not renaming.done()
    await renaming
    await engine.dispose()
    name = "SELECT name FROM members WHERE tenant_id = $1 AND organization_id = $2"
    assert await template.database.fetchval(name, template.tenant_id, own.id) == "After"


async def test_changes_of_users_do_not_deadlock_with_their_addition(template: Template) -> None:
    """Whatever order the changes arrive in."""
    first, second = sorted([await member_of_kind(template, USERS) for _ in range(2)])
    await template.caught_up()
    engine = create_database_engine(template.settings.database_url, service="tests", pool_size=2)

    async def change() -> None:
        states = [Known(UserState(id=each, name="After"), revision=2**40) for each in (second, first)]
        async with engine.begin() as connection:
            await put_users(connection, template.tenant_id, states)

    async with engine.begin() as adding:
        assert await store.lock_known(adding, template.tenant_id, "user", [first]) == {first: True}
        changing = asyncio.create_task(change())
        await asyncio.sleep(0.1)
        assert await store.lock_known(adding, template.tenant_id, "user", [second]) == {second: True}
    await changing
    await engine.dispose()


@of_both_kinds
async def test_an_organization_deleted_while_members_are_added_has_no_members(template: Template, kind: Kind) -> None:
    ids = [await member_of_kind(template, kind) for _ in range(2)]
    for _ in range(ROUNDS):
        own = await Organization.new(template, kind, ids[0])
        answers = await asyncio.gather(
            own.add(*ids), own.replace(ids[1]), own.delete(), own.add(*ids), own.remove(ids[0])
        )
        for answer in answers:
            assert answer.status_code in {201, 204} or answer.status_code == 404
        assert refusal(await own.add(*ids)) == (404, "entity.not_exists_with_id")
        assert (await template.client.get(f"/api/{kind.path}/{ids[0]}/organizations")).json() == []


async def test_additions_and_assignments_in_any_order_wait_for_each_other(template: Template) -> None:
    ids = [await member_of_kind(template, USERS) for _ in range(12)]
    roles = [await organization_role(template, USERS) for _ in range(4)]
    own = await Organization.new(template, USERS, *ids[:6])
    for _ in range(ROUNDS):
        answers = await asyncio.gather(
            *(own.add(*ids[6::step]) for step in (1, -1, 2, -2)),
            *(own.assign(ids[:6][::step], roles[::step]) for step in (1, -1, 1, -1)),
            *(
                template.client.put(f"{own.path}/{member}/roles", json={"organizationRoleIds": roles[number:]})
                for number, member in enumerate(ids[:4])
            ),
        )
        assert outcomes(answers) == {201, 204}
        await assert_events_agree(template, own, ids)
        await own.replace(*ids[:6])
