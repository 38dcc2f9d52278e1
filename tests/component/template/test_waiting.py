"""Waiting for a change instead of polling: ``Prefer: wait`` with ``If-None-Match``."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
import pytest_asyncio

from identity_common.wire.events import ApplicationState
from tests.support.effective_permissions import ReadingMember, at_rest, looks
from tests.support.lengths import length
from tests.support.management_api import refusal, unique
from tests.support.organizations import KINDS, USERS, Kind, Organization
from tests.support.processes import ServiceProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_api import Template
from tests.support.waiting import eventually_here

of_both_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)
FAR_BELOW_20_S = 10


@pytest_asyncio.fixture
async def member(template: Template) -> ReadingMember:
    """A user with one permission."""
    return await ReadingMember.new(template)


async def etag_of(member: ReadingMember) -> str:
    return (await member.read()).headers["ETag"]


async def machines(template: Template, count: int) -> list[str]:
    """Return the ids of as many applications, which the service knows."""
    ids = [unique("machine") for _ in range(count)]
    states = [
        msgspec.json.encode(ApplicationState(id=each, name="Machine", type="MachineToMachine")).decode() for each in ids
    ]
    await template.database.execute(
        """
        INSERT INTO known_applications (tenant_id, id, name, type, state)
        SELECT $1, id, 'Machine', 'MachineToMachine', state FROM unnest($2::text[], $3::text[]) AS given (id, state)
        """,
        template.tenant_id,
        ids,
        states,
    )
    return ids


async def waiting_requests(template: Template) -> int:
    """Return the number of waiting requests from the metrics."""
    async with template.client_with(None) as client:
        text = (await client.get("/metrics")).text
    [line] = [line for line in text.splitlines() if line.startswith("stead_waiting_requests ")]
    return int(float(line.partition(" ")[2]))


@asynccontextmanager
async def a_waiting_request(
    member: ReadingMember, etag: str, *, wait: str = "wait=20", token: str | None = None
) -> AsyncIterator["asyncio.Task[httpx.Response]"]:
    """Send a request that waits; the body runs once it is waiting."""
    before = await waiting_requests(member.template)
    request = asyncio.create_task(member.read(token, If_None_Match=etag, Prefer=wait))
    async with asyncio.timeout(FAR_BELOW_20_S):
        while await waiting_requests(member.template) == before:
            assert not request.done(), request.result().status_code
            await asyncio.sleep(0.005)
    try:
        yield request
    finally:
        request.cancel()


Change = Callable[[ReadingMember], Awaitable[Any]]


async def role_assigned(member: ReadingMember) -> Any:
    role = await member.template.role(
        type=member.organization.kind.role_type,
        organizationScopeIds=[(await member.template.permission())["id"]],
    )
    return await member.organization.assign([member.id], [role["id"]])


async def role_removed(member: ReadingMember) -> Any:
    return await member.template.client.delete(f"{member.organization.path}/{member.id}/roles/{member.role}")


async def role_grants_more(member: ReadingMember) -> Any:
    return await member.grant((await member.template.permission())["id"])


async def role_deleted(member: ReadingMember) -> Any:
    return await member.template.client.delete(f"/api/organization-roles/{member.role}")


async def permission_renamed(member: ReadingMember) -> Any:
    path = f"/api/organization-scopes/{member.permission['id']}"
    return await member.template.client.patch(path, json={"name": unique("renamed")})


async def permission_deleted(member: ReadingMember) -> Any:
    return await member.template.client.delete(f"/api/organization-scopes/{member.permission['id']}")


CHANGES = [role_assigned, role_removed, role_grants_more, role_deleted, permission_renamed, permission_deleted]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@of_both_kinds
async def test_a_change_ends_the_wait_with_the_current_permissions(
    template: Template, kind: Kind, change: Change
) -> None:
    member = await ReadingMember.new(template, kind)
    etag = await etag_of(member)
    async with a_waiting_request(member, etag) as request, asyncio.timeout(FAR_BELOW_20_S):
        assert (await change(member)).is_success
        answer = await request
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (200, "wait=20")
    assert answer.headers["ETag"] != etag
    assert answer.json() == (await member.read()).json()
    assert answer.json() != [member.permission]
    assert answer.headers["Vary"] == "Prefer"


@of_both_kinds
async def test_a_member_removed_during_the_wait_is_refused(template: Template, kind: Kind) -> None:
    removed, orphaned = await ReadingMember.new(template, kind), await ReadingMember.new(template, kind)
    for member, change, expected in (
        (removed, removed.organization.replace(), (422, "organization.require_membership")),
        (orphaned, orphaned.organization.delete(), (404, "entity.not_exists_with_id")),
    ):
        async with a_waiting_request(member, await etag_of(member)) as request, asyncio.timeout(FAR_BELOW_20_S):
            await change
            assert refusal(await request) == expected


@pytest.mark.heavy
async def test_without_a_change_the_wait_runs_out(member: ReadingMember) -> None:
    etag = await etag_of(member)
    started = time.monotonic()
    answer = await member.read(If_None_Match=etag, Prefer="wait=1")
    assert time.monotonic() - started >= 1
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)
    assert (answer.headers["Preference-Applied"], answer.headers["Vary"]) == ("wait=1", "Prefer")


async def test_a_caller_waits_for_20_seconds_at_most(member: ReadingMember) -> None:
    async with a_waiting_request(member, await etag_of(member), wait="wait=3600") as request:
        await role_deleted(member)
        assert (await request).headers["Preference-Applied"] == "wait=20"


@pytest.mark.slow
async def test_the_wait_ends_after_20_seconds(member: ReadingMember) -> None:
    started = time.monotonic()
    answer = await member.read(If_None_Match=await etag_of(member), Prefer="wait=60")
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (304, "wait=20")
    assert time.monotonic() - started >= 20


async def test_only_a_matching_entity_tag_and_a_valid_preference_wait(member: ReadingMember) -> None:
    etag = await etag_of(member)
    async with asyncio.timeout(FAR_BELOW_20_S):
        other = await member.read(If_None_Match='"other"', Prefer="wait=20")
        assert (other.status_code, other.headers["Preference-Applied"]) == (200, "wait=20")
        for headers in (
            {"Prefer": "wait=20"},
            {"Prefer": "wait=20", "If_None_Match": "*"},
            {"Prefer": "wait=0", "If_None_Match": etag},
            {"Prefer": "wait=x", "If_None_Match": etag},
            {"Prefer": "respond-async", "If_None_Match": etag},
        ):
            answer = await member.read(**headers)
            assert answer.status_code == (304 if "If_None_Match" in headers else 200)
            assert "Preference-Applied" not in answer.headers


async def test_a_change_while_the_wait_begins_is_not_missed(template: Template, member: ReadingMember) -> None:
    """The waiter is registered before the state is read, so a change at any moment is seen."""
    for number in range(20):
        etag = await etag_of(member)
        request = asyncio.create_task(member.read(If_None_Match=etag, Prefer="wait=20"))
        for _ in range(number):
            await asyncio.sleep(0)
        await permission_renamed(member)
        async with asyncio.timeout(FAR_BELOW_20_S):
            assert (await request).status_code == 200


@pytest.mark.heavy
async def test_changes_of_other_members_do_not_end_the_wait(
    template: Template, member: ReadingMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    colleague = await ReadingMember.new(template, USERS, member.organization)
    namesake = await Organization.new(template, USERS, member.id)
    role = await template.role()
    await at_rest(template)
    etag = await etag_of(member)
    with looks(monkeypatch) as looked:
        async with a_waiting_request(member, etag) as request:
            # One read when the request arrived and one after it was registered; then none until a change.
            await eventually_here(lambda: len(looked) == 2)
            await member.organization.assign([colleague.id], [role["id"]])
            await namesake.assign([member.id], [role["id"]])
            await asyncio.sleep(0.3)
            assert len(looked) == 2
            assert not request.done()


async def test_a_waiting_request_holds_no_connection_to_the_database(template: Template) -> None:
    members = [await ReadingMember.new(template)]
    token_count = 3 * template.settings.database_connections
    clients = itertools.cycle(await machines(template, token_count // 10 + 1))
    etag = await etag_of(members[0])
    async with asyncio.timeout(60):
        requests = [
            asyncio.create_task(members[0].read(token, If_None_Match=etag, Prefer="wait=20"))
            for token in [members[0].token(client_id=next(clients)) for _ in range(token_count)]
        ]
        while await waiting_requests(template) < token_count:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
        assert (await template.client.get("/api/organizations")).status_code == 200
        await role_deleted(members[0])
        assert {answer.status_code for answer in await asyncio.gather(*requests)} == {200}


async def test_a_caller_has_ten_waiting_requests_at_most_however_many_tokens(member: ReadingMember) -> None:
    """A caller is a client and a subject: new tokens are free, and would take every place of the process."""
    etag, [other_client] = await etag_of(member), await machines(member.template, 1)
    ten = [asyncio.create_task(member.read(member.token(), If_None_Match=etag, Prefer="wait=20")) for _ in range(10)]
    async with asyncio.timeout(FAR_BELOW_20_S):
        while await waiting_requests(member.template) < 10:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
        eleventh = await member.read(member.token(), If_None_Match=etag, Prefer="wait=20")
        assert (eleventh.status_code, "Preference-Applied" in eleventh.headers) == (304, False)
        async with a_waiting_request(member, etag, token=member.token(client_id=other_client)) as another_client:
            await role_deleted(member)
            answers = await asyncio.gather(*ten, another_client)
        assert {answer.status_code for answer in answers} == {200}
    assert await waiting_requests(member.template) == 0


@pytest.mark.heavy
async def test_a_thousand_requests_wait_and_the_next_is_answered_at_once(template: Template) -> None:
    member = await ReadingMember.new(template)
    # As many clients as it takes: each may have ten waiting requests.
    tokens = itertools.cycle([member.token(client_id=each) for each in await machines(template, 101)])
    etag = await etag_of(member)
    async with asyncio.timeout(120), template.client_with(None) as client:

        def ask(prefer: str = "wait=20") -> "asyncio.Task[httpx.Response]":
            headers = {"Authorization": f"Bearer {next(tokens)}", "If-None-Match": etag, "Prefer": prefer}
            return asyncio.create_task(client.get(member.path, headers=headers))

        for _ in range(length(short=2, long=5)):  # released places can be taken again
            requests = [ask() for _ in range(1000)]
            while await waiting_requests(template) < 1000:
                assert [request.result().text for request in requests if request.done()] == []
                await asyncio.sleep(0.05)
            beyond = await ask()
            assert (beyond.status_code, "Preference-Applied" in beyond.headers) == (304, False)
            await permission_renamed(member)
            answers = await asyncio.gather(*requests)
            assert {answer.status_code for answer in answers} == {200}
            assert await waiting_requests(template) == 0
            etag = answers[0].headers["ETag"]


@pytest.mark.heavy
async def test_a_token_that_expires_during_the_wait_is_refused(member: ReadingMember) -> None:
    """The token is verified again before the answer; the leeway is a minute."""
    etag, now = await etag_of(member), int(time.time())
    token = member.token(exp=now - 58)
    answer = await member.read(token, If_None_Match=etag, Prefer="wait=3")
    assert refusal(answer) == (401, "auth.unauthorized")


async def test_a_user_suspended_during_the_wait_is_refused(template: Template, member: ReadingMember) -> None:
    """The subject is checked for liveness again before the answer."""
    etag = await etag_of(member)
    async with a_waiting_request(member, etag) as request:
        await template.management.client.patch(f"/api/users/{member.id}/is-suspended", json={"isSuspended": True})
        await template.caught_up()
        await permission_renamed(member)
        async with asyncio.timeout(FAR_BELOW_20_S):
            assert refusal(await request) == (401, "auth.unauthorized")


@pytest.mark.heavy
async def test_while_the_bus_is_down_a_change_is_seen_at_the_end_of_the_wait(template: Template) -> None:
    async with (
        TcpProxy(template.settings.nats_url) as wire,
        Template(template.management, nats_url=wire.url) as own,
    ):
        member = await ReadingMember.new(own)
        await own.caught_up()
        etag = await etag_of(member)
        await wire.cut()
        answer = await member.read(If_None_Match=etag, Prefer="wait=1")
        assert (answer.status_code, answer.headers["Preference-Applied"]) == (304, "wait=1")
        waiting = asyncio.create_task(member.read(If_None_Match=etag, Prefer="wait=3"))
        while await waiting_requests(own) == 0:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
        assert (await permission_renamed(member)).is_success
        assert (await waiting).status_code == 200, "a change that was not heard is seen at the end"

        await wire.mend()
        etag = await etag_of(member)
        async with asyncio.timeout(60):
            while True:  # once the bus is connected again, a change ends the wait
                started = time.monotonic()
                waiting = asyncio.create_task(member.read(If_None_Match=etag, Prefer="wait=5"))
                await asyncio.sleep(0.3)
                await permission_renamed(member)
                etag = (await waiting).headers["ETag"]
                if time.monotonic() - started < 4:
                    break


@pytest_asyncio.fixture(scope="module")
async def own_replica(template: Template, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServiceProcess]:
    """A second replica of the service, in its own process."""
    environment = {
        "BASE_URL": template.settings.base_url,
        "ENVIRONMENT": "development",
        "TENANT_ID": template.tenant_id,
        "DATABASE_URL": template.settings.database_url,
        "REDIS_URL": template.settings.redis_url,
        "NATS_URL": template.settings.nats_url,
        "MAIL_KEYS": ",".join(template.settings.mail_keys),
    }
    process = ServiceProcess("template_service", environment, tmp_path_factory.mktemp("replica") / "template.log")
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop)


@pytest_asyncio.fixture
async def replica(own_replica: ServiceProcess) -> ServiceProcess:
    """The replica, running."""
    if not own_replica.is_running:
        own_replica.start()
        await asyncio.to_thread(own_replica.wait_until_ready)
    return own_replica


async def waiting_at(replica: ServiceProcess, count: int) -> None:
    """Wait until this many requests wait at a replica."""
    async with asyncio.timeout(FAR_BELOW_20_S), httpx.AsyncClient(base_url=replica.url) as client:
        while f"stead_waiting_requests {count}.0" not in (await client.get("/metrics")).text:  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.02)


async def test_a_change_at_another_replica_ends_the_wait(member: ReadingMember, replica: ServiceProcess) -> None:
    headers = {"Authorization": f"Bearer {member.token()}", "If-None-Match": await etag_of(member), "Prefer": "wait=20"}
    async with asyncio.timeout(2 * FAR_BELOW_20_S), httpx.AsyncClient(base_url=replica.url, timeout=30) as client:
        for change in (role_grants_more, permission_renamed, role_assigned):
            waiting = asyncio.create_task(client.get(member.path, headers=headers))
            await waiting_at(replica, 1)
            await change(member)
            answer = await waiting
            assert (answer.status_code, answer.json()) == (200, (await member.read()).json())
            headers["If-None-Match"] = answer.headers["ETag"]


async def test_a_client_that_disconnects_frees_its_place(member: ReadingMember, replica: ServiceProcess) -> None:
    headers = {"Authorization": f"Bearer {member.token()}", "If-None-Match": await etag_of(member), "Prefer": "wait=20"}
    async with httpx.AsyncClient(base_url=replica.url) as client:
        waiting = [asyncio.create_task(client.get(member.path, headers=headers)) for _ in range(10)]
        await waiting_at(replica, 10)
        for request in waiting:
            request.cancel()
        await waiting_at(replica, 0)


async def test_stopping_a_server_ends_the_waits(member: ReadingMember, replica: ServiceProcess) -> None:
    headers = {"Authorization": f"Bearer {member.token()}", "If-None-Match": await etag_of(member), "Prefer": "wait=20"}
    async with httpx.AsyncClient(base_url=replica.url, timeout=30) as client:
        waiting = [asyncio.create_task(client.get(member.path, headers=headers)) for _ in range(5)]
        await waiting_at(replica, 5)
        async with asyncio.timeout(FAR_BELOW_20_S / 2):
            await asyncio.to_thread(replica.stop)
            assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {304}
    assert "timeout graceful shutdown exceeded" not in replica.log.read_text()
