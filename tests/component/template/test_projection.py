"""Projecting management-service's events into template-service's tables: in parts, twice, by two replicas at once."""

import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes
from identity_common.progress import Progress
from identity_common.stores.database import create_database_engine
from identity_common.wire.events import (
    ApplicationState,
    ResourceState,
    ScopeState,
    UserState,
    Watermark,
    event_subject,
    watermark_subject,
)
from stead.event_types import CloudEvent
from template_service.known.store import Position
from template_service.management_events import ManagementEvents, _parts
from tests.support.databases import statements
from tests.support.management_api import unique
from tests.support.template_api import Template


class Replica:
    """A projection that is given its batches and advances as ``_apply`` does."""

    def __init__(self, engine: AsyncEngine, tenant_id: str) -> None:
        changes = Changes(engine, source="template", tenant_id=tenant_id, published=Progress(), may_return=("member",))
        self.tenant_id = tenant_id
        self.projection = ManagementEvents(
            Bus("nats://127.0.0.1:9", service="template"), engine, changes, tenant_id=tenant_id
        )
        self.changes = changes
        self.sequence = 0

    async def take(self, stream: str, messages: Sequence[StreamMessage], *, caught_up: bool = False) -> Position:
        for part in _parts(Batch(list(messages), caught_up)):
            position = await self.projection._apply_part(part, StreamPosition(stream, self.sequence))
            if position.stream != stream or position.sequence < self.sequence:
                self.sequence = position.sequence if position.stream == stream else 0
                return position
            self.sequence = part.messages[-1].sequence if part.messages else self.sequence
        return position


class World:
    """A tenant with a stream that the test writes."""

    def __init__(self, engine: AsyncEngine, database: asyncpg.Connection) -> None:
        self.tenant_id = unique("t")
        self.database = database
        self.stream: list[StreamMessage] = []
        self.revision = 0
        self.replicas = [Replica(engine, self.tenant_id) for _ in range(2)]

    def publish(self, kind: str, state: Any, *ids: str) -> None:
        """Append an event to the stream; sequences have gaps, as a reader of some subjects sees them."""
        self._append(event_subject("management", self.tenant_id, kind, *(ids or (state.id,))), state)

    def publish_watermark(self, revision: int) -> None:
        self._append(watermark_subject("management", self.tenant_id), Watermark(revision))

    def _append(self, subject: str, state: Any) -> None:
        self.revision += 1
        sequence = (self.stream[-1].sequence if self.stream else 0) + random.randint(1, 3)
        event = CloudEvent(
            id=f"{self.tenant_id}:management:{self.revision}",
            source="/management",
            type="some.updated",
            subject="some",
            time="2026-01-01T00:00:00.000+00:00",
            tenantid=self.tenant_id,
            revision=self.revision,
            data=msgspec.Raw(msgspec.json.encode(state)),
        )
        self.stream.append(StreamMessage(subject, sequence, event))

    def behind(self, sequence: int) -> list[StreamMessage]:
        return [each for each in self.stream if each.sequence > sequence]

    async def known(self, table: str, column: str = "name") -> dict[str, Any]:
        query = f"SELECT id, {column} FROM {table} WHERE tenant_id = $1"
        return {row[0]: row[1] for row in await self.database.fetch(query, self.tenant_id)}

    async def requested(self) -> list[tuple[str, str | None, str | None]]:
        query = "SELECT cause, role_id, organization_id FROM fan_outs WHERE tenant_id = $1 ORDER BY id"
        return [(row[0], row[1], row[2]) for row in await self.database.fetch(query, self.tenant_id)]

    async def role(self, *scope_ids: str) -> str:
        role = new_id()
        statement = "INSERT INTO roles (tenant_id, id, name, type, version) VALUES ($1, $2, $2, 'User', 1)"
        await self.database.execute(statement, self.tenant_id, role)
        statement = "INSERT INTO role_scopes (tenant_id, role_id, scope_id) SELECT $1, $2, unnest($3::text[])"
        await self.database.execute(statement, self.tenant_id, role, scope_ids)
        return role


@pytest_asyncio.fixture
async def world(template: Template) -> AsyncIterator[World]:
    engine = create_database_engine(template.settings.database_url, service="tests", pool_size=4)
    world = World(engine, template.database)
    await world.replicas[0].changes.prepare()
    yield world
    await engine.dispose()


@pytest.mark.parametrize("seed", range(8))
async def test_the_last_state_of_each_user_holds_whatever_the_batches_and_replicas(world: World, seed: int) -> None:
    """Two replicas read one stream in batches of any size, interleaved; each message is applied once, in order."""
    chance = random.Random(seed)
    expected: dict[str, str | None] = {}
    for number in range(150):
        user = f"user{chance.randint(0, 20)}"
        if chance.random() < 0.25:
            world.publish("user", UserState(id=user, deleted=True))
            expected.pop(user, None)
        else:
            world.publish("user", UserState(id=user, name=f"name {number}"))
            expected[user] = f"name {number}"
        if chance.random() < 0.2:
            world.publish_watermark(number)
    world.publish_watermark(150)
    last = world.stream[-1].sequence
    for replica in world.replicas:
        await replica.take("first", [])
    while any(replica.sequence < last for replica in world.replicas):
        replica = chance.choice(world.replicas)
        batch = world.behind(replica.sequence)[: chance.randint(1, 40)]
        if not batch:
            continue
        position = await replica.take("first", batch)
        assert position.sequence >= replica.sequence
        if chance.random() < 0.1:  # a redelivered message changes nothing
            replica.sequence = chance.choice([0, replica.sequence // 2])
    assert await world.known("known_users") == expected
    position = await world.replicas[0].take("first", [], caught_up=True)
    assert position == Position("first", last, revision=150, complete=True, read_revision=150)


async def test_a_part_beyond_the_stored_position_is_not_applied(world: World) -> None:
    """After the database went back (a restore, a failover), no replica skips the events that it lost."""
    first, second = world.replicas
    for number in range(10):
        world.publish("user", UserState(id=f"user{number}", name="n"))
    await first.take("first", world.stream[:5])
    second.sequence = world.stream[7].sequence
    position = await second.take("first", world.stream[8:])
    assert position.sequence == world.stream[4].sequence == second.sequence
    assert len(await world.known("known_users")) == 5
    await second.take("first", world.behind(second.sequence))
    assert len(await world.known("known_users")) == 10


async def test_a_recreated_stream_is_read_from_its_beginning_by_either_replica(world: World) -> None:
    first, second = world.replicas
    for number in range(6):
        world.publish("user", UserState(id=f"user{number}", name="old"))
    world.publish_watermark(6)
    for replica in world.replicas:
        await replica.take("first", world.stream, caught_up=True)
    world.stream.clear()
    for number in range(4):
        world.publish("user", UserState(id=f"user{number}", name="new"))
    world.publish("user", UserState(id="user5", deleted=True))
    world.publish_watermark(12)

    stale = await first.take("again", world.stream[:1])  # still reads from the old position
    assert (stale.stream, first.sequence) == ("first", 0)
    await first.take("again", world.stream[:3])
    left = await second.take("first", world.stream[3:])  # has not noticed yet
    assert (left.stream, second.sequence) == ("again", 0)
    await second.take("again", world.stream)
    await first.take("again", world.behind(first.sequence))
    known = await world.known("known_users")
    assert known == {f"user{number}": "new" for number in range(4)} | {"user4": "old"}
    position = await first.take("again", [], caught_up=True)
    assert (position.revision, position.complete) == (12, True)


async def test_a_batch_of_1000_users_takes_a_handful_of_statements(world: World, template: Template) -> None:
    for number in range(1000):
        world.publish("user", UserState(id=f"user{number}", name="n"))
        world.publish("application", ApplicationState(id=f"application{number}", name="a"))
        world.publish("resource", ResourceState(id=f"resource{number}", indicator=f"https://{number}"))
        scope = ScopeState(id=f"scope{number}", resource_id=f"resource{number}", name="s")
        world.publish("scope", scope, scope.resource_id, scope.id)
    with statements(template.settings.database_url) as sent:
        await world.replicas[0].take("first", world.stream)
    assert len(sent) < 20, sent
    assert len(await world.known("known_users")) == len(await world.known("known_scopes")) == 1000


async def test_many_deletions_are_split_into_several_transactions(world: World) -> None:
    """Each deleted user may be a member of very many organizations."""
    for number in range(100):
        world.publish("user", UserState(id=f"user{number}", deleted=True))
    parts = list(_parts(Batch(world.stream, caught_up=True)))
    assert [len(part.messages) for part in parts] == [20] * 5 + [0]
    assert [part.caught_up for part in parts] == [False] * 5 + [True]
    assert [each.sequence for part in parts for each in part.messages] == [each.sequence for each in world.stream]


async def test_a_resource_that_becomes_known_after_its_scope_or_changes_its_indicator_reaches_the_holders(
    world: World,
) -> None:
    replica = world.replicas[0]
    world.publish("scope", ScopeState(id="s1", resource_id="r1", name="read"), "r1", "s1")
    await replica.take("first", world.stream)
    role = await world.role("s1")
    assert await world.requested() == []
    world.publish("resource", ResourceState(id="r1", name="API", indicator="https://r1"))
    await replica.take("first", world.behind(replica.sequence))
    assert await world.requested() == [("permission-changed", role, None)]
    world.publish("resource", ResourceState(id="r1", name="renamed", indicator="https://r1"))
    await replica.take("first", world.behind(replica.sequence))
    assert len(await world.requested()) == 1
    world.publish("resource", ResourceState(id="r1", name="renamed", indicator="https://r1.example.com"))
    await replica.take("first", world.behind(replica.sequence))
    assert len(await world.requested()) == 2
    assert await world.known("known_resources", "indicator") == {"r1": "https://r1.example.com"}


async def test_a_repeated_or_unknown_deletion_changes_nothing(world: World) -> None:
    replica = world.replicas[0]
    for _ in range(2):
        world.publish("user", UserState(id="unknown", deleted=True))
        world.publish("application", ApplicationState(id="nothing", deleted=True))
        world.publish("resource", ResourceState(id="nowhere", deleted=True))
        world.publish("scope", ScopeState(id="none", deleted=True), "nowhere", "none")
    await replica.take("first", world.stream)
    assert await world.requested() == []
    query = "SELECT revision FROM source_revision WHERE tenant_id = $1"
    assert await world.database.fetchval(query, world.tenant_id) == 0


async def test_a_repeated_older_state_changes_nothing(world: World) -> None:
    """A relay that dies before it deletes what it published repeats it, later under new sequences."""
    replica = world.replicas[0]
    scope = ScopeState(id="s1", resource_id="r1", name="old")
    for state in (scope, msgspec.structs.replace(scope, name="new")):
        world.publish("user", UserState(id="u1", is_suspended=state.name == "new"))
        world.publish("application", ApplicationState(id="a1", name=state.name))
        world.publish("resource", ResourceState(id="r1", indicator=f"https://{state.name}"))
        world.publish("scope", state, "r1", "s1")
    await replica.take("first", world.stream)
    await world.role("s1")
    last = world.stream[-1].sequence
    for number, repeated in enumerate(world.stream[:], start=1):
        again = repeated._replace(sequence=last + number)
        world.stream.append(again)
        await replica.take("first", [again])
        assert await world.known("known_users", "is_suspended") == {"u1": True}
        assert await world.known("known_applications") == {"a1": "new"}
        assert await world.known("known_resources", "indicator") == {"r1": "https://new"}
        assert await world.known("known_scopes") == {"s1": "new"}
    assert await world.requested() == []
    world.publish("scope", msgspec.structs.replace(scope, name="newest"), "r1", "s1")
    await replica.take("first", world.behind(replica.sequence))
    assert await world.known("known_scopes") == {"s1": "newest"}


async def test_a_watermark_counts_once_the_end_of_the_stream_was_read(world: World) -> None:
    """The stream keeps the last state of an aggregate only, which may follow a watermark that includes an older one."""
    first, second = world.replicas
    world.publish("user", UserState(id="u1", name="n"))
    world.publish_watermark(7)
    world.publish("user", UserState(id="u2", name="changed again"))
    position = await first.take("first", world.stream[:2])
    assert (position.revision, position.read_revision, position.complete) == (-1, 7, False)
    # a slower replica was at the end of the stream once, which says nothing about the current end
    position = await second.take("first", world.stream[:1], caught_up=True)
    assert (position.revision, position.complete) == (-1, False)
    position = await first.take("first", world.stream[2:], caught_up=True)
    assert (position.revision, position.complete) == (7, True)
    world.publish_watermark(8)
    world.publish("user", UserState(id="u3", name="n"))
    await first.take("first", world.stream[3:])
    position = await first.take("first", [], caught_up=True)
    assert (position.revision, position.read_revision) == (8, 8)
