"""Refusals of public clients: their number survives a replica, and takes no place of what must be recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from nats.js import JetStreamContext

from identity_common.oauth import GRANT_AUTHORIZATION_CODE, GRANT_REFRESH_TOKEN
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.audit import AuditEntry
from provision import ServerAddresses
from tests.component.audit.test_exchanges import Trail, jetstream
from tests.support.captured_logs import captured_logs
from tests.support.settable_clock import Time
from tests.support.tcp_proxy import TcpProxy
from token_service.audit import AuditedTokenRequest, TokenAudit

__all__ = ("jetstream",)

pytestmark = pytest.mark.servers

HOUR_S = 3600
JUNK = "invalid_grant"


@pytest_asyncio.fixture
async def trail(servers: ServerAddresses, jetstream: JetStreamContext) -> AsyncIterator[Trail]:
    trail = Trail(servers, jetstream)
    yield trail
    await trail.close()


def public(client_id: str = "spa") -> AuditedTokenRequest:
    return AuditedTokenRequest(client_id=client_id, address="192.0.2.1", is_public=True)


def told(entries: list[AuditEntry]) -> list[tuple[str | None, str, int, int]]:
    return [(each.application_id, each.key, each.count, each.sequence) for each in entries]


async def test_a_count_outlives_the_replica_that_counted(trail: Trail) -> None:
    clock = Time()
    died, other = (TokenAudit(trail.commands, tenant_id=trail.tenant_id, backlog=1000, clock=clock) for _ in range(2))
    for audit in (died, died, other):
        audit.refused(GRANT_REFRESH_TOKEN, public(), JUNK)
        await audit.flush()
    await other.refusals.close_ended()
    assert await trail.waiting() == 1
    clock.pass_s(HOUR_S)
    await other.refusals.close_ended()
    await other.refusals.close_ended()
    other.refused(GRANT_REFRESH_TOKEN, public(), JUNK)  # another window
    await other.flush()
    await trail.start()
    key = "token.refresh-token.refused"
    assert told(await trail.published(3)) == [("spa", key, 1, 1), ("spa", key, 2, 2), ("spa", key, 1, 3)]


async def test_a_window_with_one_refusal_leaves_one_entry(trail: Trail) -> None:
    clock = Time()
    audit = TokenAudit(trail.commands, tenant_id=trail.tenant_id, backlog=1000, clock=clock)
    audit.refused(GRANT_REFRESH_TOKEN, public(), JUNK)
    await audit.flush()
    clock.pass_s(HOUR_S)
    await audit.refusals.close_ended()
    assert await trail.waiting() == 1
    assert await trail.redis.exists(f"{audit.keys.stream}:windows", f"{audit.keys.stream}:counted") == 0


async def test_open_windows_take_places_of_entries_that_may_be_dropped(trail: Trail) -> None:
    """At half of the backlog a new window is a gap in the numbers, an open one goes on, and none is closed."""
    clock = Time()
    audit = TokenAudit(trail.commands, tenant_id=trail.tenant_id, backlog=8, clock=clock)
    for client_id in ("a", "b"):
        audit.refused(GRANT_REFRESH_TOKEN, public(client_id=client_id), JUNK)
    with captured_logs("token") as log:
        audit.refused(GRANT_REFRESH_TOKEN, public(client_id="c"), JUNK)
        await audit.flush()
    assert "the backlog is half full" in log.getvalue()
    for _ in range(3):
        audit.refused(GRANT_REFRESH_TOKEN, public(client_id="a"), JUNK)
        audit.refused(GRANT_AUTHORIZATION_CODE, AuditedTokenRequest(client_id="web"), JUNK)  # one is dropped
    await audit.flush()
    clock.pass_s(HOUR_S)
    await audit.refusals.close_ended()
    assert await trail.waiting() == 4
    await trail.start()
    await trail.emptied()
    await audit.refusals.close_ended()
    refresh, code = "token.refresh-token.refused", "token.authorization-code.refused"
    assert sorted(told(await trail.published(5)), key=lambda each: each[3]) == [
        ("a", refresh, 1, 1),
        ("b", refresh, 1, 2),
        ("web", code, 1, 5),  # the numbers of a batch follow those that are missing
        ("web", code, 1, 6),
        ("a", refresh, 3, 7),
    ]


async def test_what_is_not_counted_while_redis_is_away_is_a_gap(trail: Trail, servers: ServerAddresses) -> None:
    async with TcpProxy(servers.token_redis_url) as wire:
        redis = connect_redis(wire.url)
        audit = TokenAudit(RedisCommands(redis), tenant_id=trail.tenant_id, backlog=1000)
        audit.refused(GRANT_REFRESH_TOKEN, public(), JUNK)
        await audit.flush()
        await wire.cut()
        with captured_logs("token") as log:
            for _ in range(3):
                audit.refused(GRANT_REFRESH_TOKEN, public(), JUNK)
            await audit.flush()
        await wire.mend()
        audit.refused(GRANT_REFRESH_TOKEN, AuditedTokenRequest(client_id="web"), JUNK)
        await audit.flush()
        await redis.aclose()
    await trail.start()
    key = "token.refresh-token.refused"
    assert told(await trail.published(2)) == [("spa", key, 1, 1), ("web", key, 1, 5)]
    assert log.getvalue().count('"audit.entry-lost"') == 3
