"""``/api/impersonations``: the register, told from the audit trail and the ends; its filters, rights and pages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import msgspec
import nats
import pytest

from identity_common.clock import now_ms
from identity_common.wire.audit import AuditContext, AuditEntry, audit_subject
from stead.verify.impersonations import ImpersonationSegments
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.waiting import WAIT_S

BEGUN = now_ms() - 600_000
HOUR = 3_600_000
REASON = AuditContext(reason="A lost order", ticket_id="T-1")


def impersonation(number: int) -> str:
    return f"{number}".rjust(21, "i")


def issued(
    number: int, *, by: str = "desk", of: str = "ann", ttl: int = HOUR, context: AuditContext = REASON
) -> AuditEntry:
    at = BEGUN + number
    more = {"user_id": of, "requested_by": "kim", "expires_at": at + ttl, "context": context}
    return made(number, "subject-token.issued", at, by=by, **more)


def exchanged(number: int, *, of: str = "ann", within: tuple[str, ...] = (), **more: Any) -> AuditEntry:
    jti = ImpersonationSegments((*within, impersonation(number)), BEGUN + number).format()
    more = {"scope": "read", "resource": "urn:orders", "issued_token_id": jti, "expires_at": BEGUN + HOUR, **more}
    return made(number, "token.exchange.succeeded", BEGUN + 200 + number, by="web", user_id=of, **more)


def taken(number: int, *, by: str = "web", of: str = "ann", **more: Any) -> AuditEntry:
    return made(number, "token.exchange.taken", BEGUN + 100 + number, by=by, user_id=of, **more)


def made(number: int, key: str, at: int, *, by: str, **more: Any) -> AuditEntry:
    values = {"application_id": by, "subject_token_id": impersonation(number), **more}
    return AuditEntry(id=f"{key}-{number}", occurred_at=at, tenant_id="", log="subject-tokens", key=key, **values)


ACTED: dict[str, Any] = {"actor_id": "eve", "organization_id": "org"}
ENTRIES = (
    issued(1),
    taken(1, **ACTED),
    exchanged(1, **ACTED),
    issued(2, ttl=60_000),  # expired, never exchanged
    issued(3, of="bob", by="other", context=AuditContext(reason="Order of T-1 again", ticket_id="t-12ß")),
    taken(3, of="bob", by="other"),
    made(3, "token.exchange.refused", BEGUN + 203, by="other", outcome="refused", reason="access_denied"),
    issued(4, of="bob"),
    taken(4, of="bob", actor_id="ann"),
    exchanged(4, of="bob", actor_id="ann", within=(impersonation(1),)),
)


async def publish(own: Management, entries: Sequence[AuditEntry] = ENTRIES) -> None:
    """Publish them all to the one of the two logs that management-service may write to."""
    client = await nats.connect(own.settings.nats_url, inbox_prefix="_INBOX_management")
    for number, each in enumerate(entries, 1):
        entry = msgspec.structs.replace(each, sequence=number, tenant_id=own.tenant_id)
        await client.jetstream().publish(audit_subject(entry.log, own.tenant_id), msgspec.json.encode(entry))
    await client.close()


@pytest.fixture(scope="module")
async def own(management: Management) -> AsyncIterator[Management]:
    """A tenant with these impersonations and no others."""
    async with Management(management.addresses, management.issuer) as own:
        await publish(own)
        async with asyncio.timeout(WAIT_S):
            while await numbers(own.client) != [4, 3, 2, 1] or len(await events(own, 4)) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield own


async def numbers(client: httpx.AsyncClient, at: str = "/api/impersonations", **params: Any) -> list[int]:
    answer = await client.get(at, params=params)
    assert answer.status_code == 200, answer.text
    assert all("events" not in each for each in answer.json())
    return [int(each["id"].lstrip("i")) for each in answer.json()]


async def events(own: Management, number: int) -> list[str]:
    answer = await own.client.get(f"/api/impersonations/{impersonation(number)}")
    return [each["key"] for each in answer.json().get("events", ())]


async def test_an_impersonation_reads_as_one_story(own: Management) -> None:
    answer = await own.client.get(f"/api/impersonations/{impersonation(1)}")
    told = answer.json()
    assert [each["key"] for each in told.pop("events")] == [
        "subject-token.issued",
        "token.exchange.taken",
        "token.exchange.succeeded",
    ]
    assert told == {
        "id": impersonation(1),
        "userId": "ann",
        "actorId": "eve",
        "clientId": "web",
        "organizationId": "org",
        "resource": "urn:orders",
        "scope": "read",
        "context": {"reason": "A lost order", "ticketId": "T-1"},
        "issuedTo": "desk",
        "requestedBy": "kim",
        "createdAt": BEGUN + 1,
        "exchangedAt": BEGUN + 101,
        "expiresAt": BEGUN + HOUR,
    }


async def test_an_exchange_that_was_refused_after_the_take_ends_it(own: Management) -> None:
    told = (await own.client.get(f"/api/impersonations/{impersonation(3)}")).json()
    assert (told["endedAt"], told["reason"], "endedBy" in told) == (BEGUN + 203, "access_denied", False)


async def test_each_filter_selects_what_it_says_newest_first(own: Management) -> None:
    cases: dict[str, dict[str, str]] = {
        "none": {},
        "active": {"active": "true"},
        "over": {"active": "false"},
        "user": {"userId": "ann"},
        "requesting user": {"userId": "kim"},
        "actor": {"actorId": "eve"},
        "client": {"clientId": "web"},
        "organization": {"organizationId": "org"},
        "all of it": {"userId": "bob", "clientId": "web", "actorId": "ann", "active": "true"},
        "nothing": {"userId": "bob", "organizationId": "org"},
        "person": {"person": "ann"},
        "person and subject": {"person": "ann", "userId": "bob"},
        "person and two others": {"person": "ann", "userId": "bob", "actorId": "eve"},
        "ticket": {"ticketId": "t-1"},
        "beginning of a ticket": {"ticketId": "T"},
        "ticket without words": {"ticketId": "-"},
        "ticket in capitals": {"ticketId": "T-12ß"},
        "ticket in other letters": {"ticketId": "T-12SS"},
        "words": {"q": "ord t-1"},
        "words of the reason": {"q": "AGAIN ordér"},
        "other words": {"q": "order lostt"},
        "words and all of it": {"q": "lost", "ticketId": "T-1", "person": "ann", "clientId": "web", "active": "true"},
        "words and a subject": {"q": "order", "userId": "bob"},
    }
    assert {name: await numbers(own.client, **params) for name, params in cases.items()} == {
        "none": [4, 3, 2, 1],
        "active": [4, 1],
        "over": [3, 2],
        "user": [2, 1],
        "requesting user": [],
        "actor": [1],
        "client": [4, 1],
        "organization": [1],
        "all of it": [4],
        "nothing": [],
        "person": [4, 2, 1],
        "person and subject": [4],
        "person and two others": [],
        "ticket": [4, 2, 1],
        "beginning of a ticket": [],
        "ticket without words": [],
        "ticket in capitals": [3],
        "ticket in other letters": [],
        "words": [4, 3, 2, 1],
        "words of the reason": [3],
        "other words": [],
        "words and all of it": [4, 1],
        "words and a subject": [4, 3],
    }


async def test_a_person_sees_impersonations_in_either_part(own: Management) -> None:
    """Also one that was deleted: nothing but ids is left of it. One that nothing is known about is a miss."""

    async def of(person: str, **params: str) -> list[int]:
        answer = await own.client.get(f"/api/users/{person}/impersonations", params=params)
        assert answer.status_code == 200, answer.text
        return [int(each["id"].lstrip("i")) for each in answer.json()]

    assert await of("ann") == [4, 2, 1]
    assert await of("ann", role="subject") == [2, 1]
    assert await of("ann", role="actor") == [4]
    assert await of("ann", active="true") == [4, 1]
    address, found = httpx.URL("/api/users/ann/impersonations", params={"page_size": "1"}), []
    while True:
        answer = await own.client.get(address)
        found += [int(each["id"].lstrip("i")) for each in answer.json()]
        if "next" not in answer.links:
            break
        params = httpx.URL(answer.links["next"]["url"]).params
        address = httpx.URL("/api/users/ann/impersonations", params=params)
    assert found == [4, 2, 1]
    assert refusal(await own.client.get("/api/users/nobody/impersonations")) == (404, "entity.not_exists_with_id")


async def test_pages_follow_each_other(own: Management) -> None:
    for params, expected in (({}, [4, 3, 2, 1]), ({"active": "true"}, [4, 1]), ({"q": "order"}, [4, 3, 2, 1])):
        found: list[int] = []
        address = httpx.URL("/api/impersonations", params={**params, "page_size": "1"})
        while True:
            answer = await own.client.get(address)
            found += [int(each["id"].lstrip("i")) for each in answer.json()]
            if "next" not in answer.links:
                break
            address = httpx.URL("/api/impersonations", params=httpx.URL(answer.links["next"]["url"]).params)
        assert found == expected


@pytest.mark.heavy
async def test_the_scope_for_minting_sees_what_its_application_asked_for(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, (issued(1),))
        machine = await own.machine()
        async with own.client_with(own.token(client_id=machine, scope="subject-tokens")) as narrow:
            user = await own.created("users")
            begun = (await narrow.post("/api/subject-tokens", json={"userId": user["id"]})).headers["Impersonation-Id"]
            async with asyncio.timeout(WAIT_S):
                while not (seen := (await narrow.get("/api/impersonations")).json()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert [each["id"] for each in seen] == [begun]
            assert (await narrow.get(f"/api/impersonations/{begun}")).json()["issuedTo"] == machine
            assert (await narrow.get("/api/impersonations", params={"clientId": "web"})).json() == []
            foreign = await narrow.get(f"/api/impersonations/{impersonation(1)}")
            assert refusal(foreign) == (404, "entity.not_found")
            assert (await narrow.get(f"/api/users/{user['id']}/impersonations")).status_code == 403

            at_user = f"/api/users/{user['id']}/impersonations"
            assert [each["id"] for each in (await own.client.get(at_user)).json()] == [begun]
            assert (await own.client.get(at_user, params={"role": "actor"})).json() == []

            async with own.client_with(own.token(scope="read")) as reader:
                everything = (await own.client.get("/api/impersonations")).json()
                assert (await reader.get("/api/impersonations")).json() == everything
                assert (await reader.get(f"/api/impersonations/{begun}")).json()["issuedTo"] == machine
                assert (await reader.post(f"/api/impersonations/{begun}/end")).status_code == 403
            ending = {"reason": " resolved\u202e "}
            assert (await narrow.post(f"/api/impersonations/{begun}/end", json=ending)).status_code == 204
            later = await own.client.post(f"/api/impersonations/{begun}/end", json={"reason": "later"})
            assert later.status_code == 204
            async with asyncio.timeout(WAIT_S):
                while "endReason" not in (told := (await own.client.get(f"/api/impersonations/{begun}")).json()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (told["endedBy"], told["reason"], told["endReason"]) == (machine, "ended", "resolved\u202e")
            assert "endReason" not in (await own.client.get(at_user)).json()[0]
            assert (await own.client.get(at_user, params={"active": "true"})).json() == []


async def test_wrong_parameters_are_named(own: Management) -> None:
    wrong = f"userid=x&active=yes&actorId=a&actorId=b&clientId=&organizationId=%00&q={'x' * 257}&ticketId="
    expected = {"userid", "active", "actorId", "clientId", "organizationId", "q", "ticketId"}
    assert issues(await own.client.get(f"/api/impersonations?{wrong}")) == expected
    assert issues(await own.client.get("/api/impersonations?after=x")) == {"after"}
    assert issues(await own.client.get("/api/impersonations?q=--")) == {"q"}
    nobody = await own.client.get("/api/impersonations?person=nobody")
    assert refusal(nobody) == (422, "log.unknown_name")
    assert refusal(await own.client.get("/api/impersonations?page_size=0")) == (400, "guard.invalid_pagination")
    user = await own.created("users")
    assert issues(await own.client.get(f"/api/users/{user['id']}/impersonations?role=client")) == {"role"}
    unknown = await own.client.get("/api/users/nobody/impersonations")
    assert refusal(unknown) == (404, "entity.not_exists_with_id")
    for missing in ("short", "x" * 21):
        assert refusal(await own.client.get(f"/api/impersonations/{missing}")) == (404, "entity.not_found")
    async with own.client_with(own.token(scope="read:things")) as other:
        assert (await other.get("/api/impersonations")).status_code == 403


PARTIES = """INSERT INTO party_ends (tenant_id, party, ended_at, cause, ended_by) VALUES ($1, $2, $3, $4, 'root')"""


@pytest.mark.parametrize(
    ("party", "at", "cause", "expected"),
    [
        ("user:ann", 50, "suspended", (50, "user_suspended")),
        ("user:ann", 0, "password", None),  # before the subject token
        ("user:eve", 150, "password", (150, "actor_password")),
        ("user:eve", 50, "suspended", None),  # before the actor's token was judged
        ("client:web", 150, "exchange_off", (150, "client_exchange_off")),
        ("client:desk", 150, "deleted", None),  # asked for the subject token, and has no part in the exchange
        ("resource:urn:orders", 300, "deleted", (300, "resource_deleted")),
        ("user:ann", HOUR + 1, "deleted", None),  # had expired
    ],
)
async def test_what_happens_to_a_party_ends_what_it_is_part_of(
    own: Management, party: str, at: int, cause: str, expected: tuple[int, str] | None
) -> None:
    await own.database.execute(PARTIES, own.tenant_id, party, BEGUN + at, cause)
    told = (await own.client.get(f"/api/impersonations/{impersonation(1)}")).json()
    active = await numbers(own.client, active="true")
    await own.database.execute("DELETE FROM party_ends WHERE tenant_id = $1 AND cause <> 'ended'", own.tenant_id)
    if expected is None:
        assert "endedAt" not in told
    else:
        assert (told["endedAt"] - BEGUN, told["reason"], told["endedBy"]) == (*expected, "root")
    assert (1 in active) is (expected is None)


async def test_of_what_happened_and_what_was_ended_the_first_one_is_told(own: Management) -> None:
    for at, cause in ((400, "deleted"), (300, "suspended"), (350, "suspended")):
        await own.database.execute(PARTIES, own.tenant_id, "user:ann", BEGUN + at, cause)
    told = (await own.client.get(f"/api/impersonations/{impersonation(1)}")).json()
    await own.database.execute("DELETE FROM party_ends WHERE tenant_id = $1 AND cause <> 'ended'", own.tenant_id)
    assert (told["endedAt"], told["reason"]) == (BEGUN + 300, "user_suspended")


async def test_what_ends_impersonations_is_recorded_with_its_author(own: Management) -> None:
    client, before = own.client, now_ms()
    user, other = [(await own.created("users"))["id"] for _ in range(2)]
    exchange = {"allowTokenExchange": True}
    application = (await own.created("applications", name="A", type="SPA", customClientMetadata=exchange))["id"]
    unused = (await own.created("applications", name="B", type="SPA"))["id"]
    indicator = f"https://{user}.example.com"
    resource = (await own.created("resources", name="R", indicator=indicator))["id"]
    for method, path, body in (
        ("PATCH", f"users/{user}", {"name": "no end"}),
        ("PATCH", f"users/{user}/password", {"password": "a good password"}),
        ("PATCH", f"users/{user}/is-suspended", {"isSuspended": True}),
        ("PATCH", f"users/{user}/is-suspended", {"isSuspended": True}),  # changes nothing
        ("DELETE", f"users/{other}", None),
        ("PATCH", f"applications/{application}", {"customClientMetadata": exchange}),
        ("PATCH", f"applications/{application}", {"customClientMetadata": {"allowTokenExchange": False}}),
        ("DELETE", f"applications/{unused}", None),
        ("DELETE", f"resources/{resource}", None),
    ):
        answer = await client.request(method, f"/api/{path}", **({} if body is None else {"json": body}))
        assert answer.is_success, answer.text
    happened = "SELECT * FROM party_ends WHERE tenant_id = $1 AND cause <> 'ended' ORDER BY ended_at"
    rows = await own.database.fetch(happened, own.tenant_id)
    assert [(row["party"], row["cause"]) for row in rows] == [
        (f"user:{user}", "password"),
        (f"user:{user}", "suspended"),
        (f"user:{other}", "deleted"),
        (f"client:{application}", "exchange_off"),
        (f"client:{unused}", "deleted"),
        (f"resource:{indicator}", "deleted"),
    ]
    assert {row["ended_by"] for row in rows} == {own.credentials.client_id}
    assert all(before <= row["ended_at"] <= now_ms() for row in rows)


@pytest.mark.heavy
async def test_a_later_end_of_all_leaves_what_is_told_of_an_earlier_one(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        before = now_ms()
        assert (await own.client.post("/api/impersonations/end", json={"userId": "ann"})).status_code == 204
        expires_at = now_ms() + 1
        of_ann = [msgspec.structs.replace(each, expires_at=expires_at) for each in (issued(1), exchanged(1))]
        await publish(own, [of_ann[0], taken(1), of_ann[1]])
        async with asyncio.timeout(WAIT_S):
            while len(await events(own, 1)) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await own.client.post("/api/impersonations/end", json={"userId": "ann"})).status_code == 204
        assert now_ms() > expires_at
        told = (await own.client.get(f"/api/impersonations/{impersonation(1)}")).json()
        assert (told["reason"], told["endedBy"]) == ("user", own.credentials.client_id)
        assert before <= told["endedAt"] < expires_at
        kept = "SELECT count(*) FROM party_ends WHERE tenant_id = $1"
        assert await own.database.fetchval(kept, own.tenant_id) == 2


async def told_in(own: Management, number: int, *, entries: int) -> dict[str, Any]:
    """Return a story once it has so many entries."""
    async with asyncio.timeout(WAIT_S):
        while len(await events(own, number)) < entries:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    told: dict[str, Any] = (await own.client.get(f"/api/impersonations/{impersonation(number)}")).json()
    return told


@pytest.mark.heavy
async def test_what_the_trail_has_lost_the_beginning_of_is_told_and_listed_from_what_is_left(
    management: Management,
) -> None:
    jti = ImpersonationSegments((impersonation(2),), BEGUN).format()
    async with Management(management.addresses, management.issuer) as own:
        await publish(
            own,
            (
                taken(1, **ACTED),
                exchanged(1, **ACTED),
                exchanged(2, of="bob", issued_token_id=jti),
                issued(3, of="bob"),
                taken(3, of="bob"),
            ),
        )
        await told_in(own, 3, entries=2)
        told = (await own.client.get(f"/api/impersonations/{impersonation(1)}")).json()
        assert {name: value for name, value in told.items() if name != "events"} == {
            "id": impersonation(1),
            "userId": "ann",
            "actorId": "eve",
            "clientId": "web",
            "organizationId": "org",
            "resource": "urn:orders",
            "scope": "read",
            "context": {},
            "createdAt": BEGUN + 101,
            "exchangedAt": BEGUN + 101,
            "expiresAt": BEGUN + HOUR,
        }
        assert await numbers(own.client) == [2, 1, 3]  # each by its first entry
        assert await numbers(own.client, active="true") == [2, 1, 3]
        assert await numbers(own.client, userId="bob") == [2, 3]
        assert await numbers(own.client, clientId="web") == [2, 3, 1]
        assert await numbers(own.client, actorId="eve") == [1]

        assert (await own.client.post("/api/impersonations/end", json={"userId": "ann"})).status_code == 204
        assert await numbers(own.client, active="true") == [2, 3]


@pytest.mark.heavy
async def test_one_whose_exchange_has_no_known_outcome_is_active_as_long_as_its_token_may_be_valid(
    management: Management,
) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, (issued(1, ttl=60_000), taken(1)))
        told = await told_in(own, 1, entries=2)
        assert told["expiresAt"] == BEGUN + 101 + HOUR
        assert await numbers(own.client, active="true") == [1]


@pytest.fixture(scope="module")
async def one_active(management: Management) -> AsyncIterator[Management]:
    """A tenant with an active impersonation; tests put others before and behind it."""
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, (issued(1),))
        await told_in(own, 1, entries=1)
        yield own


@asynccontextmanager
async def stored(own: Management, like: AuditEntry, times: str, count: int) -> AsyncIterator[None]:
    """Store so many entries like this one meanwhile, a millisecond apart: ``+`` after its time, ``-`` before it."""
    store = f"""
        INSERT INTO audit_entries
            (tenant_id, occurred_at, id, log, epoch, sequence, key, user_id, subject_token_id, entry)
        SELECT $1, $2::bigint {times} number, 'entry', 'subject-tokens', 'stored', number, 'subject-token.issued',
            'ann', 'stored' || number, replace($3, 'NUMBER', number::text)
        FROM generate_series(1, $4) AS number
    """
    entry = msgspec.json.encode(msgspec.structs.replace(like, subject_token_id="storedNUMBER")).decode()
    await own.database.execute(store, own.tenant_id, like.occurred_at, entry, count)
    try:
        yield
    finally:
        await own.database.execute("DELETE FROM audit_entries WHERE tenant_id = $1 AND epoch = 'stored'", own.tenant_id)


@pytest.mark.heavy
async def test_active_ones_are_looked_for_no_longer_than_an_impersonation_may_last(one_active: Management) -> None:
    old = msgspec.structs.replace(issued(2), occurred_at=BEGUN - 3 * HOUR)
    async with stored(one_active, old, "-", 1500):
        for filters in ({}, {"userId": "ann"}):
            answer = await one_active.client.get("/api/impersonations", params={"active": "true", **filters})
            assert [each["id"] for each in answer.json()] == [impersonation(1)]
            assert "next" not in answer.links
        assert "next" in (await one_active.client.get("/api/impersonations", params={"active": "false"})).links


async def test_an_active_one_is_found_behind_very_many_that_have_expired(one_active: Management) -> None:
    async with stored(one_active, issued(2, ttl=1_000), "+", 250):
        assert await numbers(one_active.client, active="true") == [1]


@pytest.mark.heavy
async def test_the_end_of_an_outer_actor_covers_one_that_is_read_alone(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await publish(own)
        await told_in(own, 4, entries=3)
        assert (await own.client.post("/api/impersonations/end", json={"actorId": "eve"})).status_code == 204
        told = (await own.client.get(f"/api/impersonations/{impersonation(4)}")).json()
        assert (told["actorId"], told["reason"], told["endedBy"]) == ("ann", "actor", own.credentials.client_id)


async def test_the_end_of_a_party_covers_those_within_it_too(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await publish(own)
        await told_in(own, 4, entries=3)
        assert (await own.client.post("/api/impersonations/end", json={"organizationId": "org"})).status_code == 204
        told = (await own.client.get(f"/api/impersonations/{impersonation(1)}")).json()
        assert (told["reason"], told["endedBy"]) == ("organization", own.credentials.client_id)
        assert await numbers(own.client, active="true", userId="ann") == []

        assert (await own.client.post(f"/api/impersonations/{impersonation(1)}/end")).status_code == 204
        within = (await own.client.get(f"/api/impersonations/{impersonation(4)}")).json()
        assert within["reason"] == "within"


@pytest.mark.heavy
async def test_searches_for_several_people_wait_for_their_turn_and_end(own: Management) -> None:
    waiting = """
        SELECT count(*) FROM pg_locks
        WHERE NOT granted AND relation = 'audit_entries'::regclass AND mode = 'AccessShareLock'
    """
    name, most = unique("Twin"), 0
    for _ in range(2):
        await own.created("users", name=name)
    async with own.database.transaction():
        await own.database.execute("LOCK TABLE audit_entries IN ACCESS EXCLUSIVE MODE")
        searches = [
            asyncio.create_task(own.client.get("/api/impersonations", params=params))
            for params in ({"person": name}, {"q": "order"}) * 2
        ]
        while not all(each.done() for each in searches):
            most = max(most, await own.database.fetchval(waiting))
        answers = [each.result() for each in searches]
    assert most == 2
    assert {refusal(each) for each in answers} == {(422, "log.too_slow"), (503, "temporarily_unavailable")}
    assert await numbers(own.client, person=name) == []
