"""Sessions in a real Redis: which secret opens which session, and when a session continues."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import RedisCommands, connect_redis
from provision import ServerAddresses
from token_service.sign_in.sessions import Sessions


@pytest.fixture
async def redis(servers: ServerAddresses) -> AsyncIterator[Redis]:
    redis = connect_redis(servers.token_redis_url)
    yield redis
    await redis.aclose()


@pytest.fixture
def sessions(redis: Redis) -> Sessions:
    return sessions_of(redis, replicas=0)


def sessions_of(redis: Redis, *, replicas: int) -> Sessions:
    return Sessions(RedisCommands(redis), redis, tenant_id=f"t{secrets.token_hex(6)}", replicas=replicas)


async def test_a_session_continues_under_a_new_secret(sessions: Sessions) -> None:
    first_cookie, first = await sessions.sign_in("ada", tokens_valid_after=0)
    assert await sessions.find(first_cookie) == first
    second_cookie, second = await sessions.sign_in("ada", tokens_valid_after=0, earlier=first)
    assert second.id == first.id
    assert await sessions.find(second_cookie) == second
    assert await sessions.find(first_cookie) is None, "the earlier secret opens nothing"
    assert await sessions.is_alive(first)
    await sessions.end(first)
    assert (await sessions.find(second_cookie), await sessions.is_alive(second)) == (None, False)


async def test_an_ended_session_does_not_continue(sessions: Sessions) -> None:
    """The user signed out in another tab during the password check."""
    cookie, ended = await sessions.sign_in("ada", tokens_valid_after=0)
    await sessions.end(ended)
    _, anew = await sessions.sign_in("ada", tokens_valid_after=0, earlier=ended)
    assert anew.id != ended.id
    assert await sessions.find(cookie) is None


@pytest.mark.heavy
async def test_a_session_that_a_failover_might_bring_back_is_not_called_ended(redis: Redis) -> None:
    sessions = sessions_of(redis, replicas=1)
    _, session = await sessions.sign_in("ada", tokens_valid_after=0)
    with pytest.raises(StoreUnavailable, match="too few replicas"):
        await sessions.end(session)


async def test_a_session_of_another_user_does_not_continue(sessions: Sessions) -> None:
    cookie, hers = await sessions.sign_in("ada", tokens_valid_after=0)
    _, his = await sessions.sign_in("bob", tokens_valid_after=0, earlier=hers)
    assert his.id != hers.id
    assert await sessions.find(cookie) == hers


async def test_nothing_else_opens_a_session(sessions: Sessions) -> None:
    cookie, session = await sessions.sign_in("ada", tokens_valid_after=0)
    session_id, secret = cookie.split(".")
    hashed = session.secret_sha256
    for wrong in (
        None,
        "",
        ".",
        session_id,
        secret,
        f"{session_id}.",
        f"{session_id}.x",
        f"{session_id}.{hashed}",
        f".{secret}",
    ):
        assert await sessions.find(wrong) is None


async def test_a_sign_in_is_never_earlier_than_tokens_valid_after(sessions: Sessions) -> None:
    """That is a time by the clock of another machine (docs/decisions/0004)."""
    _, session = await sessions.sign_in("ada", tokens_valid_after=10**15)
    assert session.signed_in_at == 10**15
