"""A signing key that was deleted opens nothing: in no service, from the answer on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.management_api import SignedToken, UnrevokedTokens
from identity_common.access.revocations import RevocationReader
from identity_common.clock import now_ms
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable
from identity_common.identifiers import new_id
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.subject_tokens import SubjectTokenRecord, subject_token_key
from provision import ServerAddresses
from stead import AsyncAccessTokenVerifier
from tests.support.authorizing import opened
from tests.support.issuer import Issuer as SigningServer
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from token_service.presented_tokens.revocations import Revocations
from token_service.tokens.claims import SignInClaims
from token_service.tokens.id_token_hints import IdTokenHints
from token_service.tokens.identity import PersonClaims
from token_service.tokens.issuer import Issuer
from token_service.tokens.keys import SigningKeys

KEYS = "/api/configs/oidc/private-keys"
ISSUER = "https://id.example.com/oidc"
MEMBER = "/api/organizations/unknown/users/unknown/scopes"
ASKED = [("GET", "/api/users"), ("POST", "/api/subject-tokens"), ("GET", MEMBER), ("GET", "/api/roles"), ("GET", KEYS)]
"""A request to every service, and to both routes that check tokens on their own."""


@pytest.fixture(scope="module")
def own_stack(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """The whole system, for a tenant whose keys these tests rotate."""
    directory = tmp_path_factory.mktemp("rotated")
    stack = RunningStack(servers, directory, tenant_id=f"rotated-{secrets.token_hex(4)}", revision_wait_s=30)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def management_token(stack: RunningStack) -> str:
    access = stack.credentials.management_api
    form = {"grant_type": "client_credentials", "resource": access.resource, "scope": access.scope}
    answer = stack.token_request(form, auth=(access.client_id, access.client_secret))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def request(stack: RunningStack, method: str, path: str, token: str, **content: Any) -> httpx.Response:
    return stack.http.request(method, path, headers={"Authorization": f"Bearer {token}"}, **content)


def refused(stack: RunningStack, token: str) -> list[bool]:
    """Return for every request of ``ASKED`` whether it is refused because of its token."""
    return [request(stack, *asked, token).status_code == 401 for asked in ASKED]


def is_active(stack: RunningStack, token: str) -> bool:
    access = stack.credentials.management_api
    auth = (access.client_id, access.client_secret)
    return bool(stack.http.post("/oidc/token/introspection", data={"token": token}, auth=auth).json()["active"])


@pytest.mark.heavy
async def test_a_token_of_a_deleted_key_opens_nothing_from_then_on(
    own_stack: RunningStack, servers: ServerAddresses
) -> None:
    engine = create_database_engine(servers.token_database_url, service="tests", pool_size=10)
    async with engine.begin() as connection:
        old = text("UPDATE signing_key SET created_at = 0 WHERE tenant_id = :tenant AND status = 'Next'")
        await connection.execute(old, {"tenant": own_stack.tenant_id})
    await engine.dispose()
    token = management_token(own_stack)
    assert refused(own_stack, token) == [False] * len(ASKED)

    rotated = request(own_stack, "POST", f"{KEYS}/rotate", token).json()
    assert refused(own_stack, token) == [False] * len(ASKED)
    previous = next(key["id"] for key in rotated if key["status"] == "Previous")
    newer = management_token(own_stack)  # by a key that a service may not have read yet: it was not as old as it seems
    eventually(lambda: refused(own_stack, newer) == [False] * len(ASKED))
    assert request(own_stack, "DELETE", f"{KEYS}/{previous}", newer).status_code == 204

    assert refused(own_stack, token) == [True] * len(ASKED)
    assert not is_active(own_stack, token)
    assert refused(own_stack, newer) == [False] * len(ASKED)


@pytest.mark.heavy
def test_an_emergency_rotation_retires_the_current_key_at_once(own_stack: RunningStack) -> None:
    """However young Next is; a verifier that does not know it reads the keys again, at most every five seconds."""
    for _ in range(2):
        token = management_token(own_stack)
        before = {key["status"]: key["id"] for key in request(own_stack, "GET", KEYS, token).json()}
        rotated = request(own_stack, "POST", f"{KEYS}/rotate", token, json={"emergency": True})
        assert rotated.status_code == 200, rotated.text
        after = {key["status"]: key["id"] for key in rotated.json()}

        assert after.keys() == {"Current", "Next"}
        assert after["Current"] == before["Next"]
        published = {key["kid"] for key in own_stack.http.get("/oidc/jwks").json()["keys"]}
        assert published == set(after.values())
        assert refused(own_stack, token) == [True] * len(ASKED)
        assert not is_active(own_stack, token)
        newer = management_token(own_stack)
        assert is_active(own_stack, newer)
        eventually(lambda newer=newer: refused(own_stack, newer) == [False] * len(ASKED))  # type: ignore[misc]


@pytest.mark.heavy
async def test_an_exchange_that_waits_does_not_sign_with_a_key_that_is_retired_meanwhile(
    own_stack: RunningStack, servers: ServerAddresses
) -> None:
    """Otherwise nothing accepts the token that the subject token was spent on."""
    subject_token = await asyncio.to_thread(own_stack.subject_token)
    key = subject_token_key(own_stack.tenant_id, subject_token)
    redis = Redis.from_url(servers.admin_redis_url)
    record = msgspec.json.decode(await redis.get(key), type=SubjectTokenRecord)
    later = msgspec.structs.replace(record, revision=record.revision + 1)
    await redis.set(key, msgspec.json.encode(later), keepttl=True)

    token = await asyncio.to_thread(management_token, own_stack)
    async with redis.monitor() as seen:
        exchange = asyncio.create_task(asyncio.to_thread(own_stack.exchange, subject_token, scope="openid"))
        async for command in seen.listen():
            if key in command["command"]:
                break
    await asyncio.to_thread(request, own_stack, "POST", f"{KEYS}/rotate", token, json={"emergency": True})
    newer = await asyncio.to_thread(management_token, own_stack)

    def create_a_user() -> bool:
        return request(own_stack, "POST", "/api/users", newer, json={}).status_code == 200

    await asyncio.to_thread(eventually, create_a_user)  # the revision that the exchange waits for
    issued = await exchange
    assert await asyncio.to_thread(is_active, own_stack, issued.access_token)
    await redis.aclose()


class Replicas:
    """Two replicas of the key store, for a tenant of their own."""

    def __init__(self, engine: AsyncEngine, redis: Redis, redis_url: str) -> None:  # type: ignore[type-arg]
        self._engine = engine
        self._tenant_id = new_id()
        self._encryption = SealingKeys(["a" * 43 + "="])
        self.redis_url = redis_url
        self.one, self.other = self.replica(redis), self.replica(redis)

    def replica(self, redis: Redis, engine: AsyncEngine | None = None) -> SigningKeys:  # type: ignore[type-arg]
        commands = RedisCommands(redis)
        return SigningKeys(
            engine or self._engine,
            self._encryption,
            Revocations(self._engine, redis, commands, tenant_id=self._tenant_id, replicas=0),
            tenant_id=self._tenant_id,
            algorithm="ES256",
            refresh_s=30,
            longest_lifetime_s=lambda: 3600,
        )


@pytest_asyncio.fixture
async def replicas(own_stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Replicas]:
    engine = create_database_engine(servers.token_database_url, service="tests", pool_size=10)
    redis = connect_redis(servers.token_redis_url)
    replicas = Replicas(engine, redis, servers.token_redis_url)
    await replicas.one.load()
    await replicas.other.load()
    yield replicas
    await redis.aclose()
    await engine.dispose()


async def test_no_replica_signs_with_a_key_that_another_has_retired(replicas: Replicas) -> None:
    leaked = (await replicas.other.signing_key()).kid
    await replicas.one.rotate(emergency=True)

    current = (await replicas.one.signing_key()).kid
    assert current != leaked
    assert (await replicas.other.signing_key()).kid == current
    assert leaked.encode() not in replicas.other.ring.jwks


async def test_a_replica_that_cannot_replace_a_retired_key_refuses_before_anything_is_spent(
    replicas: Replicas, servers: ServerAddresses
) -> None:
    """A grant awaits the key after it has spent a token; only the first such request may lose one."""
    async with TcpProxy(servers.token_database_url) as proxy:
        redis, engine = (
            connect_redis(replicas.redis_url),
            create_database_engine(proxy.url, service="tests", pool_size=10),
        )
        cut_off = replicas.replica(redis, engine)
        await cut_off.load()
        await replicas.one.rotate(emergency=True)
        await proxy.cut()
        await cut_off.require_usable()
        for request in (cut_off.signing_key, cut_off.require_usable):
            with pytest.raises(TemporarilyUnavailable) as refused:
                await request()
            assert refused.value.why == "the signing keys are being loaded"
        await proxy.mend()
        await cut_off.require_usable()
        assert (await cut_off.signing_key()).kid == (await replicas.one.signing_key()).kid
        await engine.dispose()
        await redis.aclose()


async def test_a_replica_goes_on_signing_while_redis_does_not_answer(replicas: Replicas) -> None:
    async with TcpProxy(replicas.redis_url) as proxy:
        redis = connect_redis(proxy.url)
        cut_off = replicas.replica(redis)
        await cut_off.load()
        await proxy.cut()
        assert (await cut_off.signing_key()).kid == (await replicas.one.signing_key()).kid
        await redis.aclose()


async def test_an_id_token_of_a_retired_key_is_no_hint_at_any_replica(replicas: Replicas) -> None:
    hints = IdTokenHints(replicas.other, issuer=ISSUER)
    id_token = await Issuer(ISSUER).issue_id_token(
        await replicas.one.signing_key(),
        PersonClaims(sub="u1"),
        client_id="c1",
        issued_at=now_ms(),
        lifetime_s=3600,
        signed_in=SignInClaims(auth_time=0, amr=("pwd",), acr="urn:identity:acr:password"),
        nonce=None,
        session_id=None,
        access_token="x",
    )
    hint = await hints.read(id_token)
    assert hint is not None
    assert hint.user_id == "u1"

    await replicas.one.rotate(emergency=True)
    assert await hints.read(id_token) is None


async def test_while_redis_is_away_a_known_token_id_opens_nothing_for_another_key(
    own_stack: RunningStack, servers: ServerAddresses
) -> None:
    """The minute of grace is for the checked token, not for its id: who has a key can sign any id."""
    tenant_id = new_id()
    with SigningServer() as issuer:
        async with (
            opened(
                database_url=servers.token_database_url, redis_url=servers.token_redis_url, tenant_id=tenant_id
            ) as stores,
            TcpProxy(servers.management_redis_url) as proxy,
        ):
            await stores.revocations.copy()
            redis = connect_redis(proxy.url)
            tokens = UnrevokedTokens(
                AsyncAccessTokenVerifier(issuer=issuer.issuer, audience="a"),
                RevocationReader(RedisCommands(redis), tenant_id=tenant_id),
            )
            good = issuer.access_token(client_id="c1", audience="a", scope="")
            accepted = await tokens.verify(good)
            forged = SignedToken(msgspec.structs.replace(accepted, key_id="leaked"))
            await proxy.cut()
            assert await tokens.verify(good) == accepted
            with pytest.raises(StoreUnavailable):
                await tokens.require_unrevoked(forged)
            await redis.aclose()
