"""Reserving a place at a worker, and what becomes of it when the function changes meanwhile."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
import pytest_asyncio

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamMessage
from identity_common.failures import Refused, TemporarilyUnavailable
from identity_common.sealing import SealingKeys
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.claims_function import SealedVariables
from identity_common.wire.events import ApplicationState, ClaimsFunctionState, event_subject
from stead.event_types import CloudEvent
from token_service.claims_function import CustomClaims
from token_service.claims_function.context import Arguments, TokenArgument, TooManyOrganizations, client_context
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recordings
from token_service.claims_function.sandbox import ClaimsWorkers, Limits
from token_service.directory import InMemoryDirectory

UNREACHABLE = "127.0.0.1:9"
ECHO = "const getCustomJwtClaims = async ({ token, environmentVariables }) => ({ jti: 1, of: token.jti });"


def keys() -> SealingKeys:
    return SealingKeys([base64.b64encode(os.urandom(32)).decode()])


class Custom:
    """The claims function over a directory that the test feeds, with one worker."""

    def __init__(self) -> None:
        self.in_memory = InMemoryDirectory(Bus(f"nats://{UNREACHABLE}", service="token"), tenant_id="default")
        self.redis = connect_redis(f"redis://{UNREACHABLE}")
        commands, own = RedisCommands(self.redis), keys()
        self.workers = WorkersOnDemand(ClaimsWorkers(Limits(time_ms=2000), 1), count=1)
        self.failures = FailedCalls(commands, tenant_id="default")
        self.claims = CustomClaims(
            self.in_memory,
            self.workers,
            SealedVariables(own, tenant_id="default"),
            Recordings(commands, own, tenant_id="default"),
            self.failures,
        )
        self._revision = 0

    def receives(self, state: ClaimsFunctionState) -> None:
        self._revision += 1
        event = CloudEvent(
            id=f"default:management:{self._revision}",
            source="/management",
            type="claims-function.updated",
            subject=state.kind,
            time="2026-01-01T00:00:00.000Z",
            tenantid="default",
            revision=self._revision,
            data=msgspec.Raw(msgspec.json.encode(state)),
        )
        subject = event_subject("management", "default", "claims-function", state.kind)
        self.in_memory._take("management", Batch([StreamMessage(subject, self._revision, event)], caught_up=True))

    async def arguments(self) -> Arguments:
        client = ApplicationState(id="app")
        context = client_context(self.in_memory, client, grant_type="client_credentials")
        token = TokenArgument(jti="t-1", aud="x", scope="", client_id="app", kind="ClientCredentials")
        return Arguments(token=token, context=context)


@pytest_asyncio.fixture
async def custom() -> AsyncIterator[Custom]:
    custom = Custom()
    yield custom
    await custom.workers.stop()
    await custom.redis.aclose()


async def test_a_function_that_arrives_after_the_reservation_is_called(custom: Custom) -> None:
    """The revision that a subject token carries is awaited when the token is spent already."""
    async with custom.claims.reserved("access-token") as reserved:
        custom.receives(ClaimsFunctionState(kind="access-token", version=1, script=ECHO))
        assert await reserved.claims(custom.arguments) == {"of": "t-1"}


async def test_a_function_that_is_removed_after_the_reservation_is_not_called(custom: Custom) -> None:
    custom.receives(ClaimsFunctionState(kind="access-token", version=1, script=ECHO))
    async with custom.claims.reserved("access-token") as reserved:
        custom.receives(ClaimsFunctionState(kind="access-token", deleted=True))
        assert await reserved.claims(custom.arguments) == {}


async def test_without_a_function_nothing_is_started_and_nothing_gathered(custom: Custom) -> None:
    async def gathered() -> Arguments:
        raise AssertionError("the arguments are not needed")

    custom.receives(ClaimsFunctionState(kind="client-credentials", version=1, script=ECHO))
    async with custom.claims.reserved("access-token") as reserved:
        assert await reserved.claims(gathered) == {}
    assert not custom.workers._is_running


async def test_places_are_limited_and_given_back(custom: Custom) -> None:
    custom.receives(ClaimsFunctionState(kind="access-token", version=1, script=ECHO))
    async with AsyncExitStack() as others:
        for _ in range(8):
            await others.enter_async_context(custom.claims.reserved("access-token"))
        with pytest.raises(TemporarilyUnavailable) as refused:
            await others.enter_async_context(custom.claims.reserved("access-token"))
        assert (refused.value.why, refused.value.retry_after_s) == (
            "no worker is free for the custom-claims function",
            1,
        )
    async with custom.claims.reserved("access-token") as reserved:
        assert await reserved.claims(custom.arguments) == {"of": "t-1"}


async def test_variables_of_another_key_are_a_failure(custom: Custom) -> None:
    sealed = SealedVariables(keys(), tenant_id="default").seal({"A": "b"}, kind="access-token", version=1)
    function = ClaimsFunctionState(kind="access-token", version=1, script=ECHO, sealed_environment_variables=sealed)
    custom.receives(function)
    async with custom.claims.reserved("access-token") as reserved:
        assert await reserved.claims(custom.arguments) == {}
    custom.receives(msgspec.structs.replace(function, block_issuance_on_error=True))
    async with custom.claims.reserved("access-token") as reserved:
        with pytest.raises(Refused, match=r"claims_function\.failed"):
            await reserved.claims(custom.arguments)


async def test_a_user_of_too_many_organizations_is_a_failure(custom: Custom) -> None:
    async def arguments() -> Arguments:
        raise TooManyOrganizations("app")

    function = ClaimsFunctionState(kind="access-token", version=1, script=ECHO)
    custom.receives(function)
    async with custom.claims.reserved("access-token") as reserved:
        assert await reserved.claims(arguments) == {}
    assert custom.failures.count.labels("access-token", "arguments")._value.get() == 1
    custom.receives(msgspec.structs.replace(function, block_issuance_on_error=True))
    async with custom.claims.reserved("access-token") as reserved:
        with pytest.raises(Refused, match=r"claims_function\.failed"):
            await reserved.claims(arguments)
