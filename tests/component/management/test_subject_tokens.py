"""``POST /api/subject-tokens``: the token, its record, and every refusal."""

import asyncio
import re

import jwt
import msgspec
import nats
import pytest
from nats.errors import NoRespondersError
from nats.js.errors import NotFoundError

from identity_common.clock import now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.stores.audit_streams import AuditStream, AuditStreamKeys
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.audit import STREAM_AUDIT, AuditContext, AuditEntry, audit_subject
from identity_common.wire.revocations import revocation_key
from identity_common.wire.subject_tokens import KEPT_AFTER_EXPIRY_MS, SubjectTokenRecord, subject_token_key
from management_service.app import create_app
from management_service.subject_tokens.store import RequestOrigin, SubjectTokenWriter
from tests.support.audit_entries import entries_in
from tests.support.management_api import Management, client_of, issues, refusal, running, settings_for, unique
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S

PATH = "/api/subject-tokens"


async def test_a_subject_token_is_random_and_only_its_hash_is_stored_with_a_ttl(management: Management) -> None:
    user = await management.created("users", name="Customer")
    context = {"ticketId": "T-1", "nested": {"ä": [1, None, 2.5]}}
    before = await management.revision()
    answer = await management.client.post(PATH, json={"userId": user["id"], "context": context})
    minted = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Identity-Revision" not in answer.headers
    assert minted == {"subjectToken": minted["subjectToken"], "expiresIn": 600}
    assert re.fullmatch(r"sub_[0-9A-Za-z]{43}", minted["subjectToken"])

    assert re.fullmatch(r"[0-9a-z]{21}", answer.headers["Impersonation-Id"])
    key = subject_token_key(management.tenant_id, minted["subjectToken"])
    stored = await management.redis.get(key)
    record = msgspec.json.decode(stored, type=SubjectTokenRecord)
    assert record == SubjectTokenRecord(
        id=answer.headers["Impersonation-Id"],
        user_id=user["id"],
        issued_to=management.credentials.client_id,
        issued_at=record.issued_at,
        expires_at=record.issued_at + 600_000,
        revision=before,
        minted_at=record.issued_at,
        context=record.context,
    )
    assert msgspec.json.decode(record.context) == context
    assert minted["subjectToken"].encode() not in stored
    ttl_ms = await management.redis.pttl(key)
    assert 600_000 < ttl_ms <= 600_000 + KEPT_AFTER_EXPIRY_MS


@pytest.mark.heavy
async def test_a_minted_token_is_recorded_for_the_audit_trail(management: Management) -> None:
    """With its public id, the caller, and what people read of the context; nothing else of it, and not the token."""
    user = await management.created("users", name="Customer")
    context = {"reason": "r" * 300, "ticketId": 7, "card": "4111111111111111"}
    administrator = (await management.created("users"))["id"]
    async with management.client_with(management.token(subject=administrator)) as client_of_theirs:
        answer = await client_of_theirs.post(PATH, json={"userId": user["id"], "context": context})
    token = answer.json()["subjectToken"]
    stored = await management.redis.get(subject_token_key(management.tenant_id, token))
    record = msgspec.json.decode(stored, type=SubjectTokenRecord)
    client = await nats.connect(management.settings.nats_url, inbox_prefix="_INBOX_management")
    subject, entry, position = audit_subject("subject-tokens", management.tenant_id), None, 0
    async with asyncio.timeout(WAIT_S):
        while entry is None or entry.subject_token_id != record.id:
            try:
                message = await client.jetstream().get_msg(
                    STREAM_AUDIT, position + 1, subject=subject, next=True, direct=True
                )
            except (NotFoundError, NoRespondersError):
                await asyncio.sleep(0.05)
                continue
            position = message.seq or 0
            of_token = [each for each in entries_in(message.data) if each.subject_token_id == record.id]
            entry = of_token[0] if of_token else None
    await client.close()

    assert entry == AuditEntry(
        id=entry.id,
        occurred_at=record.expires_at - 600_000,
        tenant_id=management.tenant_id,
        log="subject-tokens",
        epoch=entry.epoch,
        sequence=entry.sequence,
        key="subject-token.issued",
        operation="CreateSubjectToken",
        application_id=management.credentials.client_id,
        user_id=user["id"],
        requested_by=administrator,
        subject_token_id=record.id,
        token_id=entry.token_id,
        context=AuditContext(reason="r" * 256),
        expires_at=record.expires_at,
        request_id=answer.headers["X-Request-Id"],
        address="127.0.0.1",
        user_agent=entry.user_agent,
    )
    assert entry.token_id
    assert token not in str(message.data)


async def test_a_full_audit_trail_refuses_to_mint(management: Management) -> None:
    """Nothing is stored then; the tenant is one whose log no relay empties."""
    redis = connect_redis(management.settings.redis_url)
    tenant_id = unique("t")
    commands = RedisCommands(redis)
    refusals = AuditStream(commands, AuditStreamKeys.of("subject-tokens", tenant_id), backlog=1)
    store = SubjectTokenWriter(commands, tenant_id=tenant_id, ttl_s=600, backlog=1, refusals=refusals)
    now = now_ms()
    record = SubjectTokenRecord(
        id="t1", user_id="ann", issued_to="c1", issued_at=now, expires_at=now + 600_000, revision=0
    )
    origin = RequestOrigin(address="", user_agent="")
    await store.require_stored(store.store("sub_1", record, token_id="j1", origin=origin), record)
    with pytest.raises(TemporarilyUnavailable):
        await store.require_stored(store.store("sub_2", record, token_id="j1", origin=origin), record)
    await redis.aclose()

    stored = [await management.redis.exists(subject_token_key(tenant_id, token)) for token in ("sub_1", "sub_2")]
    assert stored == [1, 0]


async def test_a_subject_token_without_a_context_has_an_empty_one(management: Management) -> None:
    user = await management.created("users")
    minted = (await management.client.post(PATH, json={"userId": user["id"]})).json()
    stored = await management.redis.get(subject_token_key(management.tenant_id, minted["subjectToken"]))
    assert msgspec.json.decode(msgspec.json.decode(stored, type=SubjectTokenRecord).context) == {}


async def test_the_record_carries_the_current_revision(management: Management) -> None:
    user = await management.created("users")
    await management.client.patch(f"/api/users/{user['id']}", json={"name": "Changed"})
    minted = (await management.client.post(PATH, json={"userId": user["id"]})).json()
    stored = await management.redis.get(subject_token_key(management.tenant_id, minted["subjectToken"]))
    event = await management.event("user", user["id"])
    assert event is not None
    assert msgspec.json.decode(stored, type=SubjectTokenRecord).revision == event.revision


async def test_concurrently_minted_tokens_are_all_different(management: Management) -> None:
    user = await management.created("users")
    answers = await asyncio.gather(*(management.client.post(PATH, json={"userId": user["id"]}) for _ in range(200)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["subjectToken"] for answer in answers}) == 200


async def test_an_unknown_or_suspended_user_cannot_be_impersonated(management: Management) -> None:
    unknown = await management.client.post(PATH, json={"userId": "nobody"})
    assert refusal(unknown) == (404, "entity.relation_foreign_key_not_found")
    user = await management.created("users")
    await management.client.patch(f"/api/users/{user['id']}/is-suspended", json={"isSuspended": True})
    assert refusal(await management.client.post(PATH, json={"userId": user["id"]})) == (422, "user.suspended")
    await management.client.patch(f"/api/users/{user['id']}/is-suspended", json={"isSuspended": False})
    assert (await management.client.post(PATH, json={"userId": user["id"]})).status_code == 201
    await management.client.delete(f"/api/users/{user['id']}")
    deleted = await management.client.post(PATH, json={"userId": user["id"]})
    assert refusal(deleted) == (404, "entity.relation_foreign_key_not_found")


async def test_a_context_may_have_16_kib_and_not_a_byte_more(management: Management) -> None:
    user = await management.created("users")
    filler = 16 * 1024 - len('{"a":""}')
    fitting = await management.client.post(PATH, json={"userId": user["id"], "context": {"a": "x" * filler}})
    assert fitting.status_code == 201
    for content in ("x" * (filler + 1), "ü" * (filler // 2 + 1)):
        too_large = await management.client.post(PATH, json={"userId": user["id"], "context": {"a": content}})
        assert refusal(too_large) == (413, "request.too_large")


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"userId"}),
        ({"userId": None}, {"userId"}),
        ({"userId": 1}, {"userId"}),
        ({"userId": ["a"]}, {"userId"}),
        ({"userId": "a", "context": None}, {"context"}),
        ({"userId": "a", "context": []}, {"context"}),
        ({"userId": "a", "context": "{}"}, {"context"}),
        ({"userId": "a", "ttl": 5}, {"ttl"}),
        ({"userid": "a"}, {"userId", "userid"}),
        ([], {""}),
        ("a", {""}),
    ],
)
async def test_every_wrong_member_is_named(management: Management, body: object, paths: set[str]) -> None:
    assert issues(await management.client.post(PATH, json=body)) == paths


async def test_a_deleted_caller_is_refused_before_the_body_is_read(management: Management) -> None:
    gone = await management.machine()
    await management.client.delete(f"/api/applications/{gone}")
    async with management.client_with(management.token(client_id=gone)) as client:
        for answer in (
            await client.post(PATH, json={"userId": "nobody"}),
            await client.post(PATH, json={}),
            await client.post(PATH, content=b"{"),
            await client.post(PATH),
            await client.post(PATH, content=b"userId=a", headers={"Content-Type": "text/plain"}),
        ):
            assert refusal(answer) == (401, "auth.unauthorized")


async def test_a_revoked_token_is_refused_before_any_other_check(management: Management) -> None:
    user, suspended = [(await management.created("users"))["id"] for _ in range(2)]
    await management.client.patch(f"/api/users/{suspended}/is-suspended", json={"isSuspended": True})
    requests = (
        ({"userId": user}, 201),
        ({"userId": "nobody"}, 404),
        ({"userId": suspended}, 422),
        ({"userId": user, "context": {"a": "x" * 16_384}}, 413),
        ({}, 400),
    )
    for scope in ("subject-tokens", "else"):
        token = management.token(jti=unique("t"), scope=scope)
        async with management.client_with(token) as client:
            before = [(await client.post(PATH, json=body)).status_code for body, _ in requests]
            token_id = jwt.decode(token, options={"verify_signature": False})["jti"]
            await management.redis.set(revocation_key(management.tenant_id, token_id), "1", px=60_000)
            after = {refusal(await client.post(PATH, json=body)) for body, _ in requests}
        assert before == [status if scope == "subject-tokens" else 403 for _, status in requests]
        assert after == {(401, "auth.unauthorized")}


@pytest.mark.heavy
async def test_without_redis_minting_is_refused_until_it_is_back(management: Management) -> None:
    async with TcpProxy(management.addresses.management_redis_url) as redis:
        settings = settings_for(
            management.addresses, management.issuer, tenant_id=management.tenant_id, redis_url=redis.url
        )
        user = await management.created("users")
        app = create_app(settings)
        async with running(app), client_of(app, management.token()) as client:
            assert (await client.post(PATH, json={"userId": user["id"]})).status_code == 201
            await redis.cut()
            for _ in range(3):
                refused = await client.post(PATH, json={"userId": user["id"]})
                assert refusal(refused) == (503, "temporarily_unavailable")
                assert int(refused.headers["Retry-After"]) >= 1
            assert (await client.get(f"/api/users/{user['id']}")).status_code == 200
            await redis.mend()
            assert (await client.post(PATH, json={"userId": user["id"]})).status_code == 201
