"""PostgreSQL is the source of truth: template-service can republish its whole state, deletions included."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from all_in_one.embedded import EmbeddedServers
from identity_common.outbox.republication import request_republication
from stead.event_types import MemberPermissionsState
from stead.events._identity_events import STATES
from template_service.settings import Settings
from tests.support.forked_service import ForkedService
from tests.support.issuer import Issuer
from tests.support.management_api import Management, unique
from tests.support.template_api import Template
from tests.support.template_tables import TemplateTables, fold
from tests.support.waiting import WAIT_S


@pytest.fixture(scope="module")
def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def own_servers(own_directory: Path) -> Iterator[EmbeddedServers]:
    """Servers that no other tests use, because their streams are deleted."""
    servers = EmbeddedServers(own_directory, sync=False)
    try:
        yield servers
    finally:
        servers.delete()


@pytest_asyncio.fixture(scope="module")
async def own_template(own_servers: EmbeddedServers, issuer: Issuer) -> AsyncIterator[Template]:
    addresses = await asyncio.to_thread(own_servers.start)
    async with Management(addresses, issuer) as management, Template(management) as template:
        yield template


@pytest_asyncio.fixture(scope="module")
async def tables(own_template: Template) -> AsyncIterator[TemplateTables]:
    addresses = own_template.management.addresses
    async with TemplateTables(
        own_template.settings.database_url, addresses.subscriber_nats_url, own_template.tenant_id
    ) as tables:
        yield tables


async def last_states(tables: TemplateTables) -> dict[str, Any]:
    """Return the state in the last event of every aggregate; without the causes of permission changes."""
    said: dict[str, Any] = {}
    for name, event in (await tables.last_events()).items():
        state = msgspec.json.decode(event.data, type=STATES[name.partition(".")[0]])
        if isinstance(state, MemberPermissionsState):
            state = msgspec.structs.replace(state, cause="republished", added=(), removed=())
        said[name] = state
    return said


async def make_everything(tables: TemplateTables) -> None:
    """Create one of each aggregate, with deletions, removals, and a member that left and returned."""
    first, second = await tables.permission(unique("a")), await tables.permission(unique("b"))
    kept, gone = await tables.permission(unique("kept")), await tables.permission(unique("gone"))
    role, other = await tables.role(first, kept), await tables.role(second, gone)
    organization, dissolved = await tables.organization(), await tables.organization()
    members = await tables.members(organization, 5, role, other)
    await tables.members(dissolved, 3, other)
    await tables.settled()
    await tables.remove(organization, *members[:2])
    await tables.settled()
    await tables.members(organization, 1, role, ids=members[:1], rejoined=True)
    await tables.delete_permission(gone)
    await tables.delete_organization(dissolved)
    await tables.settled()
    deleted_role = await tables.role(first)
    await tables.members(organization, 2, deleted_role)
    await tables.settled()
    await tables.delete_role(deleted_role)
    await tables.settled()


async def republished(tables: TemplateTables, timeout_s: float = 20) -> None:
    """Wait until the requested republication is done and published."""
    query = "SELECT EXISTS (SELECT FROM republication WHERE tenant_id = $1)"
    async with asyncio.timeout(timeout_s):
        while await tables.database.fetchval(query, tables.tenant_id):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.02)
    await tables.settled()


async def streams_are_back(template: Template) -> bool:
    """Return whether the streams exist again and carry the template's watermark."""
    try:
        return await template.event("revision", "template") is not None
    except (NoRespondersError, NatsTimeoutError):
        return False


@pytest.mark.heavy
async def test_lost_streams_are_rebuilt_deletions_included(
    own_servers: EmbeddedServers, own_directory: Path, own_template: Template, tables: TemplateTables
) -> None:
    await make_everything(tables)
    before = await last_states(tables)
    assert {name.partition(".")[0] for name in before} == STATES.keys()
    versions = await tables.published_versions()

    await asyncio.to_thread(own_servers.nats.kill)
    shutil.rmtree(own_directory / "nats" / "jetstream")
    await asyncio.to_thread(own_servers.nats.start)
    async with asyncio.timeout(WAIT_S):
        while not await streams_are_back(own_template):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.05)
    await republished(tables)

    after = await last_states(tables)
    assert {name: (before.get(name), state) for name, state in after.items() if before.get(name) != state} == {}
    assert {name for name in before if name not in after} == set()
    told = await tables.told()
    assert {state.cause for state in told} == {"republished"}
    assert {(state.organization_id, state.member_id): state.version for state in told} == versions
    assert {key: held for key, held in fold(told).items() if held} == await tables.held()
    deleted = {name for name, state in after.items() if getattr(state, "deleted", False)}
    assert {name.partition(".")[0] for name in deleted} == {"member", "organization", "permission", "role"}
    members = await tables.database.fetch(
        "SELECT organization_id, member_id FROM members WHERE tenant_id = $1", tables.tenant_id
    )
    assert {f"member.{row[0]}.{row[1]}" for row in members} == {
        name for name in after if name.startswith("member.") and name not in deleted
    }


@pytest.mark.heavy
async def test_the_projection_of_management_service_is_rebuilt_with_the_streams(
    own_servers: EmbeddedServers, own_directory: Path, own_template: Template, tables: TemplateTables
) -> None:
    management = own_template.management
    made = [(await management.created("users", name="before"))["id"] for _ in range(6)]
    await management.client.delete(f"/api/users/{made[0]}")
    await own_template.caught_up()
    await asyncio.to_thread(own_servers.nats.kill)
    await management.client.delete(f"/api/users/{made[1]}")  # not consumed before the stream is lost
    made.append((await management.created("users", name="during"))["id"])
    shutil.rmtree(own_directory / "nats" / "jetstream")
    await asyncio.to_thread(own_servers.nats.start)
    made.append((await management.created("users", name="after"))["id"])
    async with asyncio.timeout(WAIT_S):
        while await known_users(own_template) != set(made[2:]):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.05)
    await management.client.delete(f"/api/users/{made[2]}")
    async with asyncio.timeout(WAIT_S):
        while await known_users(own_template) != set(made[3:]):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.05)
        while not await streams_are_back(own_template):  # noqa: ASYNC110 - or the relay rebuilds them in the next test
            await asyncio.sleep(0.05)
    await republished(tables)


async def known_users(template: Template) -> set[str]:
    query = "SELECT id FROM known_users WHERE tenant_id = $1"
    return {row[0] for row in await template.database.fetch(query, template.tenant_id)}


@pytest.mark.heavy
async def test_versions_continue_after_a_republication(tables: TemplateTables) -> None:
    permission = await tables.permission(unique("p"))
    role, organization = await tables.role(permission), await tables.organization()
    (member,) = await tables.members(organization, 1, role)
    await tables.settled()
    await republish(tables)
    await tables.revoke(role, permission)
    await tables.settled()
    told = [state for state in await tables.told(organization) if state.member_id == member]
    assert [(state.version, state.cause) for state in told] == [
        (1, "assignment"),
        (1, "republished"),
        (2, "role-changed"),
    ]
    assert fold(told) == {}


async def republish(tables: TemplateTables) -> None:
    async with tables.transaction() as transaction:
        await request_republication(transaction, tables.tenant_id)
    await republished(tables)


@pytest.mark.heavy
async def test_the_command_asks_the_running_service(
    own_template: Template, tables: TemplateTables, tmp_path: Path
) -> None:
    before = await own_template.revision()
    log = tmp_path / "republish.log"
    environment = environment_of(own_template.settings)
    process = ForkedService("template_service", "republish", environment=environment, log=log)
    assert (await asyncio.to_thread(process.wait, WAIT_S), log.read_text()) == (0, "")
    await republished(tables)
    aggregates = len(await tables.last_events())
    assert await own_template.revision() == before + aggregates


def environment_of(settings: Settings) -> dict[str, str]:
    given = {
        name.upper(): ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in msgspec.structs.asdict(settings).items()
        if value is not None
    }
    return {**os.environ, **given}


@pytest.mark.heavy
async def test_a_change_during_a_republication_is_never_followed_by_an_older_state(tables: TemplateTables) -> None:
    """Members leave and return during a republication: the last event agrees with the database."""
    permission = await tables.permission(unique("p"))
    role, organization = await tables.role(permission), await tables.organization()
    members = await tables.members(organization, 300, role)
    await tables.settled()
    again = asyncio.create_task(republish_repeatedly(tables))
    for start in range(0, 300, 20):
        few = members[start : start + 20]
        await tables.remove(organization, *few)
        await tables.members(organization, 0, role, ids=few[::2])
    await again
    await tables.settled()
    told: list[MemberPermissionsState] = await tables.told(organization)
    assert fold(told) == {key: held for key, held in (await tables.held()).items() if key[0] == organization}
    there = {
        row[0]
        for row in await tables.database.fetch(
            "SELECT member_id FROM members WHERE tenant_id = $1 AND organization_id = $2",
            tables.tenant_id,
            organization,
        )
    }
    last = {event.subject.partition("/")[2]: event for event in await tables.events("member", organization, "*")}
    assert {member for member, event in last.items() if event.type != "member.deleted"} == there
    assert last.keys() == set(members)


async def republish_repeatedly(tables: TemplateTables) -> None:
    for _ in range(5):
        await republish(tables)
