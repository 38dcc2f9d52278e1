"""Signing keys: rotation through the API without a failed verification, re-encryption, and access to them."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable

import httpx2 as httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from provision import ServerAddresses
from stead import AccessTokenVerifier
from stead.verify.access_tokens import Expectations, TokenChecker, read_token
from tests.support.running_stack import RunningStack
from tests.support.settable_clock import Time
from tests.support.waiting import eventually_here
from tests.support.world import World
from token_service.presented_tokens.revocations import Revocations
from token_service.tokens.issuer import AccessTokenRequest, Issuer, new_jti
from token_service.tokens.keys import (
    JWKS_MAX_AGE_S,
    NextKeyTooYoungError,
    SigningKeyInUseError,
    SigningKeys,
    StoredKey,
)
from token_service.tokens.signing import SigningAlgorithm

ISSUER = "https://id.example.com/oidc"
RESOURCE = "https://api.example.com"
REFRESH_S = 30.0


class Replicas:
    """Some replicas of the key store on one database, in their own tenant."""

    def __init__(self, engine: AsyncEngine, redis: "Redis", kek: str) -> None:
        self.engine = engine
        self.redis = redis
        self.tenant_id = new_id()
        self.time = Time()
        self.kek = kek

    def one(
        self,
        *,
        keks: tuple[str, ...] | None = None,
        algorithm: SigningAlgorithm = "ES256",
        longest_lifetime_s: Callable[[], int] = lambda: 3600,
    ) -> SigningKeys:
        return SigningKeys(
            self.engine,
            SealingKeys(keks or (self.kek,)),
            Revocations(self.engine, self.redis, RedisCommands(self.redis), tenant_id=self.tenant_id, replicas=0),
            tenant_id=self.tenant_id,
            algorithm=algorithm,
            refresh_s=REFRESH_S,
            longest_lifetime_s=longest_lifetime_s,
            clock=self.time,
        )


def random_kek() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@pytest.fixture
async def replicas(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Replicas]:
    engine = create_database_engine(servers.token_database_url, service="tests", pool_size=10)
    redis = connect_redis(servers.token_redis_url)
    yield Replicas(engine, redis, random_kek())
    await redis.aclose()
    await engine.dispose()


def statuses(keys: list[StoredKey]) -> list[str]:
    return [key.status for key in keys]


async def issue(keys: SigningKeys, time: Time) -> str:
    content = AccessTokenRequest(
        subject="u1",
        audience=RESOURCE,
        client_id="c1",
        scopes=frozenset(),
        issued_at=time(),
        lifetime_s=3600,
        jti=new_jti(),
    )
    return await Issuer(ISSUER).issue(await keys.signing_key(), content)


def verifies(token: str, keys: SigningKeys, time: Time) -> bool:
    expected = Expectations(issuer=ISSUER, audience=RESOURCE)
    try:
        TokenChecker(expected).check(read_token(token, expected), keys=keys.ring.verifying, now=time.ms / 1000)
    except Exception:  # noqa: BLE001 - any error is a failed verification
        return False
    return True


async def test_replicas_that_start_concurrently_create_one_pair_of_keys(replicas: Replicas) -> None:
    several = [replicas.one() for _ in range(8)]
    await asyncio.gather(*(keys.load() for keys in several))
    assert statuses(await several[0].stored()) in (["Next", "Current"], ["Current", "Next"])
    assert len({keys.ring.current.kid for keys in several}) == 1
    assert len({keys.ring.jwks for keys in several}) == 1


async def test_the_next_key_signs_only_after_every_verifier_can_know_it(replicas: Replicas) -> None:
    keys = replicas.one()
    await keys.load()
    replicas.time.pass_s(JWKS_MAX_AGE_S)
    with pytest.raises(NextKeyTooYoungError):
        await keys.rotate()
    replicas.time.pass_s(REFRESH_S + 1)
    following = next(key.kid for key in await keys.stored() if key.status == "Next")
    rotated = await keys.rotate("EdDSA")
    assert sorted(statuses(rotated)) == ["Current", "Next", "Previous"]
    assert keys.ring.current.kid == following
    assert next(key.algorithm for key in rotated if key.status == "Next") == "EdDSA"


async def test_no_verification_fails_during_rotations_with_cached_keys_and_lagging_replicas(replicas: Replicas) -> None:
    """A verifier with cached keys, and a replica that has not noticed, keep working through every rotation."""
    leader, laggard = replicas.one(), replicas.one()
    await leader.load()
    await laggard.load()
    for _ in range(4):
        replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S + 1)
        cached = replicas.one()
        await cached.load()
        before = await issue(leader, replicas.time)
        await leader.rotate()
        after = await issue(leader, replicas.time)
        late = await issue(laggard, replicas.time)  # signs with the key that was current just before
        for token in (before, after, late):
            assert verifies(token, cached, replicas.time)
            assert verifies(token, leader, replicas.time)
        await laggard.load()


async def test_a_previous_key_is_deleted_once_its_last_token_has_expired(replicas: Replicas) -> None:
    keys = replicas.one()
    await keys.load()
    replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S + 1)
    token = await issue(keys, replicas.time)
    await keys.rotate()
    replicas.time.pass_s(3600 - 1)
    await keys.load()
    assert "Previous" in statuses(await keys.stored())
    assert verifies(token, keys, replicas.time)
    replicas.time.pass_s(600)
    await keys.load()
    assert "Previous" not in statuses(await keys.stored())


async def test_a_previous_key_can_be_deleted_and_the_current_one_cannot(replicas: Replicas) -> None:
    keys = replicas.one()
    await keys.load()
    replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S + 1)
    token = await issue(keys, replicas.time)
    rotated = {key.status: key.kid for key in await keys.rotate()}
    assert await keys.delete(rotated["Previous"])
    assert not await keys.delete(rotated["Previous"])
    with pytest.raises(SigningKeyInUseError):
        await keys.delete(rotated["Current"])
    assert not verifies(token, keys, replicas.time)
    assert sorted(statuses(await keys.stored())) == ["Current", "Next"]


async def test_a_deleted_next_key_is_replaced(replicas: Replicas) -> None:
    """A leaked key allows forgery until it is no longer published; its successor is published before it signs."""
    keys = replicas.one()
    await keys.load()
    replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S + 1)
    await keys.rotate("EdDSA")
    replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S + 1)
    token = await issue(keys, replicas.time)
    before = {key.status: key for key in await keys.stored()}
    assert await keys.delete(before["Next"].kid)
    after = {key.status: key for key in await keys.stored()}
    assert (after["Current"], after["Previous"]) == (before["Current"], before["Previous"])
    assert after["Next"].kid != before["Next"].kid
    assert after["Next"].algorithm == "EdDSA"
    assert before["Next"].kid.encode() not in keys.ring.jwks
    assert after["Next"].kid.encode() in keys.ring.jwks
    with pytest.raises(NextKeyTooYoungError):
        await keys.rotate()
    assert verifies(token, keys, replicas.time)


async def test_concurrent_rotations_rotate_once(replicas: Replicas) -> None:
    several = [replicas.one() for _ in range(6)]
    for keys in several:
        await keys.load()
    replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S + 1)
    outcomes = await asyncio.gather(*(keys.rotate() for keys in several), return_exceptions=True)
    assert sum(isinstance(outcome, list) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, NextKeyTooYoungError) for outcome in outcomes) == 5


async def test_a_new_key_encryption_key_takes_over_at_start(replicas: Replicas) -> None:
    former = replicas.one()
    await former.load()
    newer = random_kek()
    await replicas.one(keks=(newer, replicas.kek)).load()
    without_the_old_one = replicas.one(keks=(newer,))
    await without_the_old_one.load()
    assert without_the_old_one.ring.current.kid == former.ring.current.kid
    with pytest.raises(NoFittingKeyError):
        await replicas.one(keks=(replicas.kek,)).load()


@pytest.mark.heavy
async def test_an_unexpected_error_does_not_end_the_refresh_of_the_keys(replicas: Replicas) -> None:
    """Otherwise a replica would keep signing with a key that verifiers forget."""
    asked: list[int] = []

    def longest_lifetime_s() -> int:
        asked.append(1)
        if len(asked) == 1:
            raise ArithmeticError
        return 3600

    keys = replicas.one(longest_lifetime_s=longest_lifetime_s)
    keys.loop.start()
    try:
        await eventually_here(lambda: keys.is_loaded)
    finally:
        await keys.loop.stop()
    assert len(asked) == 2


async def test_private_keys_are_stored_encrypted_only(replicas: Replicas) -> None:
    keys = replicas.one()
    await keys.load()
    async with replicas.engine.connect() as connection:
        stored = await connection.scalars(text("SELECT private_key FROM signing_key"))
        assert all(
            not value.startswith((b"\x30\x81\x87\x02\x01\x00\x30", b"\x30\x2e\x02\x01\x00\x30", b"\x30\x82\x04"))
            and b"PRIVATE" not in value
            for value in stored
        )


class TestApi:
    def test_it_lists_keys_without_a_private_part(self, stack: RunningStack) -> None:
        listed = stack.management.request("GET", "/api/configs/oidc/private-keys")
        assert sorted(key["status"] for key in listed) == ["Current", "Next"]
        for key in listed:
            assert key.keys() == {"tenantId", "id", "createdAt", "signingKeyAlgorithm", "status"}
        published = httpx.get(f"{stack.base_url}/oidc/jwks").json()["keys"]
        assert {key["id"] for key in listed} == {key["kid"] for key in published}

    async def test_a_rotation_that_comes_too_soon_is_refused(self, stack: RunningStack, replicas: Replicas) -> None:
        """The next key is made as young as possible, however long this test run has already taken."""
        young = text("UPDATE signing_key SET created_at = :now WHERE tenant_id = 'default' AND status = 'Next'")
        async with replicas.engine.begin() as connection:
            await connection.execute(young, {"now": now_ms()})
        answer = _call(stack, "POST", "/rotate", stack_token(stack))
        assert (answer.status_code, answer.json()["code"]) == (422, "oidc.next_key_too_young")

    @pytest.mark.parametrize(
        "body", [b"{", b"[]", b'{"signingKeyAlgorithm": "HS256"}', b'{"unknown": 1}', b'{"signingKeyAlgorithm": 1}']
    )
    def test_a_wrong_body_is_refused(self, stack: RunningStack, body: bytes) -> None:
        answer = _call(stack, "POST", "/rotate", stack_token(stack), content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "guard.invalid_input")

    def test_the_current_key_and_an_unknown_one_cannot_be_deleted(self, stack: RunningStack) -> None:
        current = next(
            key["id"]
            for key in stack.management.request("GET", "/api/configs/oidc/private-keys")
            if key["status"] == "Current"
        )
        refused = _call(stack, "DELETE", f"/{current}", stack_token(stack))
        assert (refused.status_code, refused.json()["code"]) == (422, "oidc.key_in_use")
        missed = _call(stack, "DELETE", "/unknown", stack_token(stack))
        assert (missed.status_code, missed.json()["code"]) == (404, "entity.not_found")

    def test_a_request_without_a_token_for_the_management_api_is_refused(
        self, stack: RunningStack, world: World
    ) -> None:
        """Without any token, or with a token for another resource."""
        anonymous = httpx.get(f"{stack.base_url}/api/configs/oidc/private-keys")
        assert (anonymous.status_code, anonymous.json()["code"]) == (401, "auth.authorization_header_missing")
        other = stack.exchange(stack.subject_token(), resource=stack.credentials.demo.resource).access_token
        refused = _call(stack, "GET", "", other)
        assert (refused.status_code, refused.json()["code"]) == (401, "auth.unauthorized")
        assert refused.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


def stack_token(stack: RunningStack) -> str:
    """Return an access token for the Management API."""
    access = stack.credentials.management_api
    form: dict[str, str | list[str]] = {
        "grant_type": "client_credentials",
        "resource": access.resource,
        "scope": access.scope,
    }
    answer = stack.token_request(form, auth=(access.client_id, access.client_secret))
    token: str = answer.json()["access_token"]
    AccessTokenVerifier(issuer=stack.issuer, audience=access.resource).verify(token)
    return token


def _call(stack: RunningStack, method: str, path: str, token: str, *, content: bytes | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    if content is not None:
        headers["Content-Type"] = "application/json"
    return httpx.request(
        method, f"{stack.base_url}/api/configs/oidc/private-keys{path}", headers=headers, content=content
    )
