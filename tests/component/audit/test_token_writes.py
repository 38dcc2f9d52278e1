"""Consents and signing keys leave one entry for each change, written in the transaction of the change."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextvars import Context
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from all_in_one.openapi import whole_document
from identity_common.identifiers import new_id
from identity_common.outbox.restoration import REVISIONS_PER_MS
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import connect_redis
from identity_common.wire.audit import AuditEntry
from provision import ServerAddresses
from tests.component.token.test_signing_keys import REFRESH_S, Replicas, random_kek
from tests.support.authorizing import Stores, Verifier, begin, code_for, opened
from tests.support.running_stack import RunningStack
from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import World
from token_service.authorizations import Consented
from token_service.restoration import restore
from token_service.tokens.keys import JWKS_MAX_AGE_S, SigningKeyInUseError

OF_USERS = ("consents", "sessions")
OPENID = Consented(scopes=frozenset({"openid"}))


@pytest.fixture
async def replicas(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Replicas]:
    """Signing keys in a tenant of their own, whose outbox nothing empties."""
    engine = create_database_engine(servers.token_database_url, service="tests", pool_size=10)
    redis = connect_redis(servers.token_redis_url)
    yield Replicas(engine, redis, random_kek())
    await redis.aclose()
    await engine.dispose()


@pytest.fixture
async def stores(replicas: Replicas, servers: ServerAddresses) -> AsyncIterator[Stores]:
    """The consents of that tenant."""
    urls = {"database_url": servers.token_database_url, "redis_url": servers.token_redis_url}
    async with opened(**urls, tenant_id=replicas.tenant_id) as its:
        yield its


async def entries(replicas: Replicas) -> list[AuditEntry]:
    """Return what waits in the outbox of the tenant; its numbers have no gap."""
    query = text("SELECT sequence, entry FROM audit_outbox WHERE tenant_id = :tenant ORDER BY sequence")
    async with replicas.engine.connect() as connection:
        rows = (await connection.execute(query, {"tenant": replicas.tenant_id})).all()
    assert [row.sequence for row in rows] == [*range(1, len(rows) + 1)]
    return [msgspec.json.decode(row.entry, type=AuditEntry, strict=True) for row in rows]


async def test_a_consent_that_is_given_changed_and_withdrawn_leaves_three_entries(
    replicas: Replicas, stores: Stores
) -> None:
    user_id, application_id = new_id(), new_id()

    async def consent_to(consented: Consented) -> None:
        await begin(stores, code_for(user_id, application_id, Verifier(), consented=consented).authorization)

    picked = msgspec.structs.replace(OPENID, organizations=frozenset({"o1", "o2"}))
    await consent_to(OPENID)
    await consent_to(OPENID)
    await consent_to(picked)
    await consent_to(msgspec.structs.replace(picked, organizations=frozenset({"o1"})))
    for was_there in (True, False):
        # As in background work: a request that this process handled for a test may be noted in the test's own context.
        withdrawal = stores.authorizations.withdraw_consent(user_id, application_id)
        assert await asyncio.create_task(withdrawal, context=Context()) is was_there

    found = await entries(replicas)
    assert [(entry.key, entry.user_id, entry.application_id) for entry in found] == [
        ("token.consent.create", user_id, application_id),
        ("token.consent.update", user_id, application_id),
        ("token.consent.update", user_id, application_id),
        ("token.consent.delete", user_id, None),
    ]
    assert {(entry.log, entry.tenant_id, entry.aggregates) for entry in found} == {
        ("token", replicas.tenant_id, (f"consent/{user_id}/{application_id}",))
    }


@pytest.mark.servers
async def test_a_consent_that_is_rolled_back_leaves_no_entry(replicas: Replicas, stores: Stores) -> None:
    authorization = code_for(new_id(), new_id(), Verifier(), consented=OPENID).authorization
    with pytest.raises(ZeroDivisionError):
        async with stores.authorizations.agreement(authorization.user_id, authorization.application_id) as agreement:
            await agreement.begin(authorization, implicit=False)
            raise ZeroDivisionError
    assert await entries(replicas) == []


async def test_a_consent_that_was_recorded_without_asking_says_so(replicas: Replicas, stores: Stores) -> None:
    """At a sign-in to a first-party application; then it becomes a third-party one, which asks."""
    user_id, application_id = new_id(), new_id()
    for implicit, scopes in ((True, ("openid",)), (True, ("openid", "email")), (False, ("openid", "email"))):
        consented = msgspec.structs.replace(OPENID, scopes=frozenset(scopes))
        authorization = code_for(user_id, application_id, Verifier(), consented=consented).authorization
        async with stores.authorizations.agreement(user_id, application_id) as agreement:
            await agreement.begin(authorization, implicit=implicit)
    assert [entry.key for entry in await entries(replicas)] == [
        "token.consent.imply",
        "token.consent.imply",
        "token.consent.update",
    ]


async def test_keys_that_are_rotated_deleted_or_expire_leave_one_entry_each(replicas: Replicas) -> None:
    keys = replicas.one()
    await keys.load()
    next_key, current = sorted(await keys.stored(), key=lambda key: key.status, reverse=True)
    replicas.time.pass_s(JWKS_MAX_AGE_S + REFRESH_S)
    await keys.rotate()
    with pytest.raises(SigningKeyInUseError):
        await keys.delete(next_key.kid)
    assert not await keys.delete("unknown")
    replicas.time.pass_s(7200)
    await keys.load()
    await keys.load()
    second = next(key.kid for key in await keys.stored() if key.status == "Next")
    assert await keys.delete(second)

    assert [(entry.key, {*entry.aggregates}) for entry in await entries(replicas)] == [
        ("token.signing-key.rotate", {f"signing-key/{next_key.kid}", f"signing-key/{current.kid}"}),
        ("token.signing-key.delete", {f"signing-key/{current.kid}"}),
        ("token.signing-key.delete", {f"signing-key/{second}"}),
    ]


async def test_a_restored_database_counts_on_above_all_its_numbers(replicas: Replicas) -> None:
    keys = replicas.one()
    await keys.load()
    await restore(replicas.engine, replicas.redis, tenant_id=replicas.tenant_id)
    query = text("SELECT sequence FROM audit_count WHERE tenant_id = :tenant")
    async with replicas.engine.connect() as connection:
        sequence = (await connection.execute(query, {"tenant": replicas.tenant_id})).scalar_one()
    assert sequence > replicas.time.ms * REVISIONS_PER_MS - 1


@pytest.mark.heavy
async def test_every_write_of_token_service_through_the_management_api_reaches_the_trail_once(
    stack: RunningStack, replicas: Replicas, servers: ServerAddresses, world: World
) -> None:
    request = stack.management.request
    keys, feed_keys = "/api/configs/oidc/private-keys", "/api/configs/oidc/not-valid-keys"
    user_id, application_id = world.user(), new_id()
    consented = code_for(user_id, application_id, Verifier(), consented=OPENID).authorization
    async with opened(database_url=servers.token_database_url, redis_url=servers.token_redis_url) as of_stack:
        await begin(of_stack, consented)
    older = "UPDATE signing_key SET created_at = created_at - 3600000 WHERE tenant_id = 'default' AND status = 'Next'"
    async with replicas.engine.begin() as connection:
        await connection.execute(text(older))
    by_status = {key["status"]: key["id"] for key in request("POST", f"{keys}/rotate")}
    current, next_key = by_status["Current"], by_status["Next"]
    request("DELETE", f"{keys}/{next_key}")
    (feed_key,) = request("POST", f"{feed_keys}/rotate", json={"emergency": True})
    request("DELETE", f"/api/users/{user_id}/consents/{application_id}")
    ended, ended_by_user = new_id(), new_id()
    for session_id in (ended, ended_by_user):
        SignIn(world, user_id=user_id, session_id=session_id)
    own_token = {"Authorization": f"Bearer {world.userinfo_token(user_id, scope='openid account')}"}
    request("DELETE", f"/api/users/{user_id}/sessions/{ended}")
    client_id = world.traditional.id
    for path in (f"sessions/{ended_by_user}", f"consents/{client_id}"):  # the latter ends the token
        assert stack.http.delete(f"/api/my-account/{path}", headers=own_token).status_code == 204

    writes = {
        "RotatePrivateKeys": ("token.signing-key.rotate", {}, f"signing-key/{current}"),
        "DeletePrivateKey": ("token.signing-key.delete", {"key_id": next_key}, f"signing-key/{next_key}"),
        "RotateNotValidKeys": ("token.not-valid-key.rotate", {}, f"not-valid-key/{feed_key['id']}"),
        "DeleteUserConsent": (
            "token.consent.delete",
            {"user_id": user_id, "application_id": application_id},
            f"consent/{user_id}/{application_id}",
        ),
        "EndUserSession": (
            "token.session.delete",
            {"user_id": user_id, "session_id": ended},
            f"session/{user_id}/{ended}",
        ),
        "EndOwnSession": (
            "token.session.delete",
            {"session_id": ended_by_user},
            f"session/{user_id}/{ended_by_user}",
        ),
        "WithdrawOwnConsent": (
            "token.consent.delete",
            {"application_id": client_id},
            f"consent/{user_id}/{client_id}",
        ),
    }
    of_user = tuple(f"/api/{whose}/{what}" for whose in ("users/{user_id}", "my-account") for what in OF_USERS)
    paths = (keys, feed_keys, *of_user)  # token-service's part of /api
    documented = {
        operation["operationId"]
        for path, methods in json.loads(whole_document())["paths"].items()
        for method, operation in methods.items()
        if path.startswith(paths) and method in {"post", "put", "patch", "delete"}
    }
    assert writes.keys() == documented
    for operation, (key, ids, aggregate) in writes.items():
        found: list[Any] = []

        def is_in_the_trail(operation: str = operation, aggregate: str = aggregate, found: list[Any] = found) -> bool:
            listed = request("GET", f"/api/logs?operation={operation}")
            found[:] = [entry for entry in listed if aggregate in entry["aggregates"]]
            return bool(found)

        eventually(is_in_the_trail)
        caller = (stack.credentials.management_api.client_id, None)
        caller = (client_id, user_id) if "Own" in operation else caller
        assert [
            (each["log"], each["key"], each.get("ids", {}), each["applicationId"], each.get("userId")) for each in found
        ] == [("token", key, ids, *caller)]
