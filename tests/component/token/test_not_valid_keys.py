"""The keys of the not-valid feed: replaced without a gap, or at once when one has leaked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2 as httpx
import jwt
import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from identity_common.identifiers import new_id
from identity_common.sealing import NoFittingKeyError, SealingKeys
from provision import ServerAddresses
from tests.component.token.test_signing_keys import Time, random_kek, stack_token
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from tests.support.world import World
from token_service.not_valid import KEYS_MAX_AGE_S, FeedKeys, NextFeedKeyWaitsError

PATH = "/api/configs/oidc/not-valid-keys"
HOUR_S = 3600


class Claims(msgspec.Struct):
    """What is signed here."""

    iss: str = "https://id.example.com/oidc"


class Replicas:
    """Replicas of the key store on one database, in their own tenant."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.tenant_id = new_id()
        self.time = Time()
        self.kek = random_kek()

    async def one(self, *keks: str) -> FeedKeys:
        keys = FeedKeys(self.engine, SealingKeys(keks or (self.kek,)), tenant_id=self.tenant_id, clock=self.time)
        await keys.load()
        return keys

    async def entries(self) -> list[tuple[str, frozenset[str]]]:
        """Return the keys and aggregates of the entries in the audit outbox."""
        query = text("SELECT entry FROM audit_outbox WHERE tenant_id = :tenant ORDER BY sequence")
        async with self.engine.connect() as connection:
            found = (await connection.execute(query, {"tenant": self.tenant_id})).scalars().all()
        decoded = [msgspec.json.decode(entry) for entry in found]
        return [(entry["key"], frozenset(entry["aggregates"])) for entry in decoded]


@pytest.fixture
async def replicas(servers: ServerAddresses, stack: RunningStack) -> AsyncIterator[Replicas]:
    engine = create_async_engine(servers.token_database_url)
    yield Replicas(engine)
    await engine.dispose()


def signs_with(keys: FeedKeys) -> str:
    return str(jwt.get_unverified_header(keys.sign(Claims(), typ="test"))["kid"])


def published(keys: FeedKeys) -> list[str]:
    return [key["kid"] for key in msgspec.json.decode(keys.jwks)["keys"]]


async def test_a_new_key_is_published_for_as_long_as_readers_keep_keys_before_it_signs(replicas: Replicas) -> None:
    one, other = await replicas.one(), await replicas.one()
    first = signs_with(one)
    replicas.time.pass_s(HOUR_S)
    made, old = await one.rotate()
    await other.load()
    for each in (one, other):
        assert (signs_with(each), published(each)) == (first, [made.kid, first])
    assert [(key.kid, key.status) for key in (made, old)] == [(made.kid, "Next"), (first, "Current")]
    assert made.signs_from - made.created_at > KEYS_MAX_AGE_S * 1000

    replicas.time.pass_s(KEYS_MAX_AGE_S)
    await one.load()
    assert signs_with(one) == first
    with pytest.raises(NextFeedKeyWaitsError):
        await other.rotate()

    replicas.time.ms = made.signs_from
    await one.load()
    assert (signs_with(one), published(one)) == (made.kid, [made.kid, first])
    assert [key.status for key in await other.stored()] == ["Current", "Previous"]

    replicas.time.pass_s(HOUR_S + 1)
    await asyncio.gather(one.load(), other.load())
    for each in (one, other):
        assert (signs_with(each), published(each)) == (made.kid, [made.kid])
    assert await replicas.entries() == [
        ("token.not-valid-key.rotate", {f"not-valid-key/{made.kid}"}),
        ("token.not-valid-key.delete", {f"not-valid-key/{first}"}),
    ]


@pytest.mark.servers
async def test_many_that_rotate_at_once_make_one_key(replicas: Replicas) -> None:
    several = [await replicas.one() for _ in range(8)]
    outcomes = await asyncio.gather(*(keys.rotate() for keys in several), return_exceptions=True)
    assert sum(not isinstance(outcome, NextFeedKeyWaitsError) for outcome in outcomes) == 1
    assert [key.status for key in await several[0].stored()] == ["Next", "Current"]


async def test_an_emergency_leaves_no_key_but_the_new_one_which_signs_at_once(replicas: Replicas) -> None:
    one, other = await replicas.one(), await replicas.one()
    await one.rotate()
    before = published(one)
    (made,) = await one.rotate(emergency=True)
    await other.load()
    for each in (one, other):
        assert (signs_with(each), published(each)) == (made.kid, [made.kid])
    assert made.kid not in before
    assert (await replicas.entries())[-1] == (
        "token.not-valid-key.rotate",
        {f"not-valid-key/{kid}" for kid in (made.kid, *before)},
    )


async def test_a_replica_whose_clock_is_behind_makes_a_newer_key_nevertheless(replicas: Replicas) -> None:
    keys = await replicas.one()
    first = signs_with(keys)
    replicas.time.pass_s(-HOUR_S)
    made, _ = await keys.rotate()
    assert (made.status, signs_with(keys)) == ("Next", first)
    replicas.time.ms = made.signs_from
    await keys.load()
    assert signs_with(keys) == made.kid


@pytest.mark.servers
async def test_keys_are_sealed_again_with_the_newest_key_encryption_key(replicas: Replicas) -> None:
    """The older one can then be removed from the settings."""
    newer = random_kek()
    kid = signs_with(await replicas.one())
    await replicas.one(newer, replicas.kek)

    assert signs_with(await replicas.one(newer)) == kid
    with pytest.raises(NoFittingKeyError):
        await replicas.one()


async def test_the_stored_key_is_sealed_for_the_feed(replicas: Replicas) -> None:
    """A row of ``signing_key`` does not open here, nor the reverse; keys that earlier releases stored do."""
    kid = signs_with(await replicas.one())
    query = text("SELECT private_key FROM not_valid_keys WHERE tenant_id = :tenant")
    async with replicas.engine.connect() as connection:
        stored = (await connection.execute(query, {"tenant": replicas.tenant_id})).scalar_one()

    sealing = SealingKeys((replicas.kek,))
    assert sealing.open(stored, name=f"not-valid:{kid}")
    with pytest.raises(NoFittingKeyError):
        sealing.open(stored, name=kid)


async def test_replicas_that_start_at_once_create_one_key(replicas: Replicas) -> None:
    several = await asyncio.gather(*(replicas.one() for _ in range(8)))
    assert len({signs_with(keys) for keys in several}) == 1


class TestManagementApi:
    def test_keys_are_listed_and_rotated(self, world: World, stack: RunningStack) -> None:
        request = stack.management.request
        (made,) = request("POST", f"{PATH}/rotate", json={"emergency": True})
        assert made.keys() == {"tenantId", "id", "createdAt", "status"}
        following, current = request("POST", f"{PATH}/rotate")
        assert (current["id"], current["status"], following["status"]) == (made["id"], "Current", "Next")
        assert following["signsFrom"] > following["createdAt"]
        assert request("GET", PATH) == [following, current]

        refused = call(stack, "POST", "/rotate", stack_token(stack))
        assert (refused.status_code, refused.json()["code"]) == (422, "oidc.next_key_too_young")

        def both_are_published() -> bool:
            keys = stack.http.get("/oidc/not-valid/jwks").json()["keys"]
            return [key["kid"] for key in keys] == [following["id"], made["id"]]

        eventually(both_are_published)

    @pytest.mark.parametrize(
        "content", [b"[]", b"{", b'{"emergency": "yes"}', b'{"emergency": null}', b'{"Emergency": true}', b"\x00"]
    )
    def test_a_body_that_is_wrong_rotates_nothing(self, stack: RunningStack, content: bytes) -> None:
        before = stack.management.request("GET", PATH)
        answer = call(stack, "POST", "/rotate", stack_token(stack), content=content)
        assert answer.status_code in {400, 422}, answer.text
        assert stack.management.request("GET", PATH) == before

    def test_no_other_method_and_no_other_token_is_accepted(self, stack: RunningStack) -> None:
        assert call(stack, "DELETE", "", stack_token(stack)).status_code == 405
        anonymous = httpx.get(f"{stack.base_url}{PATH}")
        assert (anonymous.status_code, anonymous.json()["code"]) == (401, "auth.authorization_header_missing")
        other = stack.exchange(stack.subject_token(), resource=stack.credentials.demo.resource).access_token
        assert call(stack, "POST", "/rotate", other).status_code == 401


def call(stack: RunningStack, method: str, path: str, token: str, *, content: bytes = b"") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    if content:
        headers["Content-Type"] = "application/json"
    return httpx.request(method, f"{stack.base_url}{PATH}{path}", headers=headers, content=content)
