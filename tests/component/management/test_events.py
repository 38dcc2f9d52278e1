"""The outbox: the stream agrees with the database, in order, and holds nothing before its commit."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import msgspec
import nats
import pytest

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import StreamReader
from identity_common.wire.events import STREAM_INTERNAL, STREAM_STATE, ApplicationState
from management_service.app import create_app
from management_service.commands import bootstrap
from management_service.settings import Settings
from stead.event_types import CloudEvent
from tests.support.captured_logs import captured_logs
from tests.support.databases import until_waited_for
from tests.support.lengths import length
from tests.support.management_api import (
    Management,
    at_once,
    client_of,
    refusal,
    revision_of,
    running,
    settings_for,
    unique,
)
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S


async def everything_published(management: Management, tenant_id: str) -> dict[str, CloudEvent]:
    """Return the last event of every aggregate of a tenant, by subject, once the outbox is empty."""
    await management.outbox_drained(tenant_id)
    bus = await nats.connect(management.settings.nats_url, inbox_prefix="_INBOX_management")
    jetstream = bus.jetstream()
    try:
        info = await jetstream.stream_info(STREAM_INTERNAL, subjects_filter=f"identity-internal.{tenant_id}.>")
        subjects = info.state.subjects or {}
        messages = [await jetstream.get_last_msg(STREAM_INTERNAL, subject, direct=True) for subject in subjects]
    finally:
        await bus.close()
    return {message.subject or "": msgspec.json.decode(message.data or b"", type=CloudEvent) for message in messages}


@asynccontextmanager
async def another(management: Management, settings: Settings) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    """Run the service with other settings; yield its tenant and a client with a valid token."""
    credentials = await asyncio.to_thread(bootstrap, settings)
    app = create_app(settings)
    token = management.token(client_id=credentials.client_id)
    async with running(app), client_of(app, token) as client:
        yield settings.tenant_id, client


@pytest.mark.servers
@pytest.mark.heavy
async def test_a_stream_that_was_replaced_while_the_relay_was_connected_is_filled_again(own: Management) -> None:
    """The service publishes into a stream without its history, as after the loss of the stream and its recreation."""
    early = (await own.created("users", name="Early"))["id"]
    before = await everything_published(own, own.tenant_id)
    subject = f"identity-internal.{own.tenant_id}.user.{early}"
    bus = await nats.connect(own.settings.nats_url, inbox_prefix="_INBOX_management")
    watermark = f"identity-internal.{own.tenant_id}.revision.management"
    event = msgspec.structs.replace(before[watermark], data=msgspec.Raw(b'{"revision": 0}'))
    await bus.jetstream().publish(watermark, msgspec.json.encode(event))
    await bus.close()
    await own.client.post("/api/users", json={"name": "Late"})

    async with asyncio.timeout(WAIT_S):
        while True:
            after = await everything_published(own, own.tenant_id)
            if after[subject] != before[subject]:
                break
            await asyncio.sleep(0.05)

    assert msgspec.json.decode(after[subject].data) == msgspec.json.decode(before[subject].data)
    assert after.keys() > before.keys()


@pytest.mark.heavy
async def test_the_stream_agrees_with_the_database(own: Management) -> None:
    others = {user["id"] for user in (await own.client.get("/api/users")).json()}
    resource = await own.created("resources", name="Shop", indicator=f"https://{unique('r')}.example.com")
    scopes = [await own.created(f"resources/{resource['id']}/scopes", name=name) for name in ("a", "b", "c")]
    role = await own.created(
        "roles", name="Reader", description="", type="User", scopeIds=[scope["id"] for scope in scopes]
    )
    users = [await own.created("users", username=f"user{number}") for number in range(5)]
    for user in users:
        await own.client.post(f"/api/users/{user['id']}/roles", json={"roleIds": [role["id"]]})
    await own.client.delete(f"/api/resources/{resource['id']}/scopes/{scopes[0]['id']}")
    await own.client.delete(f"/api/users/{users[0]['id']}")
    await own.client.patch(f"/api/users/{users[1]['id']}/is-suspended", json={"isSuspended": True})

    published = await everything_published(own, own.tenant_id)
    events = {subject.split(".", 2)[2]: msgspec.json.decode(event.data) for subject, event in published.items()}
    alive = {name: data for name, data in events.items() if not data.get("deleted")}

    assert events.pop("revision.management") == {"revision": await own.revision()}
    listed = {user["id"]: user for user in (await own.client.get("/api/users")).json()}
    said = {name.removeprefix("user."): data for name, data in alive.items() if name.startswith("user.")}
    remaining = {user["id"] for user in users[1:]}
    assert said.keys() == listed.keys() == remaining | others
    assert {data["id"] for data in said.values() if data.get("is_suspended")} == {users[1]["id"]}
    holders = {user["id"] for user in (await own.client.get(f"/api/roles/{role['id']}/users")).json()}
    assigned = {data["id"] for data in alive.values() if data.get("role_ids") == [role["id"]]}
    assert assigned == holders == remaining
    shown = (await own.client.get(f"/api/resources/{resource['id']}/scopes")).json()
    told = {name.rpartition(".")[2] for name in alive if name.startswith(f"scope.{resource['id']}.")}
    assert told == {scope["id"] for scope in shown} == {scope["id"] for scope in scopes[1:]}


@pytest.mark.servers
@pytest.mark.heavy
async def test_concurrent_writes_are_numbered_without_a_gap_and_published_in_order(management: Management) -> None:
    before, count = await management.revision(), length(short=40, long=100)
    answers = await at_once(*(management.client.post("/api/users", json={}) for _ in range(count)))
    counted = sorted(revision_of(answer) for answer in answers)
    assert counted == list(range(before + 1, before + count + 1))
    bus = Bus(management.addresses.token_nats_url, service="token")
    bus.start()
    try:
        await bus.connected()
        heard = []
        subjects = [f"identity-internal.{management.tenant_id}.user.*"]
        async with asyncio.timeout(WAIT_S):
            async for batch in StreamReader(bus, STREAM_STATE, subjects).read_after(0):
                revisions = [message.event.revision for message in batch.messages]
                heard += [revision for revision in revisions if revision > before]
                if len(heard) >= count:
                    break
    finally:
        await bus.stop()
    assert heard == counted


@pytest.mark.servers
async def test_a_refused_write_leaves_no_event(management: Management) -> None:
    taken = await management.created("users", username=unique("taken"))
    await management.outbox_drained()
    before = await management.revision()
    answers = await at_once(
        *(management.client.post("/api/users", json={"username": taken["username"]}) for _ in range(10))
    )
    assert {refusal(answer) for answer in answers} == {(422, "user.username_already_in_use")}
    assert await management.revision() == before
    query = "SELECT count(*) FROM outbox WHERE tenant_id = $1"
    assert await management.database.fetchval(query, management.tenant_id) == 0


@pytest.mark.servers
async def test_an_event_is_never_published_before_its_commit(management: Management) -> None:
    """A transaction that locks the counter blocks every later one; its changes stay invisible until it commits."""
    user = await management.created("users", name="before")
    lock = "SELECT revision FROM source_revision WHERE tenant_id = $1 FOR UPDATE"
    async with management.database.transaction():
        await management.database.fetchval(lock, management.tenant_id)
        writing = asyncio.create_task(management.client.patch(f"/api/users/{user['id']}", json={"name": "after"}))
        await until_waited_for(management.database)
        assert not writing.done()
        assert (await management.event_data("user", user["id"]))["name"] == "before"
        assert (await management.client.get(f"/api/users/{user['id']}")).json()["name"] == "before"
    answer = await writing
    event = await management.event("user", user["id"])
    assert event is not None
    assert event.revision == revision_of(answer)
    assert msgspec.json.decode(event.data)["name"] == "after"


@pytest.mark.servers
@pytest.mark.heavy
async def test_without_the_bus_writes_succeed_and_are_published_later(management: Management) -> None:
    async with TcpProxy(management.addresses.management_nats_url) as bus:
        settings = settings_for(management.addresses, management.issuer, nats_url=bus.url)
        async with another(management, settings) as (own, client):
            await bus.cut()
            made = [(await client.post("/api/users", json={"name": "dark"})).json()["id"] for _ in range(5)]
            query = "SELECT count(*) FROM outbox WHERE tenant_id = $1"
            assert await management.database.fetchval(query, own) >= 5
            await bus.mend()
            published = await everything_published(management, own)
            assert {f"identity-internal.{own}.user.{user}" for user in made} <= published.keys()


@pytest.mark.servers
@pytest.mark.heavy
async def test_without_the_database_every_request_is_refused_until_it_is_back(management: Management) -> None:
    async with TcpProxy(management.settings.database_url) as database:
        settings = settings_for(management.addresses, management.issuer, database_url=database.url)
        async with another(management, settings) as (_, client):
            user = (await client.post("/api/users", json={})).json()["id"]
            requests = [
                ("GET", "/api/users", None),
                ("GET", f"/api/users/{user}", None),
                ("POST", "/api/users", {"password": "a good password"}),
                ("PATCH", f"/api/users/{user}", {"name": "n"}),
                ("DELETE", f"/api/users/{user}/roles/none", None),
                ("POST", "/api/subject-tokens", {"userId": user}),
            ]
            await asyncio.gather(*(client.get("/api/users") for _ in range(20)))  # every connection of the pool is open
            await database.cut()
            for _ in range(2):
                for method, path, body in requests:
                    answer = await client.request(method, path, json=body)
                    assert refusal(answer) == (503, "temporarily_unavailable"), (method, path)
                    assert int(answer.headers["Retry-After"]) >= 1
            assert (await client.get("/api/status")).status_code == 204
            assert (await client.get("/health/live")).status_code == 200
            await database.mend()
            for method, path, body in requests:
                answer = await client.request(method, path, json=body)
                assert answer.status_code < 500, (method, path, answer.text)


async def test_no_change_commits_on_a_server_that_was_not_checked(management: Management) -> None:
    """A standby that was promoted may lack what was published, until the active relay has compared it."""
    state = "SELECT (SELECT count(*) FROM users WHERE tenant_id = $1), s FROM source_revision AS s WHERE tenant_id = $1"
    checked = "SELECT checked_server FROM source_revision WHERE tenant_id = $1"
    check = "UPDATE source_revision SET checked_server = $2 WHERE tenant_id = $1"
    server = await management.database.fetchval(checked, management.tenant_id)
    try:
        for another_server in (None, "7000000000000000000/00000001"):
            await management.database.execute(check, management.tenant_id, another_server)
            before = await management.database.fetchrow(state, management.tenant_id)
            answer = await management.client.post("/api/users", json={})
            assert refusal(answer) == (503, "temporarily_unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
            assert await management.database.fetchrow(state, management.tenant_id) == before
            assert (await management.client.get("/api/users")).status_code == 200
    finally:
        await management.database.execute(check, management.tenant_id, server)
    assert (await management.client.post("/api/users", json={})).status_code == 200


@pytest.mark.heavy
async def test_logs_events_and_metrics_hold_no_secrets_or_personal_data(management: Management) -> None:
    with captured_logs("management-service") as log:
        async with Management(management.addresses, management.issuer) as own:
            password, name = "swordfish-swordfish", unique("private-person")
            user = await own.created("users", username=name, password=password, primaryEmail=f"{name}@example.com")
            await own.client.patch(f"/api/users/{user['id']}/password", json={"password": password + "2"})
            application = await own.created("applications", name="Shop", type="Traditional")
            secret = await own.created(f"applications/{application['id']}/secrets", name="first")
            minted = await own.created("subject-tokens", userId=user["id"], context={"reason": "top-secret-reason"})
            await own.client.post("/api/users", json={"password": password, "username": name})
            await own.client.post("/api/users", content=password.encode())
            metrics = (await own.client.get("/metrics")).text
            events = await everything_published(own, own.tenant_id)
            database_password = own.settings.database_url.split(":")[2].partition("@")[0]
            token = own.client.headers["Authorization"].removeprefix("Bearer ")
    secrets = [
        password,
        secret["value"],
        minted["subjectToken"],
        database_password,
        token,
        "top-secret-reason",
        "argon2",
    ]
    written = log.getvalue()
    assert "bus.connected" in written
    assert all(json.loads(line) for line in written.splitlines())
    said = " ".join(bytes(event.data).decode() for event in events.values())
    for hidden in (*secrets, own.credentials.client_secret):
        assert hidden not in written
        assert hidden not in metrics
        assert hidden not in said
    assert name not in written
    assert name not in metrics


async def test_the_event_of_an_application_carries_its_token_settings(management: Management) -> None:
    """Token-service has no other source for lifetimes and rotation; null in a change restores the default."""
    settings = {"idTokenTtl": 60, "refreshTokenTtlInDays": 3, "rotateRefreshToken": False}
    application = await management.created(
        "applications",
        name="Shop",
        type="Traditional",
        customClientMetadata={**settings, "alwaysIssueRefreshToken": True},
    )

    async def published() -> ApplicationState:
        event = await management.event("application", application["id"])
        assert event is not None
        return msgspec.json.decode(event.data, type=ApplicationState)

    state = await published()
    assert (state.id_token_ttl_s, state.refresh_token_ttl_days) == (60, 3)
    assert (state.rotate_refresh_token, state.always_issue_refresh_token) == (False, True)
    change = {"customClientMetadata": dict.fromkeys([*settings, "alwaysIssueRefreshToken"])}
    await management.client.patch(f"/api/applications/{application['id']}", json=change)
    state = await published()
    assert (state.id_token_ttl_s, state.refresh_token_ttl_days) == (3600, 14)
    assert (state.rotate_refresh_token, state.always_issue_refresh_token) == (True, False)
