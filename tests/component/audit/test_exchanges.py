"""Exchanges and sign-ins reach the audit trail, from Redis to the bus; an exchange as an attempt and an outcome."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import jwt
import msgspec
import nats
import pytest
import pytest_asyncio
from nats.js import JetStreamContext
from redis.asyncio import Redis

from identity_common.bus.connection import Bus
from identity_common.clock import now_ms
from identity_common.identifiers import new_id, new_secret
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from identity_common.outbox.audit_stream_relay import OUTCOME_AFTER_MS, Attempts, AuditStreamRelay
from identity_common.stores.audit_streams import COUNT_WAITING
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.audit import AuditEntry, audit_subject
from identity_common.wire.revocations import CopyPosition, position_key
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key
from provision import ServerAddresses
from stead.verify.impersonations import ImpersonationSegments
from tests.support.at_a_browser import PASSWORD, Person, application
from tests.support.audit_entries import entries_on_the_bus
from tests.support.captured_logs import captured_logs
from tests.support.complete_directory import COMPLETE, REQUIRED
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S
from tests.support.world import World
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.audit.token_requests import LOG, TAKEN, UNKNOWN
from token_service.directory.keys import state_key
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_taker import SpentSubjectToken, SubjectTokenTaker

DENIED = "organization.not_a_member"
UNKNOWN_TARGET = "invalid_target"


async def published(jetstream: JetStreamContext, tenant_id: str) -> list[AuditEntry]:
    """Return the entries of the log on the bus."""
    return await entries_on_the_bus(jetstream, audit_subject(LOG, tenant_id))


class Trail:
    """The log of a new tenant: takes that are recorded in it, and its relay."""

    def __init__(self, servers: ServerAddresses, jetstream: JetStreamContext) -> None:
        self.tenant_id = f"t{new_id()}"
        self.redis: Redis = connect_redis(servers.token_redis_url)
        self.commands = RedisCommands(self.redis)
        self.audit = TokenAudit(self.commands, tenant_id=self.tenant_id, backlog=1000)
        self._minting: Redis = connect_redis(servers.management_redis_url)
        self._engine = create_database_engine(servers.token_database_url, service="tests", pool_size=1)
        self._servers = servers
        self.jetstream = jetstream
        self._bus = Bus(servers.token_nats_url, service="token")
        self._relay: AuditStreamRelay | None = None

    async def start(self, clock: Callable[[], int] = now_ms) -> None:
        self._bus = Bus(self._servers.token_nats_url, service="token")
        self._bus.start()
        self._relay = AuditStreamRelay(
            self._bus,
            self.commands,
            self._servers.token_database_url,
            log=LOG,
            tenant_id=self.tenant_id,
            attempts=Attempts(TAKEN, UNKNOWN),
            clock=clock,
        )
        self._relay.loop.start()

    async def stop(self) -> None:
        if self._relay is not None:
            await self._relay.loop.stop()
            await self._bus.stop()
            self._relay = None

    async def close(self) -> None:
        await self.stop()
        await self.redis.aclose()
        await self._minting.aclose()
        await self._engine.dispose()

    async def take(self, token_id: str) -> AuditedTokenRequest:
        """Spend a new subject token with the id ``of-<token_id>``."""
        record = SubjectTokenRecord(
            id=f"of-{token_id}",
            user_id="ann",
            issued_to="c1",
            issued_at=now_ms(),
            expires_at=now_ms() + 60_000,
            revision=0,
            minted_at=now_ms(),
        )
        token = PREFIX + new_secret()
        await self._minting.set(subject_token_key(self.tenant_id, token), msgspec.json.encode(record), px=60_000)
        request = AuditedTokenRequest(client_id="web")
        revocations = Revocations(self._engine, self.redis, self.commands, tenant_id=self.tenant_id, replicas=0)
        store = SubjectTokenTaker(
            self.redis, self.commands, revocations, self.audit, tenant_id=self.tenant_id, replicas=0
        )
        await self.redis.set(state_key(self.tenant_id), COMPLETE)
        await self.redis.set(position_key(self.tenant_id), CopyPosition(is_whole=True).format())
        taken = await store.take(token, required=REQUIRED, request=request)
        assert isinstance(taken, SpentSubjectToken)
        assert request.issued_token_id == taken.token_id
        return request

    async def published(self, count: int) -> list[AuditEntry]:
        """Return the entries on the bus, once there are as many."""
        async with asyncio.timeout(WAIT_S):
            while len(found := await published(self.jetstream, self.tenant_id)) < count:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.05)
        return found

    async def take_batches(self, until_s: int = 60) -> None:
        """Do as a relay that reads batches, and has not read yet."""
        await self.redis.hset(self.audit.keys.numbering, "batches_until", now_ms() // 1000 + until_s)

    async def records(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in await self.redis.xrange(self.audit.keys.stream)]

    async def waiting(self) -> int:
        return int(await self.redis.xlen(self.audit.keys.stream))

    async def emptied(self) -> None:
        """Wait until Redis holds no entry."""
        async with asyncio.timeout(WAIT_S):
            while await self.waiting():  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)


def told(entries: Sequence[AuditEntry]) -> list[tuple[str, str, str | None, int]]:
    return [(entry.key, entry.outcome, entry.subject_token_id, entry.sequence) for entry in entries]


@pytest_asyncio.fixture
async def jetstream(servers: ServerAddresses) -> AsyncIterator[JetStreamContext]:
    """A connection of management-service, which alone may read the stream."""
    client = await nats.connect(servers.management_nats_url, inbox_prefix="_INBOX_management")
    yield client.jetstream()
    await client.close()


@pytest_asyncio.fixture
async def trail(stack: RunningStack, servers: ServerAddresses, jetstream: JetStreamContext) -> AsyncIterator[Trail]:
    trail = Trail(servers, jetstream)
    yield trail
    await trail.close()


@pytest.mark.servers
@pytest.mark.heavy
async def test_an_attempt_and_its_outcome_are_published_and_then_removed(trail: Trail) -> None:
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j1"))
    await trail.audit.flush()
    trail.audit.refused(GRANT_TOKEN_EXCHANGE, await trail.take("j2"), DENIED)
    await trail.start()
    found = await trail.published(4)
    await trail.emptied()

    assert told(found) == [
        ("token.exchange.taken", "success", "of-j1", 1),
        ("token.exchange.succeeded", "success", "of-j1", 2),
        ("token.exchange.taken", "success", "of-j2", 3),
        ("token.exchange.refused", "refused", "of-j2", 4),
    ]
    assert {(entry.epoch, entry.user_id, entry.application_id) for entry in found} == {(found[0].id, "ann", "web")}
    ids = [entry.issued_token_id for entry in found]
    assert ids[::2] == ids[1::2]  # the attempt has the id that the token gets
    assert [ImpersonationSegments.parse(each or "").ids for each in ids[::2]] == [("of-j1",), ("of-j2",)]


@pytest.mark.servers
async def test_a_flush_at_the_end_of_the_process_appends_what_is_gathered(trail: Trail) -> None:
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j1"))
    await trail.audit.flush()
    assert await trail.waiting() == 2


@pytest.mark.servers
async def test_gathered_entries_share_a_record_and_follow_the_attempts_before_them(trail: Trail) -> None:
    await trail.take_batches()
    first, second = [await trail.take(each) for each in ("j1", "j2")]
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, first)
    trail.audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
    trail.audit.refused(GRANT_TOKEN_EXCHANGE, second, DENIED)
    await trail.audit.flush()
    records = await trail.records()
    assert [[*fields] for fields in records] == [[b"entry"], [b"entry"], [b"epoch", b"first", b"entries"]]
    assert await trail.commands.execute("EVAL", COUNT_WAITING, 2, *trail.audit.keys) == 5
    await trail.start()
    assert told(await trail.published(5)) == [
        ("token.exchange.taken", "success", "of-j1", 1),
        ("token.exchange.taken", "success", "of-j2", 2),
        ("token.exchange.succeeded", "success", "of-j1", 3),
        ("token.exchange.refused", "refused", None, 4),
        ("token.exchange.refused", "refused", "of-j2", 5),
    ]
    await trail.emptied()
    assert await trail.commands.execute("EVAL", COUNT_WAITING, 2, *trail.audit.keys) == 0


@pytest.mark.servers
async def test_a_batch_that_is_published_again_has_the_same_numbers_in_other_messages(trail: Trail) -> None:
    """A relay that was killed before it removed the batch: the next one may begin its messages elsewhere."""
    await trail.take_batches()
    audit = TokenAudit(trail.commands, tenant_id=trail.tenant_id, backlog=10_000)
    for _ in range(600):  # more than a message has
        audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
    await audit.flush()
    records = await trail.records()
    assert 1 < len(records) < 60
    await trail.start()
    before = await trail.published(600)
    await trail.emptied()
    await trail.stop()
    for fields in records[1:]:
        await trail.redis.xadd(trail.audit.keys.stream, dict(fields))
    await trail.start()
    await trail.emptied()
    again = (await published(trail.jetstream, trail.tenant_id))[600:]
    assert [entry.sequence for entry in before] == [*range(1, 601)]
    assert again == before[-len(again) :]
    assert len(again) > 500


@pytest.mark.servers
async def test_a_malformed_entry_of_a_batch_is_a_gap_and_the_others_are_published(trail: Trail) -> None:
    await trail.take_batches()
    for _ in range(3):
        trail.audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
    await trail.audit.flush()
    ((at, fields),) = await trail.redis.xrange(trail.audit.keys.stream)
    first, _, last = fields[b"entries"].split(b"\n")
    await trail.redis.xdel(trail.audit.keys.stream, at)
    await trail.redis.xadd(trail.audit.keys.stream, {**fields, b"entries": b"\n".join((first, first[:-9], last))})
    with captured_logs("token") as log:
        await trail.start()
        assert [entry.sequence for entry in await trail.published(2)] == [1, 3]
        await trail.emptied()
    assert '"audit.entry-malformed"' in log.getvalue()
    assert '"count":1' in log.getvalue()


@pytest.mark.servers
@pytest.mark.parametrize("until_s", [None, -1])
async def test_without_an_active_relay_that_reads_batches_each_entry_has_a_record(
    trail: Trail, until_s: int | None
) -> None:
    """That of the previous version would drop a batch; one that stopped may be followed by such a relay."""
    if until_s is not None:
        await trail.take_batches(until_s)
    for _ in range(3):
        trail.audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
    await trail.audit.flush()
    assert [[*fields] for fields in await trail.records()] == [[b"entry"]] * 3
    await trail.start()
    await trail.emptied()
    for _ in range(3):
        trail.audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
    await trail.audit.flush()
    await trail.stop()
    assert [entry.sequence for entry in await trail.published(3)][:3] == [1, 2, 3]
    numbering = await trail.redis.hgetall(trail.audit.keys.numbering)
    assert int(numbering[b"batches_until"]) >= now_ms() // 1000


@pytest.mark.servers
async def test_entries_are_told_to_be_lost_when_too_many_wait_for_redis_to_answer(
    trail: Trail, servers: ServerAddresses
) -> None:
    async with TcpProxy(servers.token_redis_url) as wire:
        redis = connect_redis(wire.url)
        audit = TokenAudit(RedisCommands(redis), tenant_id=trail.tenant_id, backlog=1000)
        request = AuditedTokenRequest(client_id="web", is_public=True)
        audit.refused(GRANT_TOKEN_EXCHANGE, request, UNKNOWN_TARGET)
        await audit.flush()
        wire.swallow()
        with captured_logs("token") as log:
            for _ in range(1030):
                audit.refused(GRANT_TOKEN_EXCHANGE, request, UNKNOWN_TARGET)
            assert log.getvalue().count('"audit.entry-lost"') == 6
            await audit.flush()
        wire.pass_on()
        audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
        await audit.flush()
        await redis.aclose()
    await trail.start()
    assert [entry.sequence for entry in await trail.published(2)] == [1, 1032]


@pytest.mark.servers
@pytest.mark.parametrize("in_batches", [False, True])
async def test_outcomes_are_gathered_and_what_need_not_be_recorded_is_dropped_from_a_half_full_log(
    trail: Trail, in_batches: bool
) -> None:
    if in_batches:
        await trail.take_batches()
    audit = TokenAudit(trail.commands, tenant_id=trail.tenant_id, backlog=6)
    requests = [await trail.take(f"j{number}") for number in (1, 2)]
    for request in requests:
        audit.issued(GRANT_TOKEN_EXCHANGE, request)
    with captured_logs("token") as log:
        for _ in range(2):
            audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
        await audit.flush()
    await trail.start()
    found = await trail.published(4)
    assert [(entry.key, entry.sequence) for entry in found] == [
        ("token.exchange.taken", 1),
        ("token.exchange.taken", 2),
        ("token.exchange.succeeded", 5),
        ("token.exchange.succeeded", 6),
    ]  # what was dropped has numbers, and so is a gap
    assert '"count":2' in log.getvalue()


@pytest.mark.servers
async def test_what_is_lost_while_redis_is_away_is_a_gap_in_the_numbers(trail: Trail, servers: ServerAddresses) -> None:
    async with TcpProxy(servers.token_redis_url) as wire:
        redis = connect_redis(wire.url)
        audit = TokenAudit(RedisCommands(redis), tenant_id=trail.tenant_id, backlog=1000)
        request = AuditedTokenRequest(client_id="web")
        audit.refused(GRANT_TOKEN_EXCHANGE, request, UNKNOWN_TARGET)
        await audit.flush()
        await wire.cut()
        with captured_logs("token") as log:
            for _ in range(3):
                audit.refused(GRANT_TOKEN_EXCHANGE, request, UNKNOWN_TARGET)
                await audit.flush()
        await wire.mend()
        audit.refused(GRANT_TOKEN_EXCHANGE, request, UNKNOWN_TARGET)
        await audit.flush()
        await redis.aclose()
    await trail.start()
    assert [entry.sequence for entry in await trail.published(2)] == [1, 5]
    assert log.getvalue().count('"audit.entry-lost"') == 3


@pytest.mark.servers
async def test_a_flush_waits_for_entries_that_were_sent_before_it(trail: Trail, servers: ServerAddresses) -> None:
    """A service that stops closes its connections to Redis right after the flush."""
    async with TcpProxy(servers.token_redis_url, delay_s=0.05) as wire:
        redis = connect_redis(wire.url)
        audit = TokenAudit(RedisCommands(redis), tenant_id=trail.tenant_id, backlog=1000)
        audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), UNKNOWN_TARGET)
        async with asyncio.timeout(WAIT_S):
            while not wire.accepted:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
        await audit.flush()
        assert await trail.waiting() == 1
        await redis.aclose()


@pytest.mark.servers
@pytest.mark.heavy
async def test_an_attempt_without_an_outcome_stays_in_redis_and_is_reported_as_unknown(trail: Trail) -> None:
    """A relay that starts again publishes it once more with the same id, which the stream of the bus drops."""
    await trail.take("j1")
    for _ in range(2):
        await trail.start()
        assert told(await trail.published(1)) == [("token.exchange.taken", "success", "of-j1", 1)]
        await trail.stop()
        assert await trail.waiting() == 1

    await trail.start(clock=lambda: now_ms() + OUTCOME_AFTER_MS + 1)
    found = await trail.published(2)
    await trail.emptied()
    assert told(found) == [
        ("token.exchange.taken", "success", "of-j1", 1),
        ("token.exchange.unknown", "unknown", "of-j1", 2),
    ]


@pytest.mark.servers
@pytest.mark.heavy
async def test_what_is_no_entry_is_removed_with_a_line_in_the_log(trail: Trail) -> None:
    for fields in ({"entry": "{"}, {"entry": "{}"}, {"epoch": "e", "sequence": "1", "entry": "{}"}):
        await trail.redis.xadd(trail.audit.keys.stream, fields)
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j1"))
    with captured_logs("token") as log:
        await trail.start()
        found = await trail.published(2)
        await trail.emptied()
    assert [entry.sequence for entry in found] == [1, 2]
    assert '"audit.entry-malformed"' in log.getvalue()


@pytest.mark.servers
@pytest.mark.heavy
async def test_a_redis_that_lost_its_data_begins_another_epoch(trail: Trail) -> None:
    await trail.start()
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j1"))
    before = await trail.published(2)
    await trail.redis.delete(*trail.audit.keys)
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j2"))
    after = (await trail.published(4))[2:]

    assert [(entry.epoch, entry.sequence) for entry in after] == [(after[0].id, 1), (after[0].id, 2)]
    assert after[0].epoch != before[0].epoch


@pytest.mark.servers
@pytest.mark.heavy
async def test_a_redis_that_was_restarted_begins_another_epoch(trail: Trail) -> None:
    """It may have lost its last numbers, and would give them again."""
    await trail.redis.hset(trail.audit.keys.numbering, "run", "an earlier process")
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j1"))
    await trail.audit.flush()
    await trail.start()
    before = await trail.published(2)
    trail.audit.issued(GRANT_TOKEN_EXCHANGE, await trail.take("j2"))
    after = (await trail.published(4))[2:]

    assert [entry.sequence for entry in (*before, *after)] == [1, 2, 1, 2]
    assert after[0].epoch == after[0].id


@pytest.mark.heavy
async def test_every_end_of_a_token_request_is_recorded(world: World, jetstream: JetStreamContext) -> None:
    """With ids only: no token, no secret and no name."""
    tenant_id = world.stack.tenant_id
    suspended = world.user(world.keeper_role)
    tokens = [world.subject_token(), world.subject_token(suspended)]
    world.management.users.suspend(suspended)
    answers = [
        world.exchange(tokens[0], headers={"User-Agent": "Till/1"}),
        world.exchange(tokens[0]),
        world.exchange(tokens[1]),
        world.exchange(world.subject_token(), resource="https://nowhere.example.com"),
        world.exchange(world.subject_token(), actor_token="x", actor_token_type=TOKEN_TYPE_ACCESS_TOKEN),
        world.exchange(world.subject_token(), organization_id="nowhere", resource=None),
        world.exchange(
            world.subject_token(world.agent),
            actor_token=world.userinfo_token(),
            actor_token_type=TOKEN_TYPE_ACCESS_TOKEN,
        ),
    ]
    found: list[AuditEntry] = []
    ids = {answer.headers["X-Request-Id"] for answer in answers}

    async with asyncio.timeout(WAIT_S):
        while len(found) < 11:
            await asyncio.sleep(0.05)
            found = [entry for entry in await published(jetstream, tenant_id) if entry.request_id in ids]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 400, 400, 403, 400]
    of_requests = [
        [(each.key, each.reason) for each in found if each.request_id == answer.headers["X-Request-Id"]]
        for answer in answers
    ]
    assert of_requests == [
        [("token.exchange.taken", None), ("token.exchange.succeeded", None)],
        [("token.exchange.refused", "subject_token.unknown_or_spent")],
        [("token.exchange.taken", None), ("token.exchange.refused", "user.suspended")],
        [("token.exchange.refused", "invalid_target")],
        [("token.exchange.refused", "actor_token.not_acceptable")],
        [("token.exchange.taken", None), ("token.exchange.refused", "organization.not_a_member")],
        [("token.exchange.taken", None), ("token.exchange.refused", "actor.is_subject")],
    ]
    succeeded = next(entry for entry in found if entry.key == "token.exchange.succeeded")
    assert (succeeded.user_id, succeeded.application_id) == (world.customer, world.traditional.id)
    assert (succeeded.resource, succeeded.scope) == (world.resource, answers[0].json()["scope"])
    assert (succeeded.address, succeeded.user_agent) == ("127.0.0.1", "Till/1")
    text = msgspec.json.encode(found).decode()
    assert not [secret for secret in (*tokens, world.traditional.secret or "") if secret in text]


@pytest.mark.heavy
async def test_signing_in_and_out_is_recorded_without_what_was_typed(world: World, jetstream: JetStreamContext) -> None:
    person = Person(world)
    client = application(world, "SPA")
    person.sign_in(person.follow(person.authorize(client)), password="not-the-password-1")
    tokens = person.redeem(client, *person.code(client))
    person.browser.get("/oidc/session/end", params={"id_token_hint": tokens["id_token"]})

    async with asyncio.timeout(WAIT_S):
        found: list[AuditEntry] = []
        while len(found) < 4:
            await asyncio.sleep(0.05)
            everything = await published(jetstream, world.stack.tenant_id)
            found = [entry for entry in everything if entry.application_id == client.id]
    assert [(entry.key, entry.user_id, entry.reason) for entry in found] == [
        ("token.sign-in.refused", None, "wrong-password"),
        ("token.sign-in.succeeded", person.user_id, None),
        ("token.authorization-code.succeeded", person.user_id, None),
        ("token.session.ended", person.user_id, None),
    ]
    assert [entry.amr for entry in found] == [(), ("pwd",), (), ()]
    assert found[2].issued_token_id == jwt.decode(tokens["access_token"], options={"verify_signature": False})["jti"]
    assert {entry.user_agent for entry in found[:2]} == {person.browser.headers["User-Agent"]}
    text = msgspec.json.encode(found).decode()
    assert not [typed for typed in (person.username, PASSWORD, "not-the-password-1") if typed in text]


@pytest.mark.heavy
async def test_a_session_ended_by_another_users_sign_in_is_recorded(world: World, jetstream: JetStreamContext) -> None:
    first, second = Person(world), Person(world)
    client = application(world, "SPA")
    first.redeem(client, *first.code(client))
    second.browser = first.browser
    second.sign_in(second.follow(second.authorize(client, prompt="login")))

    assert await told_of(client.id, jetstream, world, count=4) == [
        ("token.sign-in.succeeded", first.user_id),
        ("token.authorization-code.succeeded", first.user_id),
        ("token.session.ended", first.user_id),
        ("token.sign-in.succeeded", second.user_id),
    ]


@pytest.mark.heavy
async def test_a_sign_out_at_a_browser_without_the_session_is_recorded_once(
    world: World, jetstream: JetStreamContext
) -> None:
    person = Person(world)
    client = application(world, "SPA")
    tokens = person.redeem(client, *person.code(client))
    person.browser = person.new_browser()
    for _ in range(2):  # the second time there is nothing left to end
        person.browser.get("/oidc/session/end", params={"id_token_hint": tokens["id_token"]})
    person.sign_in(person.follow(person.authorize(client)))

    assert await told_of(client.id, jetstream, world, count=4) == [
        ("token.sign-in.succeeded", person.user_id),
        ("token.authorization-code.succeeded", person.user_id),
        ("token.session.left", person.user_id),
        ("token.sign-in.succeeded", person.user_id),
    ]


async def told_of(
    application_id: str, jetstream: JetStreamContext, world: World, *, count: int
) -> list[tuple[str, str | None]]:
    """Return the keys and users of an application's entries, once there are so many."""
    async with asyncio.timeout(WAIT_S):
        found: list[AuditEntry] = []
        while len(found) < count:
            await asyncio.sleep(0.05)
            everything = await published(jetstream, world.stack.tenant_id)
            found = [entry for entry in everything if entry.application_id == application_id]
    return [(entry.key, entry.user_id) for entry in found]
