"""Authentication: invalid tokens of every kind, deleted callers, and scopes."""

import asyncio
import time
from typing import Any

import asyncpg
import httpx2 as httpx
import jwt
import pytest

from identity_common.access.management_api import UnrevokedTokens
from identity_common.access.revocations import RevocationReader
from identity_common.clock import now_ms
from identity_common.failures import AnyFailure
from identity_common.http.problems import ApiError, refusal_of
from identity_common.stores.lookups import Lookups
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.revocations import CopyPosition, position_key, revocation_key
from management_service import authentication
from management_service.app import create_app
from management_service.authentication import Authentication
from stead import AsyncAccessTokenVerifier
from tests.support.authorizing import opened
from tests.support.issuer import Issuer, base64url
from tests.support.management_api import (
    AUDIENCE,
    Management,
    client_of,
    refusal,
    running,
    settings_for,
    unique,
)
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from token_service.presented_tokens.revocations import Revocation

INVALID = (401, "auth.unauthorized", 'Bearer error="invalid_token"')
FORBIDDEN = (403, "auth.forbidden", 'Bearer error="insufficient_scope"')
ROUTES = [("GET", "/api/users"), ("POST", "/api/subject-tokens"), ("DELETE", "/api/roles/none")]


async def answers(management: Management, authorization: list[str]) -> list[tuple[int, str, str]]:
    """Return how every route answers a request with these ``Authorization`` headers."""
    found = []
    async with management.client_with(None) as client:
        for method, path in ROUTES:
            answer = await client.request(method, path, headers=[("Authorization", value) for value in authorization])
            found.append((*refusal(answer), answer.headers["WWW-Authenticate"]))
    return found


async def test_a_request_without_a_token_gets_a_bare_challenge(management: Management) -> None:
    assert await answers(management, []) == [(401, "auth.authorization_header_missing", "Bearer")] * 3


@pytest.mark.parametrize("authorization", ["Basic YTpi", "Bearertoken", "", "Negotiate", "DPoP x.y.z"])
async def test_another_scheme_is_not_supported(management: Management, authorization: str) -> None:
    expected = [(401, "auth.authorization_token_type_not_supported", "Bearer")] * 3
    assert await answers(management, [authorization]) == expected


@pytest.mark.parametrize(
    "token", ["", "x", "a.b.c", "a.b.c.d", "sub_" + "x" * 43, "x" * 100_000, "eyJhbGciOiJub25lIn0.e30."]
)
async def test_a_malformed_token_is_refused(management: Management, token: str) -> None:
    assert await answers(management, [f"Bearer {token}"]) == [INVALID] * 3


async def test_two_authorization_headers_are_refused_even_if_both_are_valid(management: Management) -> None:
    token = f"Bearer {management.token()}"
    assert await answers(management, [token, token]) == [INVALID] * 3


async def test_the_scheme_is_case_insensitive(management: Management) -> None:
    async with management.client_with(None) as client:
        answer = await client.get("/api/users", headers={"Authorization": f"bEARER  {management.token()}"})
    assert answer.status_code == 200


def wrong_tokens(management: Management) -> dict[str, str]:
    """Return one token for each possible defect."""
    now, issuer = int(time.time()), management.issuer
    claims: dict[str, Any] = {
        "iss": issuer.issuer,
        "sub": management.credentials.client_id,
        "aud": AUDIENCE,
        "client_id": management.credentials.client_id,
        "iat": now,
        "exp": now + 3600,
        "jti": "1",
        "scope": "all",
    }
    symmetric = {"alg": "HS256", "typ": "at+jwt", "kid": issuer.kid}
    none = {"alg": "none", "typ": "at+jwt", "kid": issuer.kid}
    with Issuer() as stranger:
        strangers_key = stranger.sign(claims, kid=issuer.kid)
    return {
        "another issuer": issuer.sign({**claims, "iss": "https://example.com/oidc"}),
        "another audience": issuer.sign({**claims, "aud": "https://example.com/api"}),
        "the userinfo audience": issuer.sign({**claims, "aud": f"{issuer.issuer}/me"}),
        "no audience": issuer.sign({name: value for name, value in claims.items() if name != "aud"}),
        "expired": issuer.sign({**claims, "iat": now - 7200, "exp": now - 3600}),
        "not yet valid": issuer.sign({**claims, "nbf": now + 3600}),
        "an ID token": issuer.sign(claims, typ="JWT"),
        "no type": issuer.sign(claims, typ=""),
        "an unknown key": issuer.sign(claims, kid="unknown"),
        "another key under a known kid": strangers_key,
        "no signature": jwt.encode(claims, None, algorithm="none", headers=none),
        "a symmetric signature": jwt.encode(
            claims, base64url(issuer.jwks()).encode(), algorithm="HS256", headers=symmetric
        ),
        "no client": issuer.sign({name: value for name, value in claims.items() if name != "client_id"}),
    }


async def test_a_token_with_any_defect_is_refused(management: Management) -> None:
    for what, token in wrong_tokens(management).items():
        assert await answers(management, [f"Bearer {token}"]) == [INVALID] * 3, what


async def test_a_token_with_an_actor_is_refused(management: Management) -> None:
    user = await management.created("users")
    token = management.token(subject=user["id"], act={"sub": "support"})
    assert await answers(management, [f"Bearer {token}"]) == [FORBIDDEN] * 3
    assert await answers(management, [f"Bearer {management.token(act={})}"]) == [INVALID] * 3  # an actor without a name


@pytest.mark.parametrize("scope", ["", "ALL", "all-users", "al l", "read:all", "openid"])
async def test_a_token_without_the_scope_is_refused(management: Management, scope: str) -> None:
    assert await answers(management, [f"Bearer {management.token(scope=scope)}"]) == [FORBIDDEN] * 3


async def test_the_narrow_scope_covers_subject_tokens_only(management: Management) -> None:
    user = await management.created("users")
    async with management.client_with(management.token(scope="other subject-tokens")) as client:
        assert (await client.post("/api/subject-tokens", json={"userId": user["id"]})).status_code == 201
        for method, path in (("GET", "/api/users"), ("POST", "/api/users"), ("GET", f"/api/users/{user['id']}")):
            assert refusal(await client.request(method, path)) == (403, "auth.forbidden")


async def test_a_deleted_client_is_refused_although_its_tokens_have_not_expired(
    management: Management,
) -> None:
    machine = await management.machine()
    authorization = [f"Bearer {management.token(client_id=machine)}"]
    async with management.client_with(management.token(client_id=machine)) as client:
        assert (await client.get("/api/users")).status_code == 200
        await management.client.delete(f"/api/applications/{machine}")
        assert refusal(await client.get("/api/users")) == (401, "auth.unauthorized")
    assert await answers(management, authorization) == [INVALID] * 3


async def test_a_caller_and_its_user_are_read_again_only_after_a_change(
    management: Management, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unchanged revision confirms them. An unknown user is not cached: its id may be of any size."""
    user, fetch = (await management.created("users"))["id"], asyncpg.Connection.fetch
    sent: list[str] = []
    names = {authentication.SELECT_FACTS: "facts", authentication.SELECT_REVISION: "revision"}

    async def remembering(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        sent.extend(name for statement, name in names.items() if statement == query)
        return await fetch(self, query, *args, **kwargs)

    async def minted(user_id: str) -> tuple[int, list[str]]:
        sent.clear()
        answer = await management.client.post("/api/subject-tokens", json={"userId": user_id})
        return answer.status_code, list(sent)

    with monkeypatch.context() as patched:
        patched.setattr(asyncpg.Connection, "fetch", remembering)
        assert [await minted(user) for _ in range(2)] == [(201, ["facts"]), (201, ["revision"])]
        assert [await minted("unknown") for _ in range(2)] == [(404, ["facts"])] * 2
        await management.client.patch(f"/api/users/{user}/is-suspended", json={"isSuspended": True})
        assert [await minted(user) for _ in range(2)] == [(422, ["revision", "facts"]), (422, ["revision"])]


async def test_all_callers_that_wait_are_looked_up_at_once(
    management: Management, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many: while the database does not answer, none waits for several statements, one after the other."""
    lookups, fetch = Lookups(management.settings.database_url, service="tests"), asyncpg.Connection.fetch
    verifier = AsyncAccessTokenVerifier(issuer=management.issuer.issuer, audience=AUDIENCE)
    token = await verifier.verify(management.token())
    asked: list[int] = []

    async def counting(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        if query == authentication.SELECT_FACTS:
            asked.append(len(args[1]))
        return await fetch(self, query, *args, **kwargs)

    looked_up = Authentication(lookups, tenant_id=management.tenant_id)
    with monkeypatch.context() as patched:
        patched.setattr(asyncpg.Connection, "fetch", counting)
        named = [looked_up.named_user(token, f"unknown-{number}") for number in range(600)]
        assert [each and each.is_suspended for each in await asyncio.gather(*named)] == [None] * 600
    assert asked == [600]
    lookups.stop()


async def test_a_user_is_locked_out_by_suspension_deletion_and_a_new_password(management: Management) -> None:
    """Users whose role holds the scope pass the same check as applications."""

    async def locked_out(user_id: str, *, issued_at: float | None = None) -> bool:
        token = management.token(subject=user_id, issued_at=issued_at)
        async with management.client_with(token) as client:
            statuses = {(await client.get("/api/users")).status_code}
            statuses.add((await client.post("/api/subject-tokens", json={"userId": user_id})).status_code)
        return statuses <= {401}

    later = time.time() + 600
    user = (await management.created("users"))["id"]
    assert not await locked_out(user)
    await management.client.patch(f"/api/users/{user}/password", json={"password": "a new password"})
    assert await locked_out(user, issued_at=time.time() - 30)
    assert not await locked_out(user, issued_at=later)
    await management.client.patch(f"/api/users/{user}/is-suspended", json={"isSuspended": True})
    assert await locked_out(user, issued_at=later)
    await management.client.patch(f"/api/users/{user}/is-suspended", json={"isSuspended": False})
    assert await locked_out(user, issued_at=time.time() - 30)
    assert not await locked_out(user, issued_at=later)
    await management.client.delete(f"/api/users/{user}")
    assert await locked_out(user, issued_at=later)


@pytest.mark.heavy
async def test_the_second_of_two_changes_within_a_second_ends_tokens_issued_in_between(
    management: Management,
) -> None:
    """``iat`` is in whole seconds; a token issued in the second of a change has ``iat_ms`` (docs/decisions/0004)."""
    for _ in range(3):
        user = (await management.created("users"))["id"]
        path = f"/api/users/{user}/password"
        await management.client.patch(path, json={"password": "a new password"})
        after = (await management.event_data("user", user))["tokens_valid_after"]
        token = management.token(subject=user, issued_at=after // 1000, iat_ms=after)
        async with management.client_with(token) as client:
            assert (await client.get("/api/users")).status_code == 200
            await management.client.patch(path, json={"password": "a newer password"})
            assert refusal(await client.get("/api/users")) == (401, "auth.unauthorized")


@pytest.mark.heavy
async def test_a_client_of_another_tenant_is_refused(management: Management) -> None:
    other = settings_for(management.addresses, management.issuer)
    app = create_app(other)
    async with running(app), client_of(app, management.token()) as client:
        assert refusal(await client.get("/api/users")) == (401, "auth.unauthorized")


@pytest.mark.heavy
async def test_entities_of_another_tenant_are_not_found(management: Management) -> None:
    user = await management.created("users", username=unique("u"))
    async with Management(management.addresses, management.issuer) as other:
        assert refusal(await other.client.get(f"/api/users/{user['id']}")) == (404, "entity.not_exists_with_id")
        assert refusal(await other.client.delete(f"/api/users/{user['id']}")) == (404, "entity.not_found")
        minted = await other.client.post("/api/subject-tokens", json={"userId": user["id"]})
        assert refusal(minted) == (404, "entity.relation_foreign_key_not_found")
        assert (await other.client.get("/api/users")).json() == []
        same_name = await other.client.post("/api/users", json={"username": user["username"]})
        assert same_name.status_code == 200


@pytest.mark.heavy
async def test_without_the_issuer_s_keys_every_request_gets_a_503(management: Management) -> None:
    settings = settings_for(management.addresses, management.issuer, jwks_url="http://127.0.0.1:9/jwks")
    app = create_app(settings)
    async with running(app), client_of(app, management.token()) as client:
        for method, path in ROUTES:
            answer = await client.request(method, path)
            assert refusal(answer) == (503, "temporarily_unavailable")
            assert int(answer.headers["Retry-After"]) >= 1


async def test_the_status_needs_no_token(management: Management) -> None:
    async with management.client_with(None) as client:
        answer: httpx.Response = await client.get("/api/status")
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_revoked_token_is_refused_by_every_replica_and_others_are_not(
    management: Management, stack: RunningStack
) -> None:
    """By the token's own id, and by that of its authorization."""
    addresses = management.addresses
    tokens = {name: management.token(jti=name) for name in ("alone", "family.one", "family.two", "other.one")}

    async def seen() -> dict[str, int]:
        answers = {}
        for name, token in tokens.items():
            async with management.client_with(token) as client:
                answer = await client.get("/api/users")
                assert answer.status_code == 200 or refusal(answer) == (401, "auth.unauthorized")
                answers[name] = answer.status_code
        return answers

    assert set((await seen()).values()) == {200}
    async with opened(
        database_url=addresses.token_database_url, redis_url=addresses.token_redis_url, tenant_id=management.tenant_id
    ) as stores:
        later = now_ms() + 3_600_000
        await stores.revocations.revoke(Revocation("alone", later), Revocation("family", later))
    assert await seen() == {"alone": 401, "family.one": 401, "family.two": 401, "other.one": 200}


async def test_a_token_that_was_just_verified_stays_valid_while_redis_does_not_answer(management: Management) -> None:
    """A failover is not an outage: such tokens work for a minute more; unknown and revoked ones get a 503."""
    now = 0.0
    good, revoked, unknown = (management.token(jti=f"{name} {unique('t')}") for name in ("good", "revoked", "unknown"))
    async with TcpProxy(management.settings.redis_url) as redis:
        commands = RedisCommands(connect_redis(redis.url))
        tokens = UnrevokedTokens(
            AsyncAccessTokenVerifier(issuer=management.issuer.issuer, audience=AUDIENCE),
            RevocationReader(commands, tenant_id=management.tenant_id),
            clock=lambda: now,
        )

        async def status(token: str) -> int:
            try:
                await tokens.verify(token)
            except (AnyFailure, ApiError) as error:
                return refusal_of(error).status
            return 200

        assert [await status(token) for token in (good, revoked)] == [200, 200]
        token_id = (await tokens.verify(revoked)).id
        await management.redis.set(revocation_key(management.tenant_id, token_id), "1", px=60_000)
        assert await status(revoked) == 401
        await redis.cut()
        assert [await status(token) for token in (good, revoked, unknown)] == [200, 503, 503]
        now = 61.0
        assert await status(good) == 503
        await redis.mend()
        assert [await status(token) for token in (good, revoked, unknown)] == [200, 401, 200]


async def test_every_request_gets_a_503_while_the_revocations_are_incomplete(management: Management) -> None:
    """A missing entry in an incomplete copy does not mean "not revoked"."""
    key = position_key(management.tenant_id)
    whole = await management.redis.get(key)
    try:
        for position in (None, CopyPosition(0, is_whole=False).format()):
            await (management.redis.set(key, position) if position else management.redis.delete(key))
            refused = await management.client.get("/api/users")
            assert refusal(refused) == (503, "temporarily_unavailable")
            assert int(refused.headers["Retry-After"]) >= 1
    finally:
        await management.redis.set(key, whole)
    assert (await management.client.get("/api/users")).status_code == 200
