"""Sessions in a real Redis: which secret opens which session, and when a session continues."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from identity_common.authentication import AtProvider, Authentication, FactorMethod, UsedFactor
from identity_common.clock import now_ms
from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import Argument, RedisCommands, connect_redis
from provision import ServerAddresses
from token_service.authorizations import Through
from token_service.sign_in.sessions import REMEMBERED_TTL_S, SESSION_TTL_S, Session, Sessions, SignInEndedError

AHEAD = 10**15
"""A time later than now: a sign-in is never earlier than tokensValidAfter."""


@pytest.fixture
async def redis(servers: ServerAddresses) -> AsyncIterator[Redis]:
    redis = connect_redis(servers.token_redis_url)
    yield redis
    await redis.aclose()


@pytest.fixture
def tenant_id() -> str:
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def sessions(redis: Redis, tenant_id: str) -> Sessions:
    return Sessions(RedisCommands(redis), redis, tenant_id=tenant_id, replicas=0)


async def test_a_session_continues_under_a_new_secret(sessions: Sessions) -> None:
    first_cookie, first = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    assert await sessions.find(first_cookie) == first
    second_cookie, second = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, earlier=first)
    assert second.id == first.id
    assert await sessions.find(second_cookie) == second
    assert await sessions.find(first_cookie) is None, "the earlier secret opens nothing"
    assert await sessions.is_alive(first)
    await sessions.end(first)
    assert (await sessions.find(second_cookie), await sessions.is_alive(second)) == (None, False)


async def test_an_ended_session_does_not_continue(sessions: Sessions) -> None:
    """The user signed out in another tab during the password check."""
    cookie, ended = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    await sessions.end(ended)
    _, anew = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, earlier=ended)
    assert anew.id != ended.id
    assert await sessions.find(cookie) is None


@pytest.mark.heavy
async def test_a_session_that_a_failover_might_bring_back_is_not_called_ended(redis: Redis, tenant_id: str) -> None:
    sessions = Sessions(RedisCommands(redis), redis, tenant_id=tenant_id, replicas=1)
    _, session = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    with pytest.raises(StoreUnavailable, match="too few replicas"):
        await sessions.end(session)


async def test_a_session_of_another_user_does_not_continue(sessions: Sessions) -> None:
    cookie, hers = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    _, his = await sessions.sign_in("bob", judged_at=now_ms(), tokens_valid_after=0, earlier=hers)
    assert his.id != hers.id
    assert await sessions.find(cookie) == hers


async def test_nothing_else_opens_a_session(sessions: Sessions) -> None:
    cookie, session = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
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


async def test_a_sign_in_is_dated_before_its_factor_was_judged(sessions: Sessions) -> None:
    """So that a password change or a reset ends it that came while the password was checked."""
    judged_at = now_ms() - 4_000
    _, session = await sessions.sign_in("ada", judged_at=judged_at, tokens_valid_after=0)
    assert (session.signed_in_at, session.authentication.auth_time) == (judged_at, judged_at)
    assert session.expires_at > now_ms() + (SESSION_TTL_S - 60) * 1000


async def test_a_sign_in_is_never_earlier_than_tokens_valid_after(sessions: Sessions) -> None:
    """That is a time by the clock of another machine (docs/decisions/0004)."""
    _, session = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=10**15)
    assert (session.signed_in_at, session.authentication.valid_since) == (10**15, 10**15)


async def test_what_a_sign_in_was_judged_against_stays_whatever_factor_follows(sessions: Sessions) -> None:
    """So that a reset ends it that came after the first factor, by whatever clock."""
    cookie, begun = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=7_000)
    _, added = await sessions.add_factor(begun, "authenticator") or (cookie, begun)
    _, again = await sessions.add_factor(added, "password") or (cookie, added)
    assert [each.authentication.valid_since for each in (begun, added, again)] == [7_000] * 3
    assert again.authentication.factors[0].method == "authenticator", "it no longer has the first factor's time"


class RecordedCommands(RedisCommands):
    """Records the names of the commands that it sends."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.sent: list[Argument] = []

    def execute(self, *command: Argument) -> asyncio.Future[Any]:
        self.sent.append(command[0])
        return super().execute(*command)


class Earlier(msgspec.Struct, frozen=True, kw_only=True, tag="session.v2"):
    """A session as the previous version reads and writes it."""

    id: str
    user_id: str
    signed_in_at: int
    secret_sha256: str


async def listed(sessions: Sessions, user_id: str = "ada", **page: int) -> tuple[int, list[str]]:
    total, found = await sessions.all_of_user(user_id, **{"since": 0, "offset": 0, "limit": 100, **page})
    return total, [each.id for each in found]


async def test_a_session_says_where_and_when_the_user_signed_in(redis: Redis, tenant_id: str) -> None:
    now = iter((5_000, 9_000))
    sessions = Sessions(RedisCommands(redis), redis, tenant_id=tenant_id, replicas=0, clock=lambda: next(now))
    _, first = await sessions.sign_in(
        "ada", judged_at=5_000, tokens_valid_after=0, address="a" * 500, user_agent="\u202e<b>" * 500
    )
    _, again = await sessions.sign_in(
        "ada",
        judged_at=9_000,
        tokens_valid_after=0,
        earlier=first,
        is_remembered=True,
        address="192.0.2.1",
        user_agent="Firefox",
    )
    assert (first.created_at, first.signed_in_at, first.expires_at) == (5_000, 5_000, 5_000 + SESSION_TTL_S * 1000)
    assert (len(first.address), len(first.user_agent)) == (128, 256)
    assert again == Session(
        id=first.id,
        user_id="ada",
        signed_in_at=9_000,
        secret_sha256=again.secret_sha256,
        created_at=5_000,
        expires_at=9_000 + REMEMBERED_TTL_S * 1000,
        address="192.0.2.1",
        user_agent="Firefox",
        factors=(UsedFactor("password", 9_000),),
        judged_valid_after=0,
    )


async def test_the_sessions_of_a_user_are_listed_until_they_end(
    redis: Redis, sessions: Sessions, tenant_id: str
) -> None:
    begun = [
        (await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=at))[1]
        for at in (AHEAD, AHEAD + 2, AHEAD + 1)
    ]
    await sessions.sign_in("bob", judged_at=now_ms(), tokens_valid_after=0)
    oldest, newest, middle = (each.id for each in begun)
    assert await listed(sessions) == (3, [newest, middle, oldest])
    assert await listed(sessions, offset=1, limit=1) == (3, [middle])
    assert await listed(sessions, offset=3) == (3, [])
    assert await listed(sessions, since=AHEAD + 1) == (2, [newest, middle])
    assert await sessions.of_user("ada", newest) == begun[1]
    assert (await sessions.of_user("bob", newest), await sessions.of_user("ada", "x" * 5_000)) == (None, None)

    await sessions.end(begun[1])
    await sessions.end(begun[1])
    assert await listed(sessions) == (1, [middle])
    await redis.delete(f"identity:{tenant_id}:session:{middle}")  # as it expires
    assert await listed(sessions) == (0, [])
    assert not await redis.exists(f"identity:{tenant_id}:sessions-of:ada")


async def test_a_thousand_sessions_are_listed_page_by_page(sessions: Sessions) -> None:
    signing_in = [
        sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=AHEAD + place) for place in range(1_000)
    ]
    ids = [session.id for _, session in await asyncio.gather(*signing_in)]
    pages = [await listed(sessions, offset=offset) for offset in range(0, 1_000, 100)]
    assert [total for total, _ in pages] == [1_000] * 10
    assert [each for _, page in pages for each in page] == ids[::-1]


async def test_ends_and_sign_ins_in_turn_leave_no_session_that_is_not_listed(sessions: Sessions) -> None:
    _, session = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    for _ in range(25):
        ending = sessions.end(session)
        again = [sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, earlier=session) for _ in range(3)]
        _, *signed_in = await asyncio.gather(ending, *again)
        kept = {found.id for cookie, _ in signed_in if (found := await sessions.find(cookie))}
        assert kept == set((await listed(sessions))[1])
        for each in kept:
            await sessions.end(msgspec.structs.replace(session, id=each))
        _, session = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)


async def test_a_second_factor_continues_the_session_under_a_new_secret(redis: Redis, sessions: Sessions) -> None:
    cookie, begun = await sessions.sign_in(
        "ada", judged_at=now_ms(), tokens_valid_after=0, address="192.0.2.1", is_remembered=True
    )
    assert begun.authentication == Authentication((UsedFactor("password", begun.signed_in_at),), 0)
    added_cookie, added = await sessions.add_factor(begun, "authenticator") or ("", begun)
    assert (await sessions.find(cookie), await sessions.find(added_cookie)) == (None, added)
    first, second = added.authentication.factors
    assert (first, second.method, added.authentication.level) == (begun.factors[0], "authenticator", "mfa")
    assert added == msgspec.structs.replace(begun, secret_sha256=added.secret_sha256, factors=(first, second))
    left_s = await redis.ttl(sessions._key(begun.id))
    assert REMEMBERED_TTL_S - 60 < left_s <= REMEMBERED_TTL_S

    _, again = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, earlier=added)
    assert again.authentication.level == "password", "a new sign-in begins from nothing"


async def test_of_factors_added_at_once_or_to_what_has_ended_none_revives_a_session(sessions: Sessions) -> None:
    _, begun = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    adding = await asyncio.gather(*(sessions.add_factor(begun, "passkey") for _ in range(50)))
    assert sum(added is not None for added in adding) == 1
    [kept] = [added[1] for added in adding if added is not None]
    _, again = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, earlier=kept)
    assert await sessions.add_factor(kept, "passkey") is None, "the user has signed in again"
    await sessions.end(again)
    assert await sessions.add_factor(again, "passkey") is None
    assert not await sessions.is_alive(again)


async def test_sessions_of_the_previous_version_are_valid_and_listed_once_they_are_used(
    redis: Redis, sessions: Sessions, tenant_id: str
) -> None:
    """During an upgrade replicas of both versions read and write them."""
    cookie, session = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, user_agent="Firefox")
    key = f"identity:{tenant_id}:session:{session.id}"
    known = ("id", "user_id", "signed_in_at", "secret_sha256")
    earlier = Earlier(**{name: getattr(session, name) for name in known})
    assert msgspec.json.decode(await redis.get(key), type=Earlier) == earlier

    await redis.set(key, msgspec.json.encode(earlier), ex=60)
    await redis.delete(f"identity:{tenant_id}:sessions-of:ada")
    assert await sessions.find(f"{session.id}.wrong") is None
    assert await listed(sessions) == (0, [])
    found = await sessions.find(cookie)
    assert found == msgspec.structs.replace(
        session, created_at=0, expires_at=0, user_agent="", factors=(), judged_valid_after=None
    )
    assert found.authentication.factors == session.authentication.factors
    assert found.authentication.valid_since == session.signed_in_at
    assert await listed(sessions) == (1, [session.id])
    _, renewed = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0, earlier=found)
    assert (renewed.id, renewed.created_at) == (session.id, session.signed_in_at)


async def test_a_sign_in_costs_one_command(redis: Redis, tenant_id: str) -> None:
    commands = RecordedCommands(redis)
    sessions = Sessions(commands, redis, tenant_id=tenant_id, replicas=0)
    cookie, _ = await sessions.sign_in("ada", judged_at=now_ms(), tokens_valid_after=0)
    again, _ = await sessions.sign_in(
        "ada", judged_at=now_ms(), tokens_valid_after=0, earlier=await sessions.find(cookie)
    )
    assert await sessions.find(again)
    assert commands.sent == ["EVAL", "GET", "EVAL", "GET"]


async def test_sessions_end_with_their_connector_their_person_or_their_session_at_the_provider(
    sessions: Sessions,
) -> None:
    at = now_ms()

    async def signed_in(user_id: str, connector_id: str | None, at_provider: str | None = None) -> str:
        provider = connector_id and AtProvider(connector_id=connector_id, revision=1, session_id=at_provider)
        method: FactorMethod = "provider" if provider else "password"
        _, session = await sessions.sign_in(
            user_id, judged_at=at, tokens_valid_after=0, method=method, provider=provider or None
        )
        return session.id

    async def ended(**which: Any) -> set[str]:
        return {each.id for each in await sessions.end_through(Through(**which))}

    by_password = await signed_in("ada", None)
    elsewhere = await signed_in("ada", "other", "s1")
    first, second = await signed_in("ada", "c", "s1"), await signed_in("ada", "c", "s2")
    others = {await signed_in("bob", "c") for _ in range(150)}
    assert await ended(connector_id="c", provider_session_id="s1") == {first}
    assert await ended(connector_id="c", user_id="ada") == {second}
    assert await ended(connector_id="c", before=at) == set()
    assert await ended(connector_id="c", before=at + 1) == others
    assert await ended(connector_id="c") == set()
    _, found = await sessions.all_of_user("ada", since=0, offset=0, limit=10)
    assert {each.id for each in found} == {by_password, elsewhere}


async def test_a_session_that_was_signed_in_to_otherwise_since_outlives_its_connector(sessions: Sessions) -> None:
    provider = AtProvider(connector_id="c", revision=1)
    _, first = await sessions.sign_in("ada", judged_at=1, tokens_valid_after=0, method="provider", provider=provider)
    _, again = await sessions.sign_in("ada", judged_at=2, tokens_valid_after=0, earlier=first)
    assert again.id == first.id
    assert await sessions.end_through(Through(connector_id="c")) == []
    added = await sessions.add_factor(again, "provider", provider=provider, tokens_valid_after=9)
    assert added is not None
    assert added[1].signed_in_at == 9
    assert await sessions.end_through(Through(connector_id="c")) == [added[1]]


async def test_a_sign_in_that_was_under_way_when_it_ended_at_the_provider_begins_no_session(sessions: Sessions) -> None:
    """What ends it finds no session yet. Of a person, those end that were back; of a session there, all in it."""
    at = now_ms()
    await sessions.mark_ended("c", subject="ada", until=at)
    await sessions.mark_ended("c", provider_session_id="s1", until=at)
    await sessions.mark_ended("c", subject="ada", until=at - 50)  # a repeated logout token, or one that came late

    async def begins(judged_at: int, **members: Any) -> bool:
        provider = AtProvider(**{"connector_id": "c", "revision": 1, "subject": "bob", **members})
        sign_in = {"judged_at": judged_at, "tokens_valid_after": AHEAD, "method": "provider", "provider": provider}
        try:
            _, session = await sessions.sign_in("ada", **sign_in)
        except SignInEndedError:
            return False
        return await sessions.is_alive(session)

    assert not await begins(at, subject="ada")
    assert not await begins(at + 20, session_id="s1", begun_at=at), "it is this session, whenever the browser is back"
    assert await begins(at + 1, subject="ada")
    assert await begins(at + 20, session_id="s1", begun_at=at + 1)
    for other in ({"subject": "ada", "connector_id": "d"}, {"subject": None}, {"session_id": "s2"}):
        assert await begins(at, **other), other
    _, session = await sessions.sign_in("ada", judged_at=at + 1, tokens_valid_after=0)
    provider = AtProvider(connector_id="c", revision=1, subject="ada", begun_at=at)
    assert await sessions.add_factor(session, "provider", provider=provider) is None, "the account was to be linked"
    later = msgspec.structs.replace(provider, begun_at=at + 1)
    assert await sessions.add_factor(session, "provider", provider=later) is not None
