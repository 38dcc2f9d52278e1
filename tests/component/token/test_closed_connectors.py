"""Replicas that learn of a closed connector at their start, which they missed: what came through it ends, once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio
from sqlalchemy import text

from identity_common.authentication import AtProvider, UsedFactor
from identity_common.clock import now_ms
from identity_common.stores.redis import RedisCommands
from identity_common.wire.events import ConnectorState
from provision import ServerAddresses
from tests.support.authorizing import Stores, Verifier, begin, code_for, opened
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually_here
from token_service.authorizations import Consented
from token_service.directory import Connectors
from token_service.sign_in.closed_connectors import ClosedConnectors
from token_service.sign_in.ending import SessionEnds
from token_service.sign_in.sessions import Sessions

HOUR_MS = 3_600_000


class Replica:
    """The stores of a replica, and what it knows of connectors."""

    def __init__(self, stores: Stores, tenant_id: str) -> None:
        self.stores = stores
        self.sessions = Sessions(RedisCommands(stores.redis), stores.redis, tenant_id=tenant_id, replicas=0)
        self.connectors = Connectors()
        self._watch = ClosedConnectors(self.connectors, SessionEnds(self.sessions, stores.authorizations))

    async def sign_in(self, connector_id: str, at: int) -> tuple[str, str]:
        """Sign in through a connector; return the cookie, and the id of an authorization with a live token."""
        provider = AtProvider(connector_id=connector_id, revision=1)
        cookie, session = await self.sessions.sign_in(
            "user", judged_at=at, tokens_valid_after=0, method="provider", provider=provider
        )
        code = code_for(
            *("user", "app", Verifier()),
            consented=Consented(scopes=frozenset({"openid"})),
            auth_time=at,
            session_id=session.id,
            factors=(UsedFactor("provider", at, provider),),
        )
        await begin(self.stores, code.authorization)
        redeemed, _ = await self.stores.refresh_tokens.redeem(
            code.authorization.id, tokens_expire_at=now_ms() + HOUR_MS, issued_at=at, expires_at=now_ms() + HOUR_MS
        )
        assert redeemed
        return cookie, code.authorization.id

    async def starts(self, *states: ConnectorState) -> None:
        """Read these states, and end what came through those that were closed."""
        for state in states:
            self.connectors.put(state)
        self._watch.loop.start()
        await eventually_here(lambda: not self.connectors.closed())
        await self._watch.loop.stop()

    async def revoked(self, authorization_id: str) -> int:
        statement = text("SELECT count(*) FROM revocations WHERE id = :id")
        async with self.stores.engine.connect() as connection:
            return int(await connection.scalar(statement, {"id": authorization_id}) or 0)


@pytest_asyncio.fixture
async def replicas(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[list[Replica]]:
    tenant_id = f"t{secrets.token_hex(6)}"
    addresses = {"database_url": servers.token_database_url, "redis_url": servers.token_redis_url}
    async with AsyncExitStack() as stacked:
        stores = [await stacked.enter_async_context(opened(**addresses, tenant_id=tenant_id)) for _ in range(2)]
        yield [Replica(each, tenant_id) for each in stores]


async def test_what_came_before_the_closing_ends_although_the_connector_is_open_again(replicas: list[Replica]) -> None:
    replica, now = replicas[0], now_ms()
    before, after = await replica.sign_in("c", now - 2_000), await replica.sign_in("c", now)
    elsewhere = await replica.sign_in("other", now - 2_000)
    reopened = ConnectorState(id="c", is_open=True, closed_at=now - 1_000)
    await asyncio.gather(*(each.starts(reopened, ConnectorState(id="other", is_open=True)) for each in replicas))
    found = [await replica.sessions.find(cookie) is not None for cookie, _ in (before, after, elsewhere)]
    assert found == [False, True, True]
    assert [await replica.revoked(each) for _, each in (before, after, elsewhere)] == [1, 0, 0]


async def test_everything_ends_with_a_deleted_connector(replicas: list[Replica]) -> None:
    replica = replicas[0]
    signed_in = [await replica.sign_in("c", now_ms()) for _ in range(3)]
    await asyncio.gather(*(each.starts(ConnectorState(id="c", deleted=True)) for each in replicas))
    assert [await replica.sessions.find(cookie) for cookie, _ in signed_in] == [None] * 3
    assert [await replica.revoked(authorization_id) for _, authorization_id in signed_in] == [1] * 3
