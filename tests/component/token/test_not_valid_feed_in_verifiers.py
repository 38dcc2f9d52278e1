"""Verifiers with the not-valid feed, over HTTP and NATS: what is ended is refused, and a cut connection is noticed."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import asyncpg
import httpx2 as httpx
import jwt
import nats
import pytest

from identity_common.clock import now_ms
from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid, Unavailable
from stead.verify.feed.messages import subject_of
from tests.support.authorizing import Stores, in_stores
from tests.support.signing_in import SignIn
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S, eventually, round_trip
from tests.support.world import World
from token_service.presented_tokens.revocations import Revocation
from token_service.presented_tokens.revocations.store import insert_revocations

Path = Literal["http", "nats"]

BEYOND_THE_TAIL: Final = 20_000
"""So many records are sent as a snapshot only."""


def feed_over(path: Path, world: World, **changes: Any) -> NotValidFeed:
    client_id, secret = world.machine.basic
    settings = {"client_id": client_id, "client_secret": secret, "base_url": world.stack.base_url, **changes}
    if path == "http":
        return NotValidFeed.over_http(**settings)
    addresses, tenant_id = world.stack.addresses, world.stack.tenant_id
    return NotValidFeed.over_nats(**{"nats_url": addresses.subscriber_nats_url, "tenant_id": tenant_id, **settings})


@asynccontextmanager
async def feed_through_proxy(path: Path, world: World, **changes: Any) -> AsyncIterator[tuple[NotValidFeed, TcpProxy]]:
    """A fresh feed, and the proxy through which it is connected."""
    there = world.stack.base_url if path == "http" else world.stack.addresses.subscriber_nats_url
    async with TcpProxy(there) as proxy:
        through = {"base_url" if path == "http" else "nats_url": proxy.url}
        with feed_over(path, world, **through, issuer=world.stack.issuer, **changes) as feed:
            assert await asyncio.to_thread(feed.wait_until_fresh, WAIT_S)
            yield feed, proxy


@pytest.fixture(scope="module", params=["http", "nats"])
def feed(world: World, request: pytest.FixtureRequest) -> Iterator[NotValidFeed]:
    world.caught_up()
    with feed_over(request.param, world) as feed:
        assert feed.wait_until_fresh(WAIT_S)
        yield feed


def verifier_of(world: World, feed: NotValidFeed | None) -> AccessTokenVerifier:
    return AccessTokenVerifier(base_url=world.stack.base_url, audience=world.resource, feed=feed)


def refusal(verifier: AccessTokenVerifier, token: str) -> str | None:
    try:
        verifier.verify(token)
    except TokenInvalid as invalid:
        return invalid.reason
    except Unavailable:
        return "unavailable"
    return None


def signing_key_of(world: World) -> str:
    """Return the id of the key that signs snapshots."""
    snapshot = world.stack.http.get("/oidc/not-valid", auth=world.machine.basic).content
    return str(jwt.get_unverified_header(snapshot.partition(b"\n")[0])["kid"])


def pass_an_hour(world: World) -> None:
    """Have the keys of the feed be as old as they were in an hour."""

    async def age() -> None:
        connection = await asyncpg.connect(world.stack.token_settings.database_url.replace("+asyncpg", ""))
        await connection.execute("UPDATE not_valid_keys SET created_at = created_at - 3600000")
        await connection.close()

    asyncio.run(age())


def exchanged(world: World, user: str) -> str:
    answer = world.exchange(world.subject_token(user))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


@pytest.mark.servers
def test_a_revoked_token_and_a_suspended_user_are_refused_offline(world: World, feed: NotValidFeed) -> None:
    revoking, plain = verifier_of(world, feed), verifier_of(world, None)
    user = world.user(world.keeper_role)
    one, other = exchanged(world, user), exchanged(world, user)
    assert [refusal(revoking, each) for each in (one, other)] == [None, None]

    world.stack.http.post("/oidc/token/revocation", data={"token": one}, auth=world.traditional.basic)
    eventually(lambda: refusal(revoking, one) == "ended_token")
    assert refusal(revoking, other) is None

    world.management.users.suspend(user)
    eventually(lambda: refusal(revoking, other) == "ended_user")
    assert [refusal(plain, each) for each in (one, other)] == [None, None]


@pytest.mark.heavy
@pytest.mark.parametrize("emergency", [False, True])
def test_the_feed_goes_on_with_another_key(world: World, feed: NotValidFeed, emergency: bool) -> None:
    keys = "/api/configs/oidc/not-valid-keys"
    world.management.request("POST", f"{keys}/rotate", json={"emergency": True})
    made, *_ = world.management.request("POST", f"{keys}/rotate", json={"emergency": emergency})
    if not emergency:
        pass_an_hour(world)
    token, other = exchanged(world, world.customer), exchanged(world, world.customer)
    world.stack.http.post("/oidc/token/revocation", data={"token": token}, auth=world.traditional.basic)
    verifier = verifier_of(world, feed)
    eventually(lambda: signing_key_of(world) == made["id"])
    eventually(lambda: [refusal(verifier, each) for each in (token, other)] == ["ended_token", None])


@pytest.mark.heavy
@pytest.mark.parametrize("path", ["http", pytest.param("nats", marks=pytest.mark.servers)])
async def test_a_cut_connection_is_noticed_and_caught_up_after(world: World, path: Path) -> None:
    token = await asyncio.to_thread(exchanged, world, world.customer)
    ended = await asyncio.to_thread(exchanged, world, world.customer)
    async with feed_through_proxy(path, world, stale_after_s=1.5) as (feed, proxy):
        verifier = verifier_of(world, feed)
        assert await asyncio.to_thread(refusal, verifier, token) is None
        await proxy.cut()
        await asyncio.to_thread(eventually, lambda: refusal(verifier, token) == "unavailable")
        await asyncio.to_thread(
            world.stack.http.post,
            "/oidc/token/revocation",
            data={"token": ended},
            auth=world.traditional.basic,
        )
        assert await asyncio.to_thread(refusal, verifier, ended) == "unavailable"
        await proxy.mend()
        await asyncio.to_thread(eventually, lambda: refusal(verifier, ended) == "ended_token")
        assert await asyncio.to_thread(feed.wait_until_fresh, WAIT_S)
        assert await asyncio.to_thread(refusal, verifier, token) is None


@pytest.mark.heavy
@pytest.mark.parametrize("is_cut_at_last", [False, True])
@pytest.mark.parametrize("path", ["http", "nats"])
async def test_a_black_hole_is_noticed_given_up_and_caught_up_after(
    world: World, path: Path, is_cut_at_last: bool
) -> None:
    """It closes nothing, so only the reader's own timeouts end it."""
    token, ended = [await asyncio.to_thread(exchanged, world, world.customer) for _ in range(2)]
    signed_in = (await asyncio.to_thread(lambda: SignIn(world).tokens(resource=world.resource)))["access_token"]
    async with feed_through_proxy(path, world, stale_after_s=1.5) as (feed, proxy):
        verifier = verifier_of(world, feed)

        def refusals(*tokens: str) -> list[str | None]:
            return [refusal(verifier, each) for each in tokens]

        assert await asyncio.to_thread(refusals, token, ended, signed_in) == [None] * 3
        assert feed.accepted_stale == 0
        connections = proxy.accepted
        proxy.swallow()
        await asyncio.to_thread(eventually, lambda: refusal(verifier, token) == "unavailable")
        revocation = {"data": {"token": ended}, "auth": world.traditional.basic}
        await asyncio.to_thread(world.stack.http.post, "/oidc/token/revocation", **revocation)
        assert await asyncio.to_thread(refusals, ended, token, signed_in) == ["unavailable", "unavailable", None]
        assert feed.accepted_stale == 1
        await asyncio.to_thread(eventually, lambda: proxy.accepted >= connections + 2)  # and again, in vain
        assert not feed.is_fresh

        if is_cut_at_last:
            await proxy.cut()
            await proxy.mend()
        else:
            proxy.pass_on()
        await asyncio.to_thread(eventually, lambda: refusal(verifier, ended) == "ended_token")
        assert await asyncio.to_thread(feed.wait_until_fresh, WAIT_S)
        assert await asyncio.to_thread(refusals, token, signed_in) == [None, None]


def revoke_many(world: World, count: int) -> None:
    """Revoke tokens that no one has, for ten minutes."""

    async def revoke(stores: Stores) -> None:
        async with stores.engine.begin() as connection:
            forget_at = now_ms() + 600_000
            revoked = [Revocation(secrets.token_hex(16), forget_at) for _ in range(count)]
            await insert_revocations(connection, world.stack.tenant_id, revoked)

    in_stores(world.stack.token_settings, revoke)


@pytest.mark.heavy
async def test_a_verifier_that_was_away_for_longer_than_the_tail_catches_up_by_a_snapshot(world: World) -> None:
    """One over HTTP and one over NATS."""
    token, ended = [await asyncio.to_thread(exchanged, world, world.customer) for _ in range(2)]
    async with (
        feed_through_proxy("http", world, stale_after_s=1.5) as (over_http, http),
        feed_through_proxy("nats", world, stale_after_s=1.5) as (over_nats, bus),
    ):
        feeds = [over_http, over_nats]
        verifiers = [verifier_of(world, feed) for feed in feeds]

        def refusals(token: str) -> list[str | None]:
            return [refusal(verifier, token) for verifier in verifiers]

        assert await asyncio.to_thread(refusals, ended) == [None, None]
        await http.cut()
        await bus.cut()
        position, known = over_http.position, [len(feed) for feed in feeds]
        assert position is not None
        await asyncio.to_thread(revoke_many, world, BEYOND_THE_TAIL)
        revocation = {"data": {"token": ended}, "auth": world.traditional.basic}
        await asyncio.to_thread(world.stack.http.post, "/oidc/token/revocation", **revocation)
        events = {"headers": {"Last-Event-ID": f"{position[0]}.{position[1]}"}, "auth": world.machine.basic}

        def status() -> int:
            with world.stack.http.stream("GET", "/oidc/not-valid/events", **events) as answer:
                return answer.status_code

        await asyncio.to_thread(eventually, lambda: status() == 410)
        await http.mend()
        await bus.mend()
        await asyncio.to_thread(eventually, lambda: refusals(ended) == ["ended_token"] * 2)
        for feed, before in zip(feeds, known, strict=True):
            assert len(feed) >= before + BEYOND_THE_TAIL
            assert await asyncio.to_thread(feed.wait_until_fresh, WAIT_S)
        assert await asyncio.to_thread(refusals, token) == [None, None]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("when_stale", "when_stale_impersonated", "refused"),
    [
        ("open", "closed", [None, "unavailable"]),
        ("closed", "closed", ["unavailable", "unavailable"]),
        ("open", "open", [None, None]),
    ],
)
@pytest.mark.parametrize("path", ["http", "nats"])
async def test_a_verifier_that_starts_without_the_feed_does_as_configured(
    world: World, path: Path, when_stale: str, when_stale_impersonated: str, refused: list[str | None]
) -> None:
    """Without the issuer's keys no configuration accepts anything."""
    signed_in = (await asyncio.to_thread(lambda: SignIn(world).tokens(resource=world.resource)))["access_token"]
    tokens = [signed_in, await asyncio.to_thread(exchanged, world, world.customer)]
    configured = {"when_stale": when_stale, "when_stale_impersonated": when_stale_impersonated}
    there = world.stack.addresses.subscriber_nats_url
    async with TcpProxy(world.stack.base_url) as issuer, TcpProxy(there) as bus:
        await issuer.cut()
        await bus.cut()
        through = {"base_url": issuer.url} if path == "http" else {"base_url": issuer.url, "nats_url": bus.url}
        with feed_over(path, world, **through, **configured, issuer=world.stack.issuer) as feed:

            def refusals(verifier: AccessTokenVerifier) -> list[str | None]:
                return [refusal(verifier, each) for each in tokens]

            audience, jwks_url = world.resource, f"{issuer.url}/oidc/jwks"
            without_keys = AccessTokenVerifier(
                issuer=world.stack.issuer, jwks_url=jwks_url, audience=audience, feed=feed
            )
            assert await asyncio.to_thread(refusals, verifier_of(world, feed)) == refused
            assert feed.accepted_stale == refused.count(None)
            assert await asyncio.to_thread(refusals, without_keys) == ["unavailable", "unavailable"]
            assert feed.position is None
            await issuer.mend()
            await bus.mend()
            assert await asyncio.to_thread(feed.wait_until_fresh, WAIT_S)
            await asyncio.to_thread(eventually, lambda: refusals(without_keys) == [None, None])
            assert await asyncio.to_thread(refusals, verifier_of(world, feed)) == [None, None]


@pytest.mark.heavy
@pytest.mark.parametrize("path", ["http", "nats"])
async def test_an_idle_feed_stays_fresh_though_its_connection_is_cut_again_and_again(world: World, path: Path) -> None:
    async with feed_through_proxy(path, world) as (feed, proxy):
        was_fresh = []
        for _ in range(8):
            while (age_s := feed.age_s) < 0.8:  # noqa: ASYNC110 - until the next heartbeat is due
                await asyncio.sleep(0.01)
            await proxy.cut()
            await proxy.mend()
            while feed.age_s >= age_s:
                was_fresh.append(feed.is_fresh)
                await asyncio.sleep(0.01)
    assert all(was_fresh)


@pytest.mark.heavy
def test_a_feed_continues_where_a_stream_ends_until_its_credential_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("token_service.endpoints.not_valid._STREAM_S", 1.5)
    requested: Counter[str] = Counter()
    reader = world.client("MachineToMachine")
    token, other = exchanged(world, world.customer), exchanged(world, world.customer)
    with (
        httpx.Client(event_hooks={"request": [lambda request: requested.update([request.url.path])]}) as http,
        feed_over("http", world, client_id=reader.id, client_secret=reader.secret, http=http) as feed,
    ):
        assert feed.wait_until_fresh(WAIT_S)
        eventually(lambda: requested["/oidc/not-valid/events"] >= 3)
        assert requested["/oidc/not-valid"] == 1, "no snapshot for what was heard"
        eventually(lambda: refusal(verifier_of(world, feed), token) is None)
        world.stack.http.post("/oidc/token/revocation", data={"token": token}, auth=world.traditional.basic)
        eventually(lambda: refusal(verifier_of(world, feed), token) == "ended_token")
        world.management.applications.delete(reader.id)
        eventually(lambda: refusal(verifier_of(world, feed), other) == "unavailable")


@pytest.mark.heavy
def test_a_feed_that_may_not_be_read_never_becomes_fresh(world: World) -> None:
    with NotValidFeed.over_http(world.stack.base_url, client_id=world.machine.id, client_secret="wrong") as feed:
        assert not feed.wait_until_fresh(1)
        assert refusal(verifier_of(world, feed), exchanged(world, world.customer)) == "unavailable"


@asynccontextmanager
async def fed_by_hand(world: World) -> AsyncIterator[tuple[NotValidFeed, Any, Any]]:
    """Yield a feed, how to publish on its subject, and how to get the next genuine message of the world's feed."""
    tenant_id, addresses = f"hand-{secrets.token_hex(4)}", world.stack.addresses
    publisher = await nats.connect(addresses.token_nats_url, inbox_prefix="_INBOX_token")
    reader = await nats.connect(addresses.subscriber_nats_url)
    genuine = await reader.subscribe(subject_of(world.stack.tenant_id))
    await round_trip(reader)

    async def publish(message: bytes) -> None:
        await publisher.publish(subject_of(tenant_id), message)

    async def following() -> bytes:
        return bytes((await genuine.next_msg(timeout=WAIT_S)).data)

    with feed_over("nats", world, tenant_id=tenant_id, stale_after_s=1.5) as feed:
        await asyncio.to_thread(eventually, lambda: feed.position is not None)
        yield feed, publish, following
    await publisher.close()
    await reader.close()


@pytest.mark.heavy
async def test_neither_a_forged_nor_a_replayed_message_on_nats_is_fresh(world: World) -> None:
    async with fed_by_hand(world) as (feed, publish, following):
        heartbeat = await following()
        head, claims, signature = heartbeat.split(b".")
        for forged in (b"", b"x" * 100_000, b".".join((head, claims, signature[::-1])), head + b"." + claims + b"."):
            await publish(forged)
        token = (await asyncio.to_thread(exchanged, world, world.customer)).encode()
        await publish(token)
        assert not await asyncio.to_thread(feed.wait_until_fresh, 0.5)
        async with asyncio.timeout(WAIT_S):
            while not feed.is_fresh:  # those that have waited here may be stale
                await publish(await following())

        async with asyncio.timeout(WAIT_S):
            while feed.is_fresh:
                await publish(heartbeat)
                await asyncio.sleep(0.05)


@pytest.mark.servers
@pytest.mark.heavy
async def test_a_lost_message_on_nats_is_made_up_for_by_a_snapshot(world: World) -> None:
    token = await asyncio.to_thread(exchanged, world, world.customer)
    async with fed_by_hand(world) as (feed, publish, following):
        before = feed.position
        assert before is not None
        form = {"token": token}
        await asyncio.to_thread(
            world.stack.http.post, "/oidc/token/revocation", data=form, auth=world.traditional.basic
        )
        verifier = verifier_of(world, feed)
        position = before
        while position == before:  # the message with the revocation is not passed on
            with feed_over("http", world) as other:
                await asyncio.to_thread(other.wait_until_fresh, WAIT_S)
                position = other.position or before
        async with asyncio.timeout(WAIT_S):
            while feed.position != position:
                message = await following()
                if len(message) < 400:  # a heartbeat
                    await publish(message)
        assert await asyncio.to_thread(refusal, verifier, token) == "ended_token"


def test_a_wrong_number_is_refused_for_each_path(world: World) -> None:
    for path in ("http", "nats"):
        with pytest.raises(ValueError, match="stale_after_s"):
            feed_over(path, world, stale_after_s=0)
