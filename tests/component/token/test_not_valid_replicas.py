"""Replicas of the not-valid feed: the same bytes, records kept long enough, and when nothing counts as fresh."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
import nats
import pytest
import pytest_asyncio
from sqlalchemy import text

from identity_common.bus.connection import Bus
from identity_common.clock import now_ms
from identity_common.identifiers import new_token_id
from identity_common.revisions import Source
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.wire.events import ApplicationState, ResourceState, UserState, event_subject
from provision import ServerAddresses
from stead.event_types import CloudEvent, MemberState
from stead.verify.feed.entries import ALWAYS, entry_of, unpack
from stead.verify.feed.messages import Message, Snapshot, read_message, read_snapshot
from stead.verify.keys import KeySet
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S, round_trip
from token_service.not_valid import FeedKeys, Sequencer, Snapshots, Tail, UnknownPositionError
from token_service.not_valid.rules import LEEWAY_S
from token_service.presented_tokens.revocations import Revocation
from token_service.presented_tokens.revocations.store import insert_revocations

ISSUER = "https://id.example.com/oidc"
SOON = 3_600_000
LIFETIME_S = 3600
SILENT_S = 2.5
"""More than two heartbeats."""


class Replica:
    """The feed's parts of one replica, in a tenant of its own."""

    def __init__(self, addresses: ServerAddresses, tenant_id: str, *, nats_url: str | None = None) -> None:
        self.tenant_id = tenant_id
        self.engine = create_database_engine(addresses.token_database_url, service="tests", pool_size=4)
        self.bus = Bus(nats_url or addresses.token_nats_url, service="token")
        sealing = SealingKeys(["A" * 43 + "="])
        self.keys = FeedKeys(self.engine, sealing, tenant_id=tenant_id)
        self.tail = Tail(addresses.token_database_url, tenant_id=tenant_id, readers_per_client=10)
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
            while True:
                with self.tail.reading("one") as live:  # ends when the database does not answer in time; read again
                    async for each in live:
                        message = read_message(each.token, keys, issuer=ISSUER)
                        if that(message):
                            return message

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
async def test_the_feed_goes_on_at_another_server_when_one_falls_silent(
    servers: ServerAddresses, tenant_id: str
) -> None:
    url = servers.token_database_url
    host = urlsplit(url).netloc.rpartition("@")[2]
    async with TcpProxy(url) as first, TcpProxy(url) as other, asyncio.timeout(WAIT_S):
        await other.cut()  # or a busy machine begins there
        both = ",".join(urlsplit(each.url).netloc.rpartition("@")[2] for each in (first, other))
        replica = Replica(msgspec.structs.replace(servers, token_database_url=url.replace(host, both)), tenant_id)
        await replica.start()
        await replica.next_message()
        await other.mend()
        first.swallow()
        while replica.tail.silence_s < SILENT_S:  # noqa: ASYNC110 - the feed has no event
            await asyncio.sleep(0.1)
        while replica.tail.silence_s > SILENT_S:  # noqa: ASYNC110 - the feed has no event
            await asyncio.sleep(0.1)
        await replica.stop()


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


async def test_a_new_server_begins_a_new_epoch(replicas: list[Replica], tenant_id: str) -> None:
    """A promoted standby may lack the last messages; a restart of the same server lacks none."""
    one, other = replicas
    await other.sequencer.stop()
    epochs = [(await one.next_message()).epoch]
    for server in ("server", "'the former primary'"):
        await one.sequencer.stop()
        async with one.engine.begin() as connection:
            statement = text(f"UPDATE not_valid_feed SET server = {server} WHERE tenant_id = :tenant")
            await connection.execute(statement, {"tenant": tenant_id})
        one.sequencer.start()
        epochs.append((await one.next_message()).epoch)
    assert epochs[0] == epochs[1] < epochs[2]


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
    with replica.tail.reading("one") as live:
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
