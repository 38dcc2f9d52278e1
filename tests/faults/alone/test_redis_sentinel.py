"""Redis with replicas and Sentinel: whatever fails over, no subject token is spent twice, and services follow."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from identity_common.clock import now_ms
from identity_common.failures import StoreUnavailable
from identity_common.identifiers import new_secret
from identity_common.stores.audit_streams import AuditStream, AuditStreamKeys
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis, execute_on_replicas
from identity_common.stores.replication_watch import ReplicationWatch
from identity_common.wire.revocations import CopyPosition, position_key
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key
from management_service.subject_tokens.store import RequestOrigin, SubjectTokenWriter
from provision import Passwords, ServerAddresses
from stead import Unavailable
from tests.support.captured_logs import captured_logs
from tests.support.complete_directory import COMPLETE, REQUIRED
from tests.support.impersonation import exchange, set_up
from tests.support.lengths import length
from tests.support.processes import Deployment
from tests.support.redis_servers import RedisServers
from tests.support.waiting import WAIT_S, eventually, eventually_here
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.directory.keys import state_key
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_taker import SpentSubjectToken, SubjectTokenTaker

pytestmark = pytest.mark.slow

TENANT = "default"
FAILOVERS = length(short=1, long=40)
TOKENS = length(short=1_250, long=3_125)  # for each failover; each is taken eight times
AT_ONCE = 128
SPENT = 300
"""Tokens that the lagging replica does not know to be spent. Few, for Sentinel promotes no replica that was cut off
for longer than ten times ``down-after-milliseconds``."""
NEW = 5
"""Tokens that are minted after a failover."""
UNREACHABLE = "postgresql+asyncpg://token:token@127.0.0.1:9/token"
ORIGIN = RequestOrigin(address="", user_agent="")


class Exchanges:
    """Mints, and takes at two replicas of token-service; counts how often each token was taken with success."""

    def __init__(self, servers: RedisServers) -> None:
        self._minting = connect_redis(servers.url("management"))
        minting = RedisCommands(self._minting)
        self._writer = SubjectTokenWriter(
            minting,
            tenant_id=TENANT,
            ttl_s=3600,
            backlog=10_000_000,
            refusals=AuditStream(minting, AuditStreamKeys.of("subject-tokens", TENANT), backlog=10_000_000),
            is_replicated=True,
        )
        self._redises = [connect_redis(servers.url("token"), blocking=True) for _ in range(2)]
        self._engine = create_database_engine(UNREACHABLE, service="tests", pool_size=1)
        self._takers = itertools.cycle([self._taker(redis) for redis in self._redises])
        self.spent: Counter[str] = Counter()

    def _taker(self, redis: "Redis") -> SubjectTokenTaker:
        commands = RedisCommands(redis)
        audit = TokenAudit(commands, tenant_id=TENANT, backlog=10_000_000)
        revocations = Revocations(self._engine, redis, commands, tenant_id=TENANT, replicas=1)
        return SubjectTokenTaker(redis, commands, revocations, audit, tenant_id=TENANT, replicas=1)

    async def stop(self) -> None:
        for redis in (self._minting, *self._redises):
            await redis.aclose()
        await self._engine.dispose()

    async def mint(self, count: int) -> list[str]:
        """Mint this many tokens; in place of those that cannot be stored, others."""
        minted: list[str] = []
        async with asyncio.timeout(60):
            while missing := count - len(minted):
                minted += filter(None, await asyncio.gather(*(self._mint() for _ in range(min(missing, 250)))))
        return minted

    async def _mint(self) -> str:
        now, token = now_ms(), PREFIX + new_secret()
        record = SubjectTokenRecord(
            id="t1", user_id="u1", issued_to="c1", issued_at=now, expires_at=now + 3_600_000, revision=0
        )
        try:
            await self._writer.require_stored(self._writer.store(token, record, token_id="j1", origin=ORIGIN), record)
        except StoreUnavailable:
            return ""
        return token

    async def take(self, token: str) -> bool:
        """Take a token once; return whether that succeeded."""
        taken = await next(self._takers).take(token, required=REQUIRED, request=AuditedTokenRequest())
        assert taken is None or isinstance(taken, SpentSubjectToken)
        self.spent[token] += taken is not None
        return taken is not None

    async def are_not_unknown_at(self, url: str, tokens: Sequence[str]) -> None:
        """Take tokens at another server, which cannot tell."""
        redis = connect_redis(url, blocking=True)
        try:
            for token in tokens:
                with pytest.raises(StoreUnavailable):
                    await self._taker(redis).take(token, required=REQUIRED, request=AuditedTokenRequest())
        finally:
            await redis.aclose()

    async def race(self, tokens: Sequence[str], *, racers: int) -> Counter[str]:
        """Take each token this many times, in random order; return how often each outcome was seen."""
        attempts = [*tokens] * racers
        random.Random(1).shuffle(attempts)
        waiting, outcomes = iter(attempts), Counter[str]()

        async def worker() -> None:
            for token in waiting:
                try:
                    outcomes["taken" if await self.take(token) else "refused"] += 1
                except StoreUnavailable:
                    outcomes["unavailable"] += 1

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        return outcomes

    async def one_is_taken(self) -> None:
        """Return once a new token could be minted and taken."""
        async with asyncio.timeout(60):
            while True:
                try:
                    (token,) = await self.mint(1)
                    if await self.take(token):
                        return
                except StoreUnavailable:
                    await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def redis_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServers]:
    with RedisServers(tmp_path_factory.mktemp("redis"), Passwords().completed()) as servers:
        with servers.administering(servers.primary) as administrator:
            administrator.set(position_key(TENANT), CopyPosition(is_whole=True).format())
            administrator.set(state_key(TENANT), COMPLETE)
        yield servers


@pytest_asyncio.fixture
async def exchanges(redis_servers: RedisServers) -> AsyncIterator[Exchanges]:
    exchanges = Exchanges(redis_servers)
    yield exchanges
    await exchanges.stop()


@pytest.mark.parametrize("batched", [True, False])
async def test_a_connection_to_a_demoted_primary_is_given_up(redis_servers: RedisServers, batched: bool) -> None:
    """Also with the address of one server: the next connection leads to whichever server it then stands for."""
    replica = redis_servers.replicas[0]
    redis = connect_redis(redis_servers.url_of(replica, "default"))
    commands = RedisCommands(redis)

    async def execute(*command: str) -> object:
        return await (commands.execute(*command) if batched else execute_on_replicas(redis, *command, replicas=0))

    connected = await execute("CLIENT", "ID")
    assert await execute("CLIENT", "ID") == connected
    with pytest.raises(StoreUnavailable, match="ReadOnlyError"):
        await execute("SET", "key", "value")
    assert await execute("CLIENT", "ID") != connected
    await redis.aclose()


async def test_a_primary_that_may_lose_writes_is_told(redis_servers: RedisServers) -> None:
    """Read with the rights of token-service; each state is logged once."""
    redis = connect_redis(redis_servers.url("token"))
    told = []
    with redis_servers.administering(redis_servers.primary) as administrator:
        for replicas, least in ((2, 1), (3, 1), (2, 0)):
            administrator.config_set("min-replicas-to-write", least)
            watch = ReplicationWatch(redis, replicas=replicas)
            with captured_logs("tests") as log:
                await watch.check()
                await watch.check()
            told.append([json.loads(line)["reason"] for line in log.getvalue().splitlines()])
        administrator.config_set("min-replicas-to-write", 1)
    assert told == [
        [],
        ["fewer replicas are online than REDIS_REPLICAS"],
        ["min-replicas-to-write is not set"],
    ]
    await redis.aclose()


async def test_a_take_that_no_replica_would_see_spends_nothing(
    redis_servers: RedisServers, exchanges: Exchanges
) -> None:
    """Both replicas are silent, though connected: the primary refuses, and the tokens are as good as before.

    It may have a successor, so that it cannot say of any token that it is unknown: not even before it notices.
    """
    tokens, unknown = await exchanges.mint(40), PREFIX + new_secret()
    primary, replicas = redis_servers.primary, redis_servers.replicas
    for replica in replicas:
        replica.freeze()
    assert await exchanges.race([unknown], racers=2) == {"unavailable": 2}
    await eventually_here(lambda: redis_servers.replication(primary)["min_slaves_good_slaves"] == 0)
    assert await exchanges.race([*tokens, unknown], racers=1) == {"unavailable": len(tokens) + 1}
    for replica in replicas:
        replica.thaw()
    await eventually_here(lambda: redis_servers.replication(primary)["min_slaves_good_slaves"] == 2)
    assert await exchanges.race([*tokens, unknown], racers=1) == {"taken": len(tokens), "refused": 1}
    with redis_servers.administering(primary) as client:
        assert client.exists(subject_token_key(TENANT, unknown)) == 0


@pytest.mark.parametrize("batched", [True, False])
async def test_the_sentinels_are_asked_soon_about_a_primary_without_replicas(
    redis_servers: RedisServers, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a successor, and be cut off from it: a refused write does not wait until its connection is old."""
    monkeypatch.setattr("identity_common.stores.redis_primary._KEPT_S", 3600)
    redis = connect_redis(redis_servers.url("default"))
    commands = RedisCommands(redis)

    async def execute(*command: str) -> object:
        return await (commands.execute(*command) if batched else execute_on_replicas(redis, *command, replicas=0))

    primary, replicas = redis_servers.primary, redis_servers.replicas
    for replica in replicas:
        replica.freeze()
    try:
        await eventually_here(lambda: redis_servers.replication(primary)["min_slaves_good_slaves"] == 0)
        connected = await execute("CLIENT", "ID")
        with pytest.raises(StoreUnavailable, match="too few replicas"):
            await execute("SET", "key", "value")
        async with asyncio.timeout(WAIT_S):
            while await execute("CLIENT", "ID") == connected:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.1)
    finally:
        for replica in replicas:
            replica.thaw()
    await redis.aclose()
    await eventually_here(redis_servers.is_whole)


async def test_services_follow_a_planned_failover(
    redis_servers: RedisServers, own_addresses: ServerAddresses, tmp_path: Path
) -> None:
    """The old primary lives, and keeps its clients until the sentinels demote it."""
    settings = {"REDIS_REPLICAS": "1"}
    addresses = redis_servers.addresses(own_addresses)
    deployment = Deployment(addresses, tmp_path, token_settings=settings, management_settings=settings)
    await asyncio.to_thread(follow_a_planned_failover, redis_servers, deployment)


def follow_a_planned_failover(redis_servers: RedisServers, deployment: Deployment) -> None:
    def works() -> bool:
        try:
            subject_token = management.subject_tokens.create(impersonation.user_id).token
        except Unavailable:
            return False
        statuses = [exchange(deployment.tokens[0].url, impersonation, subject_token).status_code for _ in range(2)]
        assert statuses.count(200) <= 1
        assert set(statuses) <= {200, 400, 503}
        return 200 in statuses

    with deployment, deployment.management_client() as management:
        impersonation = set_up(management)
        eventually(works)
        before = redis_servers.primary
        redis_servers.fail_over()
        eventually(lambda: works() and {"management", "token"} <= redis_servers.users_of(redis_servers.primary))
        redis_servers.follow_primary(before)


async def test_no_token_is_spent_twice_when_a_lagging_replica_is_promoted(
    redis_servers: RedisServers, exchanges: Exchanges
) -> None:
    """The one replica that has acknowledged the takes freezes with the primary; both come back."""
    for _ in range(FAILOVERS):
        await eventually_here(redis_servers.is_whole)
        await fail_over_under_racing_takes(redis_servers, exchanges)
        assert max(exchanges.spent.values()) == 1
        await exchanges.one_is_taken()


async def fail_over_under_racing_takes(redis_servers: RedisServers, exchanges: Exchanges) -> None:
    tokens = await exchanges.mint(TOKENS)
    primary, (lagging, other) = redis_servers.primary, redis_servers.replicas
    minted = redis_servers.replication(primary)["master_repl_offset"]
    await eventually_here(lambda: redis_servers.replication(lagging)["slave_repl_offset"] >= minted)

    redis_servers.cut_off(lagging)
    lagging.freeze()  # or a sentinel would mend it
    racing = asyncio.create_task(exchanges.race(tokens, racers=4))
    await eventually_here(lambda: sum(exchanges.spent[token] for token in tokens) > SPENT)
    primary.freeze()
    other.freeze()
    lagging.thaw()
    await eventually_here(lambda: redis_servers.primary is lagging)
    other.thaw()
    redis_servers.follow_primary(other)
    await racing
    assert (await exchanges.race(tokens, racers=2))["taken"] == 0
    new = await exchanges.mint(NEW)
    primary.thaw()
    await exchanges.are_not_unknown_at(redis_servers.url_of(primary, "token"), new)
    await exchanges.race(tokens, racers=2)
    redis_servers.follow_primary(primary)
    assert sum(exchanges.spent[token] for token in new) == 0
    async with asyncio.timeout(WAIT_S):
        while (await exchanges.race(new, racers=1))["unavailable"]:
            pass
    # One whose take was acknowledged too late may be spent without success, on a busy machine.
    assert any(exchanges.spent[token] for token in new)
