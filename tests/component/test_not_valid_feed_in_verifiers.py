"""Verifiers with the not-valid feed over HTTP: what is ended is refused, and a cut connection is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid, Unavailable
from tests.support.patience import PATIENCE_S, eventually
from tests.support.tcp_proxy import TcpProxy
from tests.support.world import World

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def feed(world: World) -> Iterator[NotValidFeed]:
    world.caught_up()
    client_id, secret = world.machine.basic
    with NotValidFeed.over_http(world.stack.base_url, client_id=client_id, client_secret=secret) as feed:
        assert feed.wait_until_fresh(PATIENCE_S)
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


def exchanged(world: World, user: str) -> str:
    answer = world.exchange(world.subject_token(user))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


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


async def test_a_cut_connection_is_noticed_and_caught_up_after(world: World) -> None:
    token = await asyncio.to_thread(exchanged, world, world.customer)
    ended = await asyncio.to_thread(exchanged, world, world.customer)
    client_id, secret = world.machine.basic
    async with TcpProxy(world.stack.base_url) as proxy:
        with NotValidFeed.over_http(
            proxy.url, client_id=client_id, client_secret=secret, issuer=world.stack.issuer, stale_after_s=1.5
        ) as feed:
            assert await asyncio.to_thread(feed.wait_until_fresh, PATIENCE_S)
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
            assert await asyncio.to_thread(feed.wait_until_fresh, PATIENCE_S)
            assert await asyncio.to_thread(refusal, verifier, token) is None


def test_a_feed_that_may_not_be_read_never_becomes_fresh(world: World) -> None:
    with NotValidFeed.over_http(world.stack.base_url, client_id=world.machine.id, client_secret="wrong") as feed:
        assert not feed.wait_until_fresh(1)
        assert refusal(verifier_of(world, feed), exchanged(world, world.customer)) == "unavailable"
