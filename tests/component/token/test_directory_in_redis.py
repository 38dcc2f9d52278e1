"""The directory in a real Redis: whatever projectors do concurrently, the records are the fold of the stream."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.clock import now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.revisions import Source
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.events import UserState, Watermark, event_subject, watermark_subject
from provision import ServerAddresses
from stead.event_types import CloudEvent, MemberState, OrganizationState
from tests.support.tenant_keys import read_keys, replace_keys
from token_service.directory import InRedisDirectory, SubjectSnapshot
from token_service.directory.keys import DirectoryKeys, record_key, state_key
from token_service.directory.projection import ProjectionState, decode_state

pytestmark = pytest.mark.servers

NO_DEADLINE = float("inf")
ORGANIZATIONS = [f"org{number}" for number in range(3)]
MEMBERS = [f"user{number}" for number in range(4)]

Known = tuple[dict[str, str], dict[tuple[str, str], tuple[str, ...]]]
"""The names of existing users, and the roles of existing members of existing organizations."""


class Stream:
    """A simulated stream: users, organizations and members are created, changed and deleted, with a watermark each."""

    def __init__(self, tenant_id: str, chance: random.Random, length: int) -> None:
        self.tenant_id = tenant_id
        self.messages: list[StreamMessage] = []
        self.revisions: dict[Source, int] = {"management": 0, "template": 0}
        self._chance = chance
        for _ in range(length):
            self.change()

    def change(self) -> None:
        """Append a random change; a deleted organization is never created again."""
        deleted = self._chance.random() < 0.3
        organization_id, member_id = self._chance.choice(ORGANIZATIONS), self._chance.choice(MEMBERS)
        kind = self._chance.choice(["user", "member", "member", "organization"])
        if kind == "user":
            self.tell("management", UserState(id=member_id, deleted=deleted, name=f"as of {len(self.messages)}"))
        elif kind == "member":
            self.tell_of_member(organization_id, member_id, f"role{len(self.messages)}", deleted=deleted)
        elif self._has_ended(organization_id):
            self.tell("template", OrganizationState(id=organization_id, deleted=True))
        else:
            self.tell("template", OrganizationState(id=organization_id, deleted=deleted))

    def _has_ended(self, organization_id: str) -> bool:
        subject = event_subject("template", self.tenant_id, "organization", organization_id)
        return any(message.subject == subject and message.event.type.endswith(".deleted") for message in self.messages)

    def tell_of_member(self, organization_id: str, member_id: str, *role_ids: str, deleted: bool = False) -> None:
        state = MemberState(organization_id=organization_id, member_id=member_id, deleted=deleted, role_ids=role_ids)
        self.tell("template", state)

    def tell(self, source: Source, state: Any) -> None:
        """Append the event of a change, and the watermark."""
        kind = type(state).__name__.removesuffix("State").lower()
        ids = (state.organization_id, state.member_id) if kind == "member" else (state.id,)
        self.revisions[source] += 1
        self._append(source, event_subject(source, self.tenant_id, kind, *ids), state, deleted=state.deleted)
        self._append(source, watermark_subject(source, self.tenant_id), Watermark(self.revisions[source]))

    def _append(self, source: Source, subject: str, state: msgspec.Struct, *, deleted: bool = False) -> None:
        kind, *ids = subject.split(".")[2:]
        event = CloudEvent(
            id=f"{self.tenant_id}:{source}:{self.revisions[source]}",
            source=f"/{source}",
            type=f"{kind}.{'deleted' if deleted else 'updated'}",
            subject="/".join(ids),
            time="2026-01-01T00:00:00.000Z",
            tenantid=self.tenant_id,
            revision=self.revisions[source],
            data=msgspec.Raw(msgspec.json.encode(state)),
        )
        self.messages.append(StreamMessage(subject, len(self.messages) + 1, event))

    def batch(self, after: int, count: int) -> Batch:
        """Return the batch for a reader that has missed nothing so far."""
        messages = self.messages[after : after + count]
        return Batch(messages, caught_up=after + len(messages) == len(self.messages))

    def compacted(self, after: int, count: int, *, head: int) -> Batch:
        """Return the batch for a late reader: the stream holds only the last message of each subject.

        Args:
            after: The position that the reader has.
            count: How many messages at most.
            head: The last sequence in the stream by then.
        """
        last = {message.subject: message for message in self.messages[:head]}
        behind = sorted((each for each in last.values() if each.sequence > after), key=lambda each: each.sequence)
        return Batch(behind[:count], caught_up=len(behind) <= count)

    def last_revisions(self, up_to: Mapping[str, int]) -> dict[str, int]:
        """Return the last revision of each aggregate up to the given revision of its source."""
        found: dict[str, int] = {}
        for message in self.messages:
            event = message.event
            is_covered = event.revision <= up_to.get(event.source.removeprefix("/"), -1)
            if is_covered and not event.type.startswith("revision."):
                found[record_key(message.subject)] = event.revision
        return found

    def expected(self, sequence: int) -> Known:
        """Return the users and members that exist at a position."""
        users: dict[str, str] = {}
        members: dict[tuple[str, str], tuple[str, ...]] = {}
        organizations: set[str] = set()
        for message in self.messages[:sequence]:
            event = message.event
            kind, gone = event.type.split(".")[0], event.type.endswith(".deleted")
            if kind == "user":
                user = msgspec.json.decode(event.data, type=UserState)
                users = {**users, user.id: "" if gone else user.name or ""}
            elif kind == "member":
                member = msgspec.json.decode(event.data, type=MemberState)
                members.pop((member.organization_id, member.member_id), None)
                if not gone:
                    members[member.organization_id, member.member_id] = member.role_ids
            elif kind == "organization":
                organization = msgspec.json.decode(event.data, type=OrganizationState)
                organizations = organizations - {organization.id} if gone else organizations | {organization.id}
        living = {user_id: name for user_id, name in users.items() if name}
        return living, {ids: role_ids for ids, role_ids in members.items() if ids[0] in organizations}


class Applied(NamedTuple):
    """What is stored beside the records, and the position of the source that the tests read."""

    state: ProjectionState
    stream: str
    sequence: int
    complete: bool
    revisions: dict[str, int]


def applied(state: ProjectionState) -> Applied:
    return Applied(state, *state.position("management"), state.complete, state.revisions)


class Replicas:
    """Several projectors over one Redis; they read the changes of both sources from one stream."""

    def __init__(self, addresses: ServerAddresses, count: int = 3) -> None:
        self.tenant_id = f"t{secrets.token_hex(6)}"
        self.redis: Redis = connect_redis(addresses.token_redis_url)
        commands = RedisCommands(self.redis)
        self.halves = [
            InRedisDirectory(bus, commands, tenant_id=self.tenant_id, max_age_s=900)
            for bus in [Bus("nats://127.0.0.1:9", service="token") for _ in range(count)]
        ]
        self.administrator: Redis = Redis.from_url(addresses.admin_redis_url)

    async def apply(self, replica: int, stream: str, position: int, batch: Batch) -> Applied:
        projection = self.halves[replica].projection
        await projection.apply("template", StreamPosition("none", 0), Batch([], caught_up=True))
        return applied(await projection.apply("management", StreamPosition(stream, position), batch))

    async def state(self) -> Applied:
        stored: bytes | None = await self.redis.get(state_key(self.tenant_id))  # type: ignore[assignment]
        return applied(decode_state(stored))

    async def known(self) -> Known:
        """Return the users and members that requests find, one request each."""
        users, members = {}, {}
        for user_id in MEMBERS:
            alone = await self.halves[0].subject(user_id, at_least={}, deadline=NO_DEADLINE)
            if alone.person is not None:
                users[user_id] = alone.person.user.name or ""
            for organization_id in ORGANIZATIONS:
                question: dict[str, Any] = {"at_least": {}, "deadline": NO_DEADLINE}
                membership = await self.halves[0].membership(organization_id, user_id, **question)
                subject = await self.halves[0].subject(user_id, organization_id, **question)
                assert (subject.person, subject.membership) == (alone.person, membership)
                if membership is not None:
                    members[organization_id, user_id] = membership.member.role_ids
        return users, members

    async def revisions(self) -> dict[str, int]:
        """Return the revision of every record, tombstones included."""
        records = await self.copy()
        return {key: int(value.split(b" ")[0]) for key, value in records.items() if key != state_key(self.tenant_id)}

    async def copy(self) -> dict[str, bytes]:
        """Return everything that is stored: the content of a Redis replica that lags behind from now on."""
        return {key.decode(): value for key, value in (await read_keys(self.administrator, self.tenant_id)).items()}

    async def fall_back_to(self, copy: Mapping[str, bytes]) -> None:
        """Fail over to a Redis replica that lags behind."""
        await replace_keys(self.administrator, self.tenant_id, {key.encode(): value for key, value in copy.items()})

    async def lose_everything(self) -> None:
        await replace_keys(self.administrator, self.tenant_id)


@pytest_asyncio.fixture
async def replicas(servers: ServerAddresses) -> AsyncIterator[Replicas]:
    replicas = Replicas(servers)
    yield replicas
    await replicas.lose_everything()
    await replicas.redis.aclose()
    await replicas.administrator.aclose()


@pytest.mark.parametrize("seed", range(12))
async def test_projectors_that_overtake_each_other_agree_with_the_stream(replicas: Replicas, seed: int) -> None:
    """Late, repeated and overlapping batches, data loss and failover in Redis do not change the outcome."""
    chance = random.Random(seed)
    stream = Stream(replicas.tenant_id, chance, length=40)
    positions = [0 for _ in replicas.halves]
    losses, copies = 2, [await replicas.copy()]
    while (state := await replicas.state()).sequence < len(stream.messages):
        turn = chance.randrange(len(replicas.halves))
        after = positions[turn]
        answered = await replicas.apply(turn, "one", after, stream.batch(after, chance.randrange(0, 9)))
        assert answered.sequence >= state.sequence
        if answered.stream != "one" or answered.sequence < after:
            positions[turn] = answered.sequence  # lost or behind: continue from the stored position
        else:
            positions[turn] = chance.choice([answered.sequence, answered.sequence, after])  # sometimes it lags
        if answered.complete:
            assert await replicas.known() == stream.expected(answered.sequence)
        copies.append(await replicas.copy())
        if losses and chance.random() < 0.05:
            losses -= 1
            await replicas.fall_back_to(chance.choice([{}, *copies]))
    state = await replicas.state()

    assert (state.sequence, state.complete, state.revisions) == (len(stream.messages), True, stream.revisions)
    assert await replicas.known() == stream.expected(len(stream.messages))


async def test_the_age_of_changes_is_measured_except_while_the_records_are_loaded(replicas: Replicas) -> None:
    """A part that begins, or whose Redis was emptied, reads old changes that were enforced long ago."""
    stream = Stream(replicas.tenant_id, random.Random(0), length=40)
    projection, ages = replicas.halves[0].projection, list[float]()
    projection.freshness.observe_age = ages.append
    for loads in range(1, 3):
        await projection._take_batch("template", Batch([], caught_up=True), StreamPosition("none", 0))
        position = StreamPosition("one", 0)
        while position.sequence < len(stream.messages):
            position = await projection._take_batch("management", stream.batch(position.sequence, 30), position)
        assert len(ages) == loads - 1
        stream.change()
        position = await projection._take_batch("management", stream.batch(position.sequence, 30), position)
        heartbeat = stream.batch(position.sequence, 30)
        await projection._take_batch("management", heartbeat, position)
        assert len(ages) == loads
        await replicas.lose_everything()
    assert min(ages) > 0


@pytest.mark.parametrize("seed", range(8))
async def test_a_watermark_takes_effect_once_everything_it_covers_is_applied(replicas: Replicas, seed: int) -> None:
    """A late reader finds only the newest state of each aggregate, which may come after a watermark that covers an
    older one: until it is applied, no request may be answered as if it were."""
    chance = random.Random(seed)
    stream = Stream(replicas.tenant_id, chance, length=60)
    position, head = 0, 1
    while position < len(stream.messages):
        batch = stream.compacted(position, chance.randrange(1, 4), head=head)
        state = await replicas.apply(0, "one", position, batch)
        stored = await replicas.revisions()
        for key, revision in stream.last_revisions(state.revisions).items():
            assert stored.get(key, -1) >= revision
        position = state.sequence
        head = min(head + chance.randrange(0, 5), len(stream.messages))

    assert (await replicas.state()).revisions == stream.revisions
    assert await replicas.known() == stream.expected(len(stream.messages))


async def test_a_batch_with_a_gap_is_not_applied(replicas: Replicas) -> None:
    """A skipped change would be lost forever: a suspension, for example."""
    stream = Stream(replicas.tenant_id, random.Random(1), length=10)
    await replicas.apply(0, "one", 0, stream.batch(0, 4))
    answered = await replicas.apply(1, "one", 8, stream.batch(8, 4))

    assert (answered.sequence, answered.complete, answered.revisions) == (4, False, {})
    assert await replicas.state() == answered


async def test_a_source_goes_on_in_another_stream_after_its_snapshot(replicas: Replicas) -> None:
    """What has applied all of the snapshot moves on, and the others follow; none begins there by itself."""
    stream = Stream(replicas.tenant_id, random.Random(1), length=10)
    end, live = len(stream.messages), StreamPosition("live", 7)
    last = Batch(stream.messages[12:], caught_up=False, goes_on_at=live)
    assert (await replicas.apply(0, "copy", 12, last))[1:3] == ("", 0)
    await replicas.apply(0, "copy", 0, stream.batch(0, 12))
    moved = await replicas.apply(1, "copy", 12, last)
    stream.change()
    after = [message._replace(sequence=7 + place) for place, message in enumerate(stream.messages[end:], 1)]
    behind = await replicas.apply(0, "copy", 12, last)
    read = await replicas.apply(0, "live", 7, Batch(after, caught_up=True))

    assert [each[1:4] for each in (moved, behind)] == [("live", 7, False)] * 2
    assert read[1:] == ("live", after[-1].sequence, True, stream.revisions)
    assert await replicas.known() == stream.expected(len(stream.messages))
    await replicas.lose_everything()
    assert (await replicas.apply(0, "live", 7, Batch(after, caught_up=True)))[1:4] == ("", 0, False)


@pytest.mark.parametrize(("position", "count"), [(8, 12), (0, 2)])
async def test_a_batch_that_does_not_continue_the_stored_position_does_not_complete_the_directory(
    replicas: Replicas, position: int, count: int
) -> None:
    """A reader at another position that reaches the end of the stream cannot vouch for the stored records."""
    stream = Stream(replicas.tenant_id, random.Random(1), length=10)
    stored = await replicas.apply(0, "one", 0, stream.batch(0, 4))
    answered = await replicas.apply(1, "one", position, stream.batch(position, count)._replace(caught_up=True))

    assert (stored.sequence, stored.complete, stored.revisions) == (4, False, {})
    assert [answered[1:], (await replicas.state())[1:]] == [stored[1:]] * 2


async def test_it_is_not_complete_before_the_first_event_of_management(replicas: Replicas) -> None:
    """While the stream holds no user events, an unknown user may still exist."""
    stream = Stream(replicas.tenant_id, random.Random(9), length=0)
    stream.tell("template", OrganizationState(id="org0"))
    early = await replicas.apply(0, "one", 0, stream.batch(0, 2))
    stream.tell("management", UserState(id="user0"))
    late = await replicas.apply(0, "one", 2, stream.batch(2, 2))

    assert (early.complete, early.revisions) == (False, {"template": 1})
    assert (late.complete, late.revisions) == (True, stream.revisions)


async def test_an_older_record_never_replaces_a_newer_one(replicas: Replicas) -> None:
    """Not even from another incarnation of the stream, whose positions begin again."""
    stream = Stream(replicas.tenant_id, random.Random(2), length=10)
    await replicas.apply(0, "one", 0, stream.batch(0, 20))
    before = await replicas.known()
    await replicas.apply(1, "two", 0, stream.batch(0, 6))

    assert await replicas.known() == before
    assert ((await replicas.state()).stream, (await replicas.state()).revisions) == ("two", stream.revisions)


async def test_a_batch_of_another_incarnation_from_the_middle_is_not_applied(replicas: Replicas) -> None:
    stream = Stream(replicas.tenant_id, random.Random(3), length=10)
    await replicas.apply(0, "one", 0, stream.batch(0, 6))
    answered = await replicas.apply(1, "two", 6, stream.batch(6, 6))

    assert (answered.stream, answered.sequence) == ("one", 6)


async def test_it_is_complete_as_soon_as_a_replica_knows_that_it_has_caught_up(replicas: Replicas) -> None:
    """The replica that applied the last batch may expect more messages, which a newer state then replaces."""
    stream = Stream(replicas.tenant_id, random.Random(8), length=10)
    early = await replicas.apply(0, "one", 0, stream.batch(0, 20)._replace(caught_up=False))
    late = await replicas.apply(1, "one", 4, stream.batch(4, 16))

    assert (early.sequence, early.complete, early.revisions) == (20, False, {})
    assert (late.sequence, late.complete, late.revisions) == (20, True, stream.revisions)


@pytest.mark.parametrize("kind", ["user", "member", "organization"])
async def test_a_deletion_leaves_a_tombstone_that_expires(replicas: Replicas, kind: str) -> None:
    """A late repetition of an older state does not undo the deletion."""
    stream = Stream(replicas.tenant_id, random.Random(4), length=0)
    for deleted in (False, True):
        if kind != "organization":
            stream.tell("template", OrganizationState(id="org0"))
        if kind == "member":
            stream.tell_of_member("org0", "user0", deleted=deleted)
        elif kind == "user":
            stream.tell("management", UserState(id="user0", name="A", deleted=deleted))
        else:
            stream.tell("template", OrganizationState(id="org0", deleted=deleted))
            stream.tell_of_member("org0", "user0")
    stream.tell("management", UserState(id="user1", name="B"))
    await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))
    ids = {"user": "user0", "member": "org0:user0", "organization": "org0"}
    gone = f"identity:{replicas.tenant_id}:{kind}:{ids[kind]}"
    last = await replicas.revisions()

    assert await replicas.known() == ({"user1": "B"}, {})
    assert 86_000 < await replicas.redis.ttl(gone) <= 86_400
    first = next(message for message in stream.messages if record_key(message.subject) == gone)
    again = Batch([first._replace(sequence=len(stream.messages) + 1)], caught_up=True)
    await replicas.apply(1, "one", len(stream.messages), again)
    assert await replicas.known() == ({"user1": "B"}, {})
    assert await replicas.revisions() == last


async def test_the_end_of_an_organization_ends_every_membership_at_once(replicas: Replicas) -> None:
    """Before its members are deleted, which may take a while; members of other organizations are unaffected."""
    stream = Stream(replicas.tenant_id, random.Random(9), length=0)
    stream.tell("management", UserState(id="user0", name="A"))
    for organization_id in ("org0", "org1"):
        stream.tell("template", OrganizationState(id=organization_id))
        stream.tell_of_member(organization_id, "user0", "role")
    stream.tell("template", OrganizationState(id="org0", deleted=True))
    await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))

    assert await replicas.known() == ({"user0": "A"}, {("org1", "user0"): ("role",)})


async def test_a_member_of_an_unknown_organization_is_not_found(replicas: Replicas) -> None:
    """Neither are ids that, joined with the organization's, read like those of a member."""
    stream = Stream(replicas.tenant_id, random.Random(10), length=0)
    stream.tell("management", UserState(id="user0", name="A"))
    stream.tell_of_member("org0", "user0", "role")
    stream.tell("template", OrganizationState(id="org1"))
    stream.tell_of_member("org1", "user0", "role")
    await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))

    question: dict[str, Any] = {"at_least": {"template": 0}, "deadline": 0.0}
    found = [
        await replicas.halves[0].membership(organization_id, member_id, **question)
        for organization_id, member_id in (
            ("org0", "user0"),
            ("org1", "user1"),
            ("org1:user0", ""),
            ("", "org1:user0"),
            ("org1", ""),
            ("ORG1", "user0"),
            ("org1", "user0"),
        )
    ]
    assert [membership is not None for membership in found] == [False] * 6 + [True]


async def refusal(replicas: Replicas, **question: Any) -> tuple[str, str]:
    """Return how lookups of subjects and of memberships are refused: alike."""
    refusals = set()
    directory = replicas.halves[0]
    lookups = (
        (directory.subject, ("user0",)),
        (directory.membership, ("org0", "user0")),
        (directory.memberships_of, ("user0",)),
    )
    for ask, about in lookups:
        with pytest.raises(TemporarilyUnavailable) as refused:
            await ask(*about, **{"at_least": {}, "deadline": 0.0, **question})  # type: ignore[operator]
        refusals.add((refused.value.code, refused.value.why))
    (only,) = refusals
    return only


async def test_incomplete_records_are_not_used(replicas: Replicas) -> None:
    """An incomplete directory in Redis answers temporarily_unavailable, never "no such user"."""
    assert await refusal(replicas) == ("temporarily_unavailable", "the directory is being loaded")
    stream = Stream(replicas.tenant_id, random.Random(5), length=10)
    await replicas.apply(0, "one", 0, stream.batch(0, 5))
    assert await refusal(replicas) == ("temporarily_unavailable", "the directory is being loaded")
    await replicas.apply(0, "one", 5, stream.batch(5, 100))
    await replicas.halves[0].subject("user0", at_least=stream.revisions, deadline=0.0)
    await replicas.lose_everything()
    assert await refusal(replicas) == ("temporarily_unavailable", "the directory is being loaded")


async def test_outdated_records_are_not_used(replicas: Replicas) -> None:
    """Judged by the awaited revision, and by the time of the last message from the bus."""
    stream = Stream(replicas.tenant_id, random.Random(6), length=10)
    await replicas.apply(0, "one", 0, stream.batch(0, 100))
    for source in ("management", "template"):
        assert await refusal(replicas, at_least={source: 11}) == (
            "temporarily_unavailable",
            "the awaited change has not arrived yet",
        )
    replicas.halves[0]._max_age_ms = -1
    assert await refusal(replicas) == ("temporarily_unavailable", "the directory is out of date")


async def test_records_without_organizations_cannot_rule_out_a_membership(replicas: Replicas) -> None:
    """They still answer for users."""
    stream = Stream(replicas.tenant_id, random.Random(11), length=0)
    stream.tell("management", UserState(id="user0", name="A"))
    await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))

    assert await replicas.known() == ({"user0": "A"}, {})
    assert await refusal(replicas, at_least={"template": 0}) == (
        "temporarily_unavailable",
        "the awaited change has not arrived yet",
    )


async def test_a_snapshot_is_not_read_again(replicas: Replicas) -> None:
    """The script that read it has judged it, before it spent the token: a second look could only fail."""
    stream = Stream(replicas.tenant_id, random.Random(12), length=0)
    stream.tell("template", OrganizationState(id="org0"))
    stream.tell("management", UserState(id="user0", name="A"))
    stream.tell_of_member("org0", "user0", "role")
    await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))
    half = replicas.halves[0]
    keys = DirectoryKeys(replicas.tenant_id).of_subject("org0").keys_of("user0")
    records: list[Any] = await replicas.redis.mget(keys)
    _, organization, _, _, member = records
    snapshot = SubjectSnapshot(records, [organization, member])
    position = len(stream.messages)
    stream.tell_of_member("org0", "user0", deleted=True)
    half.projection.take((await replicas.apply(0, "one", position, stream.batch(position, 10))).state)

    found = await half.subject("user0", "org0", at_least={}, deadline=NO_DEADLINE, snapshot=snapshot)
    assert found.membership is not None
    assert found.memberships == [found.membership]


async def test_what_a_replica_has_seen_is_required_of_a_snapshot(replicas: Replicas) -> None:
    """Redis may have failed over to a replica that lags behind."""
    stream = Stream(replicas.tenant_id, random.Random(13), length=0)
    stream.tell("management", UserState(id="user0", name="A"))
    half, now = replicas.halves[0], now_ms()
    half.projection.take((await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))).state)

    required = half.requirement({"template": 4}, checked=9)
    assert (required.checked, required.at_least) == (9, {"management": 1, "template": 4})
    assert now - 900_000 <= required.heard_since <= now_ms() - 900_000


@pytest.mark.heavy
@pytest.mark.parametrize("count", [2**8, 2**13])
async def test_very_many_records_in_one_batch_are_all_applied(replicas: Replicas, count: int) -> None:
    """No limit of the script language truncates a batch."""
    stream = Stream(replicas.tenant_id, random.Random(7), length=0)
    for number in range(count):
        stream.tell("management", UserState(id=f"user{number}", name=f"{number}"))
    await replicas.apply(0, "one", 0, Batch(stream.messages, caught_up=True))
    names = []
    for number in range(count):
        subject = await replicas.halves[0].subject(f"user{number}", at_least={"management": count}, deadline=0.0)
        names.append(subject.person and subject.person.user.name)

    assert names == [f"{number}" for number in range(count)]
