"""Recorded inputs of the custom-claims function: none outlives its recording, whichever replica has recorded it."""

import asyncio
import base64
import os
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from identity_common.identifiers import new_id
from identity_common.sealing import SealingKeys
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.claims_function import ClaimsFunctionRequests, DryRun, DryRunAnswer, Function
from provision import ServerAddresses
from token_service.claims_function.answers import ClaimsFunctionAnswers
from token_service.claims_function.context import (
    ApplicationOfContext,
    Arguments,
    Context,
    GrantOfContext,
    TokenArgument,
)
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recordings
from token_service.claims_function.sandbox import ClaimsWorkers, Limits

pytestmark = pytest.mark.servers

KIND: Final = "client-credentials"


class Replicas:
    """Two replicas of a tenant of its own."""

    def __init__(self, servers: ServerAddresses) -> None:
        self.redis: Redis = connect_redis(servers.token_redis_url)
        self._commands = RedisCommands(self.redis)
        self._tenant_id = f"t{new_id()}"
        self.keys = SealingKeys([base64.b64encode(os.urandom(32)).decode()])
        self.one, self.other = (Recordings(self._commands, self.keys, tenant_id=self._tenant_id) for _ in range(2))

    async def record(self, recordings: Recordings) -> None:
        """Record an input, and wait until Redis has it: a batch of commands keeps its order."""
        token = TokenArgument(jti="t", aud="x", scope="", client_id="app", kind="ClientCredentials")
        application = ApplicationOfContext(
            id="app", name="n", type="MachineToMachine", is_third_party=False, custom_data=msgspec.Raw(b"{}")
        )
        context = Context(grant=GrantOfContext(type="client_credentials"), application=application)
        recordings.add(KIND, Arguments(token=token, context=context))
        await self._commands.execute("GET", "identity:nothing")

    async def longest_ms(self) -> int:
        """Return the longest TTL of what Redis has of the recording; 0 if it has nothing."""
        keys = [
            key async for key in self.redis.scan_iter(f"identity:{self._tenant_id}:claims-function:*", count=10_000)
        ]
        ttls = [await self.redis.pttl(key) for key in keys]
        assert -1 not in ttls
        return max(ttls, default=0)


@pytest_asyncio.fixture
async def replicas(servers: ServerAddresses) -> AsyncIterator[Replicas]:
    replicas = Replicas(servers)
    yield replicas
    await replicas.one.end(KIND)
    await replicas.redis.aclose()


async def test_a_shorter_recording_ends_an_earlier_one_with_its_inputs(replicas: Replicas) -> None:
    await replicas.one.begin(KIND, minutes=60)
    await replicas.record(replicas.one)
    assert 60_000 < await replicas.longest_ms() <= 3_600_000
    await replicas.one.begin(KIND, minutes=1)
    assert (await replicas.one.state(KIND)).inputs == 1
    assert 0 < await replicas.longest_ms() <= 60_000


async def test_a_replica_that_does_not_know_of_the_end_yet_records_nothing(replicas: Replicas) -> None:
    await replicas.one.begin(KIND, minutes=60)
    await replicas.other._look()
    await replicas.record(replicas.other)
    assert (await replicas.one.state(KIND)).inputs == 1
    await replicas.one.begin(KIND, minutes=1)
    await replicas.record(replicas.other)
    assert (await replicas.one.state(KIND)).inputs == 2
    assert 0 < await replicas.longest_ms() <= 60_000
    await replicas.one.end(KIND)
    assert replicas.other.is_on(KIND)
    await replicas.record(replicas.other)
    assert (await replicas.one.state(KIND)).inputs == 0
    assert await replicas.longest_ms() == 0


class Answers:
    """What answers for the first replica, with two workers."""

    def __init__(self, replicas: Replicas, *, time_ms: int) -> None:
        self.workers = ClaimsWorkers(Limits(time_ms=time_ms), 2)
        self.on_demand = WorkersOnDemand(self.workers, count=2)
        self._answers = ClaimsFunctionAnswers(
            ClaimsFunctionRequests(replicas.keys, tenant_id="default"),
            self.on_demand,
            replicas.one,
            FailedCalls(RedisCommands(replicas.redis), tenant_id="default"),
            worker_count=2,
        )

    async def dry_run(self, script: str, *, timeout_ms: int) -> DryRunAnswer:
        question = DryRun(kind=KIND, candidate=Function(script=script), timeout_ms=timeout_ms)
        answer = await self._answers.answer(question, deadline=time.monotonic() + 60)
        assert isinstance(answer, DryRunAnswer)
        return answer


async def test_a_dry_run_has_all_workers_run_inputs_at_once(replicas: Replicas) -> None:
    await replicas.one.begin(KIND, minutes=60)
    for _ in range(4):
        await replicas.record(replicas.one)
    answers = Answers(replicas, time_ms=2000)
    spin = (
        "const getCustomJwtClaims = () => { for (const end = Date.now() + 50; Date.now() < end; ); return { a: 1 }; };"
    )
    asked = asyncio.create_task(answers.dry_run(spin, timeout_ms=60_000))
    busy = 0
    while not asked.done():
        busy = max(busy, len(answers.workers.pids) - answers.workers.free)
        await asyncio.sleep(0.001)
    await answers.on_demand.stop()
    answer = await asked
    assert (busy, answer.omitted) == (2, 0)
    recorded = [each.at for each in await replicas.one.last(KIND)]
    assert [(run.recorded_at, run.added) for run in answer.runs] == [(at, {"a": 1}) for at in recorded]


async def test_a_dry_run_ends_in_time_though_its_calls_may_take_longer(replicas: Replicas) -> None:
    """management-service would not wait for them, and answer 503."""
    await replicas.one.begin(KIND, minutes=60)
    for _ in range(3):
        await replicas.record(replicas.one)
    answers = Answers(replicas, time_ms=600_000)
    loop = "const getCustomJwtClaims = () => { for (;;); };"
    async with asyncio.timeout(60):
        assert await answers.dry_run(loop, timeout_ms=200) == DryRunAnswer(omitted=3)
        instant = "const getCustomJwtClaims = () => ({ a: 1 });"
        assert (await answers.dry_run(instant, timeout_ms=50_000)).omitted == 0
    await answers.on_demand.stop()
