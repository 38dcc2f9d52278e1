"""The not-valid feed: every trigger is in it, signed, the same at every replica, and it goes on where a reader was."""

from __future__ import annotations

import asyncio
import gzip
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx2 as httpx
import jwt
import msgspec
import nats
import pytest
import pytest_asyncio
from sqlalchemy import text

from identity_common.bus.connection import Bus
from identity_common.clock import now_ms
from identity_common.identifiers import new_id, new_token_id
from identity_common.revisions import Source
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.wire.events import ApplicationState, ResourceState, UserState, event_subject
from provision import ServerAddresses
from stead.event_types import CloudEvent, MemberState
from stead.not_valid.entries import ALWAYS, entry_of, unpack
from stead.not_valid.messages import Message, Snapshot, read_message, read_snapshot, records_of
from stead.verification import KeySet
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S, eventually, round_trip
from tests.support.world import World
from token_service.not_valid import FeedKeys, Sequencer, Snapshots, Tail, UnknownPositionError
from token_service.not_valid.rules import LEEWAY_S
from token_service.presented_tokens.revocations import Revocation
from token_service.presented_tokens.revocations.store import insert_revocations

PATH = "/oidc/not-valid"
ISSUER = "https://id.example.com/oidc"
SOON = 3_600_000
LIFETIME_S = 3600


class Feed:
    """A reader of the running system's feed."""

    def __init__(self, world: World) -> None:
        self.http = world.stack.http
        self.auth = world.machine.basic
        self.keys = KeySet.parse(self.http.get(f"{PATH}/jwks").content)
        self.issuer = world.stack.issuer

    def snapshot(self) -> tuple[Snapshot, bytes]:
        answer = self.http.get(PATH, auth=self.auth)
        assert answer.status_code == 200, answer.text
        return read_snapshot(answer.content, self.keys, issuer=self.issuer)

    def not_before(self, entry: bytes) -> int | None:
        found = {record.entry: record.not_before for record in unpack(self.snapshot()[1])}
        return found.get(entry)

    @contextmanager
    def events(self, position: str | None = None) -> Iterator[Iterator[tuple[str, Message]]]:
        headers = {} if position is None else {"Last-Event-ID": position}
        with self.http.stream("GET", f"{PATH}/events", auth=self.auth, headers=headers, timeout=10) as answer:
            assert answer.status_code == 200
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield self._messages(answer)

    def _messages(self, answer: httpx.Response) -> Iterator[tuple[str, Message]]:
        position = ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                position = value
            elif name == "data":
                yield position, read_message(value, self.keys, issuer=self.issuer)


@pytest.fixture(scope="module")
def feed(world: World) -> Feed:
    world.caught_up()
    return Feed(world)


def exchanged(world: World, user: str) -> tuple[str, dict[str, str]]:
    answer = world.exchange(world.subject_token(user))
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]
    return token, jwt.decode(token, options={"verify_signature": False})


def revoked_token(world: World) -> bytes:
    token, claims = exchanged(world, world.customer)
    form = {"token": token}
    answer = world.stack.http.post("/oidc/token/revocation", data=form, auth=world.traditional.basic)
    assert answer.status_code == 200
    return entry_of("token", claims["jti"])


def suspended_user(world: World) -> bytes:
    user = world.user()
    world.management.users.suspend(user)
    return entry_of("user", user)


def deleted_user(world: World) -> bytes:
    user = world.user()
    world.management.users.delete(user)
    return entry_of("user", user)


def deleted_client(world: World) -> bytes:
    client = world.client("Traditional")
    world.management.applications.delete(client.id)
    return entry_of("client", client.id)


def client_without_exchange(world: World) -> bytes:
    client = world.client("Traditional")
    world.management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": False})
    return entry_of("exchange", client.id)


def deleted_resource(world: World) -> bytes:
    resource = world.management.resources.create("Gone", f"https://{new_id()}.example.com/api")
    world.management.resources.delete(resource.id)
    return entry_of("resource", resource.indicator)


def deleted_organization(world: World) -> bytes:
    organization = world.template.organization()
    world.management.organizations.delete(organization)
    return entry_of("organization", organization)


def removed_member(world: World) -> bytes:
    user = world.user()
    world.template.member(world.organization, user, world.clerk_roles["user"])
    world.management.organizations.remove_user(world.organization, user)
    return entry_of("member", world.organization, user)


@pytest.mark.parametrize(
    "trigger",
    [
        revoked_token,
        suspended_user,
        deleted_user,
        deleted_client,
        client_without_exchange,
        deleted_resource,
        deleted_organization,
        removed_member,
    ],
)
def test_each_trigger_is_in_the_feed(world: World, feed: Feed, trigger: Callable[[World], bytes]) -> None:
    entry = trigger(world)
    eventually(lambda: feed.not_before(entry) == ALWAYS)


@pytest.mark.heavy
def test_a_password_change_ends_what_was_issued_before_it(world: World, feed: Feed) -> None:
    user = world.user()
    world.management.users.set_password(user, "correct horse battery")
    eventually(lambda: feed.not_before(entry_of("user", user)) is not None)
    not_before = feed.not_before(entry_of("user", user))
    assert not_before is not None and abs(not_before - now_ms() / 1000) < 60


@pytest.mark.heavy
def test_what_is_valid_again_is_so_for_new_tokens_only(world: World, feed: Feed) -> None:
    client = world.client("Traditional")
    entry = entry_of("exchange", client.id)
    world.management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": False})
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    world.management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": True})
    eventually(lambda: feed.not_before(entry) not in {ALWAYS, None})
    switched_on_s = feed.not_before(entry)
    _, claims = exchanged(world, world.customer)
    assert int(claims["iat"]) >= (switched_on_s or 0)

    time.sleep(1 - time.time() % 1)
    world.management.applications.update(client.id, name="Another name")
    later = client_without_exchange(world)
    eventually(lambda: feed.not_before(later) == ALWAYS)
    assert feed.not_before(entry) == switched_on_s, "another change ends nothing"


@pytest.mark.heavy
def test_a_resource_that_is_back_has_tokens_from_then_on(world: World, feed: Feed) -> None:
    resources = world.management.resources
    indicator = f"https://{new_id()}.example.com/api"
    entry = entry_of("resource", indicator)
    resources.delete(resources.create("Gone", indicator).id)
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    back = resources.create("Back", indicator)
    eventually(lambda: feed.not_before(entry) not in {ALWAYS, None})
    created_s = feed.not_before(entry)

    time.sleep(1 - time.time() % 1)
    resources.update(back.id, name="Another name")
    later = deleted_resource(world)
    eventually(lambda: feed.not_before(later) == ALWAYS)
    assert feed.not_before(entry) == created_s, "another change ends nothing"


@pytest.mark.heavy
def test_a_member_that_is_back_has_tokens_from_then_on(world: World, feed: Feed) -> None:
    """Until it is removed again; what else changes in its membership ends none of them."""
    user = world.user()
    entry = entry_of("member", world.organization, user)
    world.template.member(world.organization, user)
    world.template.remove_member(world.organization, user)
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    world.template.member(world.organization, user)
    eventually(lambda: feed.not_before(entry) not in {ALWAYS, None})
    joined_s = feed.not_before(entry)

    time.sleep(1 - time.time() % 1)
    world.template.member(world.organization, user, world.clerk_roles["user"])
    later = removed_member(world)
    eventually(lambda: feed.not_before(later) == ALWAYS)
    assert feed.not_before(entry) == joined_s
    world.template.remove_member(world.organization, user)
    eventually(lambda: feed.not_before(entry) == ALWAYS)


@pytest.mark.heavy
@pytest.mark.servers
def test_a_reader_follows_from_its_snapshot_and_continues_where_it_was(world: World, feed: Feed) -> None:
    snapshot, _ = feed.snapshot()
    entry = revoked_token(world)
    with feed.events(f"{snapshot.epoch}.{snapshot.to}") as messages:
        reached, seen = snapshot.to, set()
        for position, message in messages:
            assert position == f"{message.epoch}.{message.to}"
            assert message.from_ <= reached
            reached = message.to
            seen |= {record.entry for record in unpack(records_of(message))}
            if entry in seen and message.time:
                break
    with feed.events(f"{snapshot.epoch}.{reached}") as messages:
        _, message = next(messages)
        assert message.from_ >= reached
        assert entry not in {record.entry for record in unpack(records_of(message))}
        times = [next(messages)[1].time for _ in range(2)]
        assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("position", "status"), [("1.1", 410), ("x", 400), ("1", 400), ("9" * 16 + ".1", 400), ("999999999999999.0", 410)]
)
def test_a_position_that_cannot_be_continued_is_refused(feed: Feed, position: str, status: int) -> None:
    answer = feed.http.get(f"{PATH}/events", auth=feed.auth, headers={"Last-Event-ID": position})
    assert (answer.status_code, answer.json()["error"]) == (status, "invalid_request")


@pytest.mark.heavy
def test_a_stream_ends_and_the_next_one_needs_the_credential_again(
    world: World, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("token_service.endpoints.not_valid._STREAM_S", 0.3)
    reader = world.client("MachineToMachine")
    snapshot, _ = feed.snapshot()
    entry = revoked_token(world)
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    headers = {"Last-Event-ID": f"{snapshot.epoch}.{snapshot.to}"}
    with feed.http.stream("GET", f"{PATH}/events", auth=reader.basic, headers=headers, timeout=WAIT_S) as answer:
        world.management.applications.delete(reader.id)
        lines = list(answer.iter_lines())
    assert lines[1].startswith("data: ")
    assert lines[-1] == "", "after a whole event"
    again = feed.http.get(f"{PATH}/events", auth=reader.basic)
    assert (again.status_code, again.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("path", [PATH, f"{PATH}/events"])
def test_reading_needs_a_client_credential(world: World, feed: Feed, path: str) -> None:
    answers = [feed.http.get(path), feed.http.get(path, auth=(world.machine.id, "wrong"))]
    assert [(answer.status_code, answer.headers["WWW-Authenticate"]) for answer in answers] == [
        (401, 'Basic realm="token endpoint", charset="UTF-8"')
    ] * 2
    answer = feed.http.post(path, auth=feed.auth)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")


def test_the_snapshot_is_compressed_and_cached_by_its_entity_tag(world: World, feed: Feed) -> None:
    for refusing in ("identity", "gzip;q=0", "br, GZIP; Q=0.000"):
        plain = feed.http.get(PATH, auth=feed.auth, headers={"Accept-Encoding": refusing})
        assert "Content-Encoding" not in plain.headers
    with feed.http.stream("GET", PATH, auth=feed.auth, headers={"Accept-Encoding": "gzip"}) as answer:
        compressed = b"".join(answer.iter_raw())
    read_snapshot(gzip.decompress(compressed), feed.keys, issuer=feed.issuer)
    known = feed.http.get(PATH, auth=feed.auth, headers={"If-None-Match": answer.headers["ETag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_the_keys_of_the_feed_are_not_those_of_tokens(world: World) -> None:
    documents = [world.stack.http.get(path).json() for path in ("/oidc/jwks", f"{PATH}/jwks")]
    tokens, feeds = ({key["kid"] for key in document["keys"]} for document in documents)
    assert feeds and not tokens & feeds


class Replica:
    """The feed's parts of one replica, in a tenant of its own."""

    def __init__(self, addresses: ServerAddresses, tenant_id: str, *, nats_url: str | None = None) -> None:
        self.tenant_id = tenant_id
        self.engine = create_database_engine(addresses.token_database_url, service="tests", pool_size=4)
        self.bus = Bus(nats_url or addresses.token_nats_url, service="token")
        sealing = SealingKeys(["A" * 43 + "="])
        self.keys = FeedKeys(self.engine, sealing, tenant_id=tenant_id)
        self.tail = Tail(addresses.token_database_url, tenant_id=tenant_id)
        self.snapshots = Snapshots(self.engine, self.keys, tenant_id=tenant_id, issuer=ISSUER)
        self.sequencer = Sequencer(
            self.bus,
            self.keys,
            addresses.token_database_url,
            tenant_id=tenant_id,
            issuer=ISSUER,
            longest_lifetime_s=lambda: LIFETIME_S,
        )

    async def start(self) -> None:
        await self.keys.load()
        self.bus.start()
        self.tail.start()
        self.sequencer.start()

    async def stop(self) -> None:
        await self.sequencer.stop()
        await self.tail.stop()
        await self.bus.stop()
        await self.engine.dispose()

    async def revoke(self, *token_ids: str) -> None:
        async with self.engine.begin() as connection:
            revoked = [Revocation(token_id, now_ms() + SOON) for token_id in token_ids]
            await insert_revocations(connection, self.tenant_id, revoked)

    async def next_message(self, *, that: Callable[[Message], bool] = lambda _: True) -> Message:
        keys = KeySet.parse(self.keys.jwks)
        async with asyncio.timeout(WAIT_S):
            with self.tail.reading() as live:
                async for each in live:
                    message = read_message(each.token, keys, issuer=ISSUER)
                    if that(message):
                        return message
        raise AssertionError("the tail ended")

    async def state(self) -> Snapshot:
        return read_snapshot((await self.snapshots.snapshot()).body, KeySet.parse(self.keys.jwks), issuer=ISSUER)[0]


@pytest.fixture
def tenant_id(stack: RunningStack) -> str:
    return f"t{secrets.token_hex(6)}"


@pytest_asyncio.fixture
async def replicas(servers: ServerAddresses, tenant_id: str) -> AsyncIterator[list[Replica]]:
    both = [Replica(servers, tenant_id) for _ in range(2)]
    for each in both:
        await each.start()
    yield both
    for each in both:
        await each.stop()


@pytest.mark.heavy
@pytest.mark.servers
async def test_two_replicas_serve_the_same_bytes_and_another_takes_over(replicas: list[Replica]) -> None:
    one, other = replicas
    await one.next_message(that=lambda message: message.time > 0)
    token_ids = [new_token_id() for _ in range(300)]
    arrived = asyncio.gather(*(each.next_message(that=lambda message: message.to == 300) for each in replicas))
    await one.revoke(*token_ids)
    messages = await arrived

    assert messages[0] == messages[1]
    bodies = [(await each.snapshots.snapshot()).body for each in replicas]
    assert bodies[0] == bodies[1]
    _, records = read_snapshot(bodies[0], KeySet.parse(one.keys.jwks), issuer=ISSUER)
    assert {record.entry for record in unpack(records)} == {entry_of("token", each) for each in token_ids}
    epoch = messages[0].epoch
    caught_up = [await each.snapshots.since(epoch, 0) for each in replicas]
    assert caught_up[0] == caught_up[1]
    assert [message.to for message in caught_up[0]] == [128, 256, 300]

    await one.sequencer.stop()
    await other.revoke(new_token_id())
    message = await other.next_message(that=lambda message: message.to == 301)
    assert message.epoch == epoch


@pytest.mark.servers
async def test_a_record_is_kept_until_the_last_token_that_it_ends_has_expired(
    replicas: list[Replica], servers: ServerAddresses, tenant_id: str
) -> None:
    one, _ = replicas
    await one.next_message(that=lambda message: message.time > 0)
    began_s = now_ms() // 1000
    arrived = asyncio.create_task(one.next_message(that=lambda message: message.to == 1))
    await tell(servers, tenant_id, ("management", "user", ("ann",), UserState(id="ann", is_suspended=True)))
    await arrived
    body = (await one.snapshots.snapshot()).body
    (record,) = unpack(read_snapshot(body, KeySet.parse(one.keys.jwks), issuer=ISSUER)[1])
    assert (record.entry, record.not_before) == (entry_of("user", "ann"), ALWAYS)
    kept_s = LIFETIME_S + LEEWAY_S
    assert began_s + kept_s <= record.forget_at <= now_ms() // 1000 + kept_s


@pytest.mark.heavy
@pytest.mark.servers
async def test_nothing_counts_as_fresh_while_more_is_waiting(servers: ServerAddresses, tenant_id: str) -> None:
    """A turn takes a thousand revocations and changes at most: its messages would vouch for those that wait."""
    replica, count = Replica(servers, tenant_id), 2_500
    await replica.start()
    await replica.next_message(that=lambda message: message.time > 0)
    keys = KeySet.parse(replica.keys.jwks)
    users = (UserState(id=f"user{number}", is_suspended=True) for number in range(count))
    with replica.tail.reading() as live:
        async with replica.engine.begin() as connection:  # no turn meanwhile
            statement = text("SELECT FROM not_valid_feed WHERE tenant_id = :tenant FOR UPDATE")
            await connection.execute(statement, {"tenant": tenant_id})
            await tell(servers, tenant_id, *(("management", "user", (user.id,), user) for user in users))
            await replica.revoke(*(new_token_id() for _ in range(count)))
            async with asyncio.timeout(WAIT_S):
                while len(replica.sequencer._heard[0].arrived) < count:  # noqa: ASYNC110 - seen from outside
                    await asyncio.sleep(0.01)
        fresh_at = set()
        async with asyncio.timeout(WAIT_S):
            async for each in live:
                message = read_message(each.token, keys, issuer=ISSUER)
                fresh_at |= {message.to} if message.time else set()
                if message.to == 2 * count:
                    break
    await replica.stop()
    assert fresh_at <= {0, 2 * count}, "0: the turn that waited for the lock"


@pytest.mark.heavy
@pytest.mark.servers
async def test_nothing_counts_as_fresh_while_the_bus_is_away(servers: ServerAddresses, tenant_id: str) -> None:
    """Changes cannot arrive; revocations, which come from the database, still do."""
    async with TcpProxy(servers.token_nats_url) as proxy:
        replica = Replica(servers, tenant_id, nats_url=proxy.through(servers.token_nats_url))
        await replica.start()
        await replica.next_message(that=lambda message: message.time > 0)
        await proxy.cut()
        await replica.next_message(that=lambda message: message.time == 0)
        await replica.revoke(new_token_id())
        assert (await replica.next_message(that=lambda message: message.to == 1)).time == 0
        await proxy.mend()
        await replica.next_message(that=lambda message: message.time > 0)
        await replica.stop()


@pytest.mark.heavy
@pytest.mark.servers
async def test_a_restored_database_begins_a_new_epoch(replicas: list[Replica]) -> None:
    one, _ = replicas
    await one.next_message(that=lambda message: message.time > 0)
    earlier = await one.state()
    async with one.engine.begin() as connection:
        values = {"tenant": one.tenant_id}
        await connection.execute(text("UPDATE not_valid_feed SET epoch = epoch + 1 WHERE tenant_id = :tenant"), values)
    with pytest.raises(UnknownPositionError):
        await one.snapshots.since(earlier.epoch, earlier.to)
    message = await one.next_message(that=lambda message: message.epoch > earlier.epoch)
    assert message.from_ == earlier.to


Told = tuple[Source, str, tuple[str, ...], msgspec.Struct]


async def tell(addresses: ServerAddresses, tenant_id: str, *told: Told) -> None:
    """Publish states as the services do, of a change just now."""
    for source, url in (("management", addresses.management_nats_url), ("template", addresses.template_nats_url)):
        client = await nats.connect(url, inbox_prefix=f"_INBOX_{source}".encode())
        for revision, (of, kind, ids, state) in enumerate(told, start=1):
            if of == source:
                event = CloudEvent(
                    id=f"{tenant_id}:{source}:{revision}",
                    source=f"/{source}",
                    type=f"{kind}.updated",
                    subject="/".join(ids),
                    time=datetime.now(UTC).isoformat(),
                    tenantid=tenant_id,
                    revision=revision,
                    data=msgspec.Raw(msgspec.json.encode(state)),
                )
                await client.publish(event_subject(source, tenant_id, kind, *ids), msgspec.json.encode(event))
        await round_trip(client)
        await client.close()


async def test_a_return_ends_earlier_tokens_though_only_the_return_was_seen(
    servers: ServerAddresses, tenant_id: str
) -> None:
    """The state keeps the newest event of each aggregate: while no replica ran, what it replaced is never seen."""
    returned_at = now_ms() // 1000 * 1000
    long_ago = returned_at - 86_400_000
    await tell(
        servers,
        tenant_id,
        ("management", "application", ("back",), ApplicationState(
            id="back", allow_token_exchange=True, exchanged_valid_after=returned_at
        )),
        ("management", "application", ("stays",), ApplicationState(id="stays", allow_token_exchange=True)),
        ("management", "resource", ("back",), ResourceState(
            id="back", indicator="https://back.example.com", tokens_valid_after=returned_at
        )),
        ("management", "resource", ("stays",), ResourceState(id="stays", indicator="https://stays.example.com")),
        ("management", "user", ("long-ago",), UserState(id="long-ago", tokens_valid_after=long_ago)),
        ("template", "member", ("o", "back"), MemberState(
            organization_id="o", member_id="back", joined_at=returned_at, rejoined=True
        )),
        ("template", "member", ("o", "new"), MemberState(organization_id="o", member_id="new", joined_at=returned_at)),
        ("template", "member", ("o", "long-ago"), MemberState(
            organization_id="o", member_id="long-ago", joined_at=long_ago, rejoined=True
        )),
    )  # fmt: skip
    replica = Replica(servers, tenant_id)
    await replica.start()
    await replica.next_message(that=lambda message: message.time > 0)
    _, records = read_snapshot(
        (await replica.snapshots.snapshot()).body, KeySet.parse(replica.keys.jwks), issuer=ISSUER
    )
    assert {record.entry: record.not_before for record in unpack(records)} == dict.fromkeys(
        (
            entry_of("exchange", "back"),
            entry_of("resource", "https://back.example.com"),
            entry_of("member", "o", "back"),
        ),
        returned_at // 1000,
    )
    await replica.stop()
