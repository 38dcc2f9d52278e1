"""Membership just in time: what each sign-in through a connector gives and takes away, and when it is told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import msgspec
import nats
import pytest
import pytest_asyncio

from identity_common.wire.audit import audit_subject
from identity_common.wire.events import AppliedState, ProviderGroupsState
from stead.event_types import MemberState
from tests.support.audit_entries import entries_on_the_bus
from tests.support.databases import until_waited_for
from tests.support.management_api import issues, refusal, unique
from tests.support.published_sign_ins import ProviderSignIns, provider_sign_ins
from tests.support.template_api import Template
from tests.support.template_tables import TemplateTables
from tests.support.waiting import WAIT_S


@pytest_asyncio.fixture
async def sign_ins(template: Template) -> AsyncIterator[ProviderSignIns]:
    async with provider_sign_ins(template) as sign_ins:
        yield sign_ins


class Organization:
    """An organization with a user who is no member yet."""

    def __init__(self, template: Template, organization_id: str, user: str) -> None:
        self.template = template
        self.id = organization_id
        self.user = user
        self.path = f"/api/organizations/{organization_id}"

    async def jit(self, what: str, **body: Any) -> None:
        """Configure: PUT of what is below ``/jit``."""
        answer = await self.template.client.put(f"{self.path}/jit/{what}", json=body)
        assert answer.status_code == 204, answer.text

    async def groups(self, connector: str, **roles: Sequence[str]) -> None:
        """Let these groups of a connector give roles, and no other group of any connector."""
        await self.jit("groups", groups=[group_of(connector, name, given) for name, given in roles.items()])

    async def origins(self, user: str | None = None) -> dict[str, list[str]] | None:
        """Return the roles of the user by id, and why it holds each; None unless it is a member."""
        answer = await self.template.client.get(f"{self.path}/users/{user or self.user}/roles")
        if answer.status_code == 422:
            return None
        return {role["id"]: role["origins"] for role in answer.json()}

    async def listed_origins(self) -> list[dict[str, list[str]]]:
        """Return the same as the lists of members and of organizations show it, and the effective permissions."""
        of_user, client = f"/api/users/{self.user}", self.template.client
        listed = [(await client.get(path)).json() for path in (f"{self.path}/users", f"{of_user}/organizations")]
        permissions = await self.template.management.client.get(f"{of_user}/effective-permissions")
        listed.append(permissions.json()["organizations"])
        return [{role["id"]: role["origins"] for role in found["organizationRoles"]} for (found,) in listed]

    async def give(self, *roles: str) -> None:
        """Make these the roles that administrators give the user."""
        answer = await self.template.client.put(
            f"{self.path}/users/{self.user}/roles", json={"organizationRoleIds": roles}
        )
        assert answer.status_code == 204, answer.text

    async def join(self) -> None:
        """Make the user a member, as an administrator does."""
        answer = await self.template.client.post(f"{self.path}/users", json={"userIds": [self.user]})
        assert answer.status_code == 201, answer.text

    async def leave(self) -> None:
        """Remove the user, as an administrator does."""
        answer = await self.template.client.delete(f"{self.path}/users/{self.user}")
        assert answer.status_code == 204, answer.text


def group_of(connector: str, group: str, roles: Sequence[str]) -> dict[str, Any]:
    return {"ssoConnectorId": connector, "group": group, "organizationRoleIds": list(roles)}


@pytest_asyncio.fixture
async def organization(template: Template) -> Organization:
    user = (await template.management.created("users"))["id"]
    return Organization(template, (await template.organization())["id"], user)


async def roles_of(template: Template, count: int, *, permissions: Sequence[str] = ()) -> list[str]:
    return [(await template.role(organizationScopeIds=permissions))["id"] for _ in range(count)]


async def test_a_group_gives_its_roles_and_a_lost_group_takes_them_away(
    template: Template, tables: TemplateTables, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    """What the groups changed is told before the sign-in counts as applied; the member goes with the last group."""
    permission = await template.permission()
    [support], [lead] = await roles_of(template, 1, permissions=[permission["id"]]), await roles_of(template, 1)
    connector, user = await sign_ins.connector(), organization.user
    await organization.groups(connector, support=[support], leads=[lead, support])
    await sign_ins.sign_in(user, connector, "strangers")
    assert await organization.origins() is None

    first = await sign_ins.sign_in(user, connector, "support", "leads")
    assert await organization.origins() == {support: [connector], lead: [connector]}
    await sign_ins.sign_in(user, connector, "leads")
    assert await organization.origins() == {support: [connector], lead: [connector]}
    await organization.groups(connector, support=[support], leads=[lead])
    await sign_ins.sign_in(user, connector, "leads")
    assert await organization.origins() == {lead: [connector]}
    last = await sign_ins.sign_in(user, connector)
    assert await organization.origins() is None

    told = [
        (event.type, state)
        for event in await tables.events(">")
        if (state := _told(event.type, event.data, organization.id, user)) is not None
    ]
    one, both = [permission["name"]], sorted([support, lead])
    assert [each for each in told if each[0] != "applied.updated"] == [
        ("member.created", both),
        ("member-permissions.updated", one),
        ("member.updated", [lead]),
        ("member-permissions.updated", []),
        ("member.deleted", []),
    ]
    # Everything before the first revision that covers a sign-in is what the sign-in did.
    revisions = [state for kind, state in told if kind == "applied.updated"]
    assert revisions == sorted(revisions)
    assert told.index(("member-permissions.updated", one)) < told.index(("applied.updated", first))
    assert told.index(("member.deleted", [])) < told.index(("applied.updated", last))


def _told(kind: str, data: msgspec.Raw, organization_id: str, user: str) -> Any:
    """Return what an event says of this member, or which revision it says is applied; None for other events."""
    if kind.startswith("applied."):
        return msgspec.json.decode(data, type=AppliedState).revision
    state = msgspec.json.decode(data)
    if (state.get("organizationId"), state.get("memberId")) != (organization_id, user):
        return None
    if kind.startswith("member."):
        return list(msgspec.json.decode(data, type=MemberState).role_ids)
    return [each["name"] for each in state.get("permissions", ())]


async def test_a_role_that_two_give_survives_the_loss_of_either(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    one, other = await roles_of(template, 2)
    first, second = await sign_ins.connector(), await sign_ins.connector()
    await organization.jit("groups", groups=[group_of(first, "a", [one]), group_of(second, "a", [one])])
    await sign_ins.sign_in(organization.user, first, "a")
    await sign_ins.sign_in(organization.user, second, "a")
    await organization.give(one, other)
    assert await organization.origins() == {one: sorted([first, second, "manual"]), other: ["manual"]}
    assert await organization.listed_origins() == [await organization.origins()] * 3

    await sign_ins.sign_in(organization.user, first)
    assert await organization.origins() == {one: sorted([second, "manual"]), other: ["manual"]}
    await organization.give(other)
    assert await organization.origins() == {one: [second], other: ["manual"]}
    refused = await template.client.delete(f"{organization.path}/users/{organization.user}/roles/{one}")
    assert refused.status_code == 404
    await organization.give(one)
    await sign_ins.sign_in(organization.user, second)
    assert await organization.origins() == {one: ["manual"]}


async def test_two_identities_with_one_connector_give_what_both_say(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    one, other = await roles_of(template, 2)
    connector = await sign_ins.connector()
    await organization.groups(connector, a=[one], b=[other])
    identities = [unique("identity") for _ in range(2)]
    await sign_ins.sign_in(organization.user, connector, "a", identity=identities[0])
    await sign_ins.sign_in(organization.user, connector, "b", identity=identities[1])
    assert await organization.origins() == {one: [connector], other: [connector]}
    await sign_ins.end_identity(identities[0])
    assert await organization.origins() == {other: [connector]}


async def test_domains_and_connectors_let_people_join_once(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    """Joining gives its roles once; a member who was removed does not return, unless a group says so."""
    given, mapped = await roles_of(template, 2)
    connector, user = await sign_ins.connector(), organization.user
    await organization.jit("roles", organizationRoleIds=[given])
    await organization.jit("email-domains", emailDomains=["Example.COM"])
    await sign_ins.sign_in(user, connector, domain="sub.example.com")
    assert await organization.origins() is None
    await sign_ins.sign_in(user, connector, domain="example.com")
    assert await organization.origins() == {given: ["jit"]}
    await organization.give()
    await sign_ins.sign_in(user, connector, domain="example.com")
    assert await organization.origins() == {}

    await organization.leave()
    await organization.jit("sso-connectors", ssoConnectorIds=[connector])
    await sign_ins.sign_in(user, connector, domain="example.com")
    assert await organization.origins() is None
    await organization.groups(connector, a=[mapped])
    await sign_ins.sign_in(user, connector, "a", domain="example.com")
    assert await organization.origins() == {given: ["jit"], mapped: [connector]}
    rejoined = await template.database.fetchval(
        "SELECT rejoined FROM members WHERE organization_id = $1 AND member_id = $2", organization.id, user
    )
    assert rejoined is True
    await sign_ins.sign_in(user, connector, domain="example.com")
    assert await organization.origins() == {given: ["jit"]}


async def test_a_member_for_groups_alone_leaves_with_them_and_one_for_more_stays(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    given, mapped = await roles_of(template, 2)
    connector, user = await sign_ins.connector(), organization.user
    await organization.jit("roles", organizationRoleIds=[given])
    await organization.groups(connector, a=[mapped])
    await sign_ins.sign_in(user, connector, "a")
    assert await organization.origins() == {given: ["jit"], mapped: [connector]}
    await sign_ins.sign_in(user, connector)
    assert await organization.origins() is None
    await sign_ins.sign_in(user, connector, "a")
    await organization.join()
    await sign_ins.sign_in(user, connector)
    assert await organization.origins() == {given: ["jit"]}


async def test_a_group_named_like_an_administrators_role_gives_nothing_by_itself(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    role = await template.role()
    connector, other = await sign_ins.connector(), await sign_ins.connector()
    await organization.groups(connector, support=[role["id"]])
    await sign_ins.sign_in(organization.user, other, "Administrator", "all", role["name"], role["id"], "support")
    await sign_ins.sign_in(organization.user, connector, "Support", "support ", role["name"])
    assert await organization.origins() is None


async def test_what_a_mapping_names_may_be_deleted(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    gone, kept = await roles_of(template, 2)
    connector, user = await sign_ins.connector(), organization.user
    await organization.groups(connector, a=[gone, kept])
    await organization.jit("roles", organizationRoleIds=[gone])
    await template.client.delete(f"/api/organization-roles/{gone}")
    await sign_ins.sign_in(user, connector, "a")
    assert await organization.origins() == {kept: [connector]}
    listed = (await template.client.get(f"{organization.path}/jit/groups")).json()
    assert [[role["id"] for role in each["organizationRoles"]] for each in listed] == [[kept]]

    await sign_ins.delete_connector(connector)
    assert await organization.origins() is None
    assert (await template.client.get(f"{organization.path}/jit/groups")).json() == []

    second = await sign_ins.connector()
    await organization.groups(second, a=[kept])
    await template.client.delete(organization.path)
    await sign_ins.sign_in(user, second, "a")
    assert (await template.client.get(f"/api/users/{user}/organizations")).json() == []


@pytest.mark.heavy
async def test_a_sign_in_that_is_read_again_changes_nothing(
    template: Template, tables: TemplateTables, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    """After a change of the mapping too: what was applied once is applied again only by another sign-in."""
    one, other = await roles_of(template, 2)
    connector, user = await sign_ins.connector(), organization.user
    await organization.groups(connector, a=[one])
    await sign_ins.sign_in(user, connector, "a")
    await organization.groups(connector, a=[other])
    before = await tables.events("member", organization.id, user)
    await tables.database.execute(
        "UPDATE projection_position SET stream = '', sequence = 0, revision = -1 WHERE tenant_id = $1",
        template.tenant_id,
    )
    await template.management.created("users")  # wakes the reader
    await template.caught_up()
    assert await organization.origins() == {one: [connector]}
    assert await tables.events("member", organization.id, user) == before


async def test_what_joining_gives_is_configured_by_organization(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    client, path = template.client, f"{organization.path}/jit"
    role, connector = await template.role(), await sign_ins.connector("Acme")
    machines = await template.role(type="MachineToMachine")
    domain = {"tenantId": template.tenant_id, "organizationId": organization.id, "emailDomain": "xn--bcher-kva.example"}
    added = await client.post(f"{path}/email-domains", json={"emailDomain": "Bücher.example"})
    assert (added.status_code, added.json()) == (201, domain)
    again = await client.post(f"{path}/email-domains", json={"emailDomain": "XN--BCHER-KVA.example"})
    assert refusal(again) == (422, "entity.unique_integrity_violation")
    assert issues(await client.post(f"{path}/email-domains", json={"emailDomain": "a@b"})) == {"emailDomain"}
    many = await client.put(f"{path}/email-domains", json={"emailDomains": ["id.test", "a b"]})
    assert issues(many) == {"emailDomains[1]"}
    assert (await client.get(f"{path}/email-domains")).json() == [domain]
    assert (await client.delete(f"{path}/email-domains/bücher.example")).status_code == 204
    assert (await client.delete(f"{path}/email-domains/bücher.example")).status_code == 404

    one = group_of(connector, "support", [role["id"], role["id"]])
    made = await client.post(f"{path}/groups", json=one)
    assert made.json() == {**one, "id": made.json()["id"], "organizationRoleIds": [role["id"]]}
    assert refusal(await client.post(f"{path}/groups", json=one)) == (422, "entity.unique_integrity_violation")
    kept = await client.put(f"{path}/groups", json={"groups": [one, group_of(connector, "Support", [role["id"]])]})
    assert kept.status_code == 204
    listed = (await client.get(f"{path}/groups")).json()
    assert [(each["group"], each["organizationRoles"]) for each in listed] == [
        (group, [{"id": role["id"], "name": role["name"]}]) for group in ("Support", "support")
    ]
    assert listed[1]["id"] == made.json()["id"]
    assert issues(await client.put(f"{path}/groups", json={"groups": [one, one]})) == {"groups[1].group"}

    unknown, wrong = (422, "entity.relation_foreign_key_not_found"), (422, "entity.db_constraint_violated")
    for at, body, expected in (
        ("roles", {"organizationRoleIds": ["none"]}, unknown),
        ("roles", {"organizationRoleIds": [machines["id"]]}, wrong),
        ("sso-connectors", {"ssoConnectorIds": ["none"]}, unknown),
        ("groups", group_of("none", "a", [role["id"]]), unknown),
        ("groups", group_of(connector, "a", [role["id"], "none"]), unknown),
        ("groups", group_of(connector, "a", [machines["id"]]), wrong),
    ):
        assert refusal(await client.post(f"{path}/{at}", json=body)) == expected
        members = {"groups": [body]} if at == "groups" else body
        assert refusal(await client.put(f"{path}/{at}", json=members)) == expected
        assert refusal(await client.delete(f"{path}/{at}/none")) == (404, "entity.not_found")
    assert (await client.post(f"{path}/sso-connectors", json={"ssoConnectorIds": [connector]})).status_code == 201
    assert (await client.get(f"{path}/sso-connectors")).json() == [
        {"tenantId": template.tenant_id, "id": connector, "connectorName": "Acme"}
    ]
    assert (await client.post(f"{path}/roles", json={"organizationRoleIds": [role["id"]]})).status_code == 201
    assert [each["id"] for each in (await client.get(f"{path}/roles")).json()] == [role["id"]]
    elsewhere = await client.post("/api/organizations/none/jit/roles", json={"organizationRoleIds": [role["id"]]})
    assert refusal(elsewhere) == (404, "entity.not_exists_with_id")


@pytest.mark.heavy
async def test_a_sign_in_whose_transaction_is_killed_is_applied_whole_afterwards(
    template: Template, tables: TemplateTables, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    """The connection of the projection dies after it has joined the member, while it waits for the member's role."""
    [role] = await roles_of(template, 1)
    connector, user = await sign_ins.connector(), organization.user
    await organization.groups(connector, a=[role])
    holding = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    try:
        async with holding.transaction():
            await holding.fetch(
                "SELECT FROM roles WHERE tenant_id = $1 AND id = $2 FOR UPDATE", template.tenant_id, role
            )
            signing_in = asyncio.create_task(sign_ins.sign_in(user, connector, "a"))
            await until_waited_for(holding)
            await holding.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_locks "
                "WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            assert await organization.origins() is None
        revision = await signing_in
    finally:
        await holding.close()
    assert await organization.origins() == {role: [connector]}
    events = await tables.events(">")
    told = [msgspec.json.decode(each.data, type=AppliedState) for each in events if each.type == "applied.updated"]
    assert [each.revision for each in told].count(revision) == 1
    joined = await tables.events("member", organization.id, user)
    assert [each.type for each in joined] == ["member.created"]


async def test_a_sign_in_gives_what_200_groups_say_in_many_organizations(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    connector, user = await sign_ins.connector(), organization.user
    roles = await roles_of(template, 3)
    names = [f"group-{number}" for number in range(200)]
    others = [Organization(template, (await template.organization())["id"], user) for _ in range(3)]
    for place, each in enumerate(others):
        await each.groups(connector, **{name: [roles[place]] for name in names[place::4]})
    await sign_ins.sign_in(user, connector, *names)
    assert [await each.origins() for each in others] == [{role: [connector]} for role in roles]
    await sign_ins.sign_in(user, connector, *names[1::4])
    assert [await each.origins() for each in others] == [None, {roles[1]: [connector]}, None]


@pytest.mark.heavy
async def test_sign_ins_and_administrators_at_once_lose_nothing(
    template: Template, tables: TemplateTables, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    """Whatever the order, the member ends with what the last sign-in said and what the last administrator gave."""
    mapped, manual, both = await roles_of(template, 3)
    connector, user = await sign_ins.connector(), organization.user
    await organization.groups(connector, a=[mapped, both])
    await organization.join()

    async def give() -> None:
        for number in range(8):
            await organization.give(*([manual, both] if number % 2 else []))

    async def sign_in() -> None:
        for number in range(8):
            await sign_ins.sign_in(user, connector, *(["a"] if number % 2 else []))

    await asyncio.gather(give(), sign_in())
    assert await organization.origins() == {
        mapped: [connector],
        manual: ["manual"],
        both: sorted([connector, "manual"]),
    }
    last = (await tables.events("member", organization.id, user))[-1]
    assert msgspec.json.decode(last.data, type=MemberState).role_ids == tuple(sorted([mapped, manual, both]))


@pytest.mark.heavy
async def test_many_sign_ins_are_applied_and_the_audit_trail_says_what_each_did(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    [role] = await roles_of(template, 1)
    connector = await sign_ins.connector()
    await organization.groups(connector, a=[role])
    users = [(await template.management.created("users"))["id"] for _ in range(60)]
    states = [ProviderGroupsState(id=f"{user}i", user_id=user, connector_id=connector, groups=("a",)) for user in users]
    await sign_ins.sign_in_all(states)
    assert {user: await organization.origins(user) for user in users} == {user: {role: [connector]} for user in users}
    await sign_ins.sign_in(users[0], connector, "a", identity=states[0].id)  # changes nothing
    await sign_ins.end_identity(states[1].id)  # is no sign-in
    assert await organization.origins(users[1]) is None
    await sign_ins.sign_in(users[0], connector, identity=states[0].id)

    expected = {(user, (f"member/{organization.id}/{user}",)) for user in users}
    async with asyncio.timeout(WAIT_S):
        while len(told := await _told_in_the_trail(template, users)) <= len(users):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.05)
    assert (set(told), len(told)) == (expected, len(users) + 1)


async def _told_in_the_trail(template: Template, users: Sequence[str]) -> list[tuple[str | None, tuple[str, ...]]]:
    """Return the users and aggregates of the entries about sign-ins of these users."""
    bus = await nats.connect(template.management.settings.nats_url, inbox_prefix="_INBOX_management")
    try:
        entries = await entries_on_the_bus(bus.jetstream(), audit_subject("template", template.tenant_id))
    finally:
        await bus.close()
    once = {entry.id: entry for entry in entries if entry.key == "template.provider-groups.apply"}
    return [(entry.user_id, entry.aggregates) for entry in once.values() if entry.user_id in users]


async def test_a_sign_in_may_arrive_before_its_user(
    template: Template, sign_ins: ProviderSignIns, organization: Organization
) -> None:
    """In a stream that is read from its beginning, a user's last change may come behind its sign-in."""
    [role] = await roles_of(template, 1)
    connector, user = await sign_ins.connector(), organization.user
    await organization.groups(connector, a=[role])
    await template.caught_up()
    await template.database.execute("DELETE FROM known_users WHERE id = $1", user)
    await sign_ins.sign_in(user, connector, "a")
    await template.management.client.patch(f"/api/users/{user}", json={"name": "Ada"})
    await template.caught_up()
    assert await organization.origins() == {role: [connector]}
    await template.management.client.delete(f"/api/users/{user}")
    await template.caught_up()
    assert not await template.database.fetchval("SELECT count(*) FROM known_identities WHERE user_id = $1", user)
