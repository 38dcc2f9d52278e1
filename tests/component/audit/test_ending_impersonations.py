"""``/api/impersonations``: who may end which, bad input, and the events."""

import asyncio
from typing import Any

import msgspec
import pytest

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.wire.impersonations import ImpersonationEnd, ImpersonationEndsState
from identity_common.wire.revocations import cutoff_id
from identity_common.wire.subject_tokens import BegunImpersonation, impersonation_key
from management_service.impersonations.rules import slot_of
from tests.support.management_api import Management, refusal
from tests.support.waiting import WAIT_S

END = "/api/impersonations/end"


def end_of(impersonation_id: str) -> str:
    return f"/api/impersonations/{impersonation_id}/end"


async def published(management: Management, end_id: str) -> ImpersonationEnd | None:
    """Return an end as the bus has it."""
    event = await management.event("impersonation", str(slot_of(end_id)))
    ends = () if event is None else msgspec.json.decode(event.data, type=ImpersonationEndsState).ends
    return next((end for end in ends if end.id == end_id), None)


async def begun(management: Management, token: str | None = None) -> str:
    """Return the id of a new impersonation, asked for with this token."""
    user = await management.created("users")
    async with management.client_with(token or management.token()) as client:
        answer = await client.post("/api/subject-tokens", json={"userId": user["id"]})
    return str(answer.headers["Impersonation-Id"])


async def test_an_end_is_published_once_with_its_expiry(management: Management) -> None:
    impersonation_id = await begun(management)
    before = await management.revision()

    first = await management.client.post(end_of(impersonation_id))
    again = await management.client.post(end_of(impersonation_id))
    assert [(each.status_code, each.headers["Identity-Revision"]) for each in (first, again)] == [
        (204, f"management:{before + 1}")
    ] * 2
    end = await published(management, impersonation_id)
    assert end == ImpersonationEnd(impersonation_id, end.expires_at if end else 0)


@pytest.mark.parametrize(
    ("body", "party"),
    [
        ({"userId": "u"}, "user:u"),
        ({"actorId": "u"}, "actor:u"),
        ({"clientId": "c"}, "client:c"),
        ({"organizationId": "o"}, "organization:o"),
        ({"all": True}, "all"),
    ],
)
async def test_the_impersonations_of_a_party_end_up_to_this_moment(
    management: Management, body: dict[str, Any], party: str
) -> None:
    assert (await management.client.post(END, json=body)).status_code == 204
    first = await published(management, cutoff_id(party))
    assert (await management.client.post(END, json=body)).status_code == 204
    second = await published(management, cutoff_id(party))

    assert first is not None
    assert second is not None
    assert first.begun_until is not None
    assert second.begun_until is not None
    assert second.begun_until >= first.begun_until
    assert second.expires_at - second.begun_until == first.expires_at - first.begun_until


@pytest.mark.heavy
async def test_an_end_on_too_few_replicas_of_redis_is_a_503_and_is_recorded(management: Management) -> None:
    """It must be on every possible failover target before the answer."""
    async with Management(management.addresses, management.issuer, redis_replicas=1) as own:
        impersonation_id = new_id()
        for path, body, end_id in (
            (end_of(impersonation_id), None, impersonation_id),
            (END, {"all": True}, cutoff_id("all")),
        ):
            answer = await own.client.post(path, json=body)
            assert (answer.status_code, int(answer.headers["Retry-After"]) >= 1) == (503, True)
            assert await published(own, end_id) is not None


@pytest.mark.heavy
async def test_an_end_is_kept_until_the_last_token_that_it_covers_has_expired(management: Management) -> None:
    """An hour for the subject token, the longest lifetime that a resource has ever had, and 15 minutes."""
    async with Management(management.addresses, management.issuer) as own:

        async def kept() -> list[int]:
            """Return for how long the end of one impersonation and that of all are kept, in seconds."""
            impersonation_id, before = new_id(), now_ms()
            assert (await own.client.post(end_of(impersonation_id))).status_code == 204
            assert (await own.client.post(END, json={"all": True})).status_code == 204
            ends = [await published(own, each) for each in (impersonation_id, cutoff_id("all"))]
            return [(each.expires_at - before) // 60_000 * 60 for each in ends if each is not None]

        assert await kept() == [3600 + 3600 + 900] * 2
        indicator = "https://long.example.com"
        resource = await own.created("resources", name="R", indicator=indicator, accessTokenTtl=7200)
        assert await kept() == [3600 + 7200 + 900] * 2
        at_resource = f"/api/resources/{resource['id']}"
        for ttl in (9000, 60):
            assert (await own.client.patch(at_resource, json={"accessTokenTtl": ttl})).status_code == 200
            assert await kept() == [3600 + 9000 + 900] * 2
        assert (await own.client.delete(at_resource)).status_code == 204
        assert await kept() == [3600 + 9000 + 900] * 2


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, ""),
        ({"userId": "u", "all": True}, ""),
        ({"all": False}, "all"),
        ({"all": 1}, "all"),
        ({"userId": ""}, "userId"),
        ({"userId": "u" * 65}, "userId"),
        ({"userId": None}, "userId"),
        ({"nobody": "u"}, "nobody"),
        ({"reason": "only a reason"}, ""),
        ({"userId": "u", "reason": "x" * 257}, "reason"),
        ({"userId": "u", "reason": None}, "reason"),
    ],
)
async def test_a_body_names_exactly_one_party(management: Management, body: dict[str, Any], path: str) -> None:
    before = await management.revision()
    answer = await management.client.post(END, json=body)

    assert refusal(answer) == (400, "guard.invalid_input")
    assert [issue["path"] for issue in answer.json()["data"]["issues"]] == [path]
    assert await management.revision() == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"reason": 1}', 400),
        ('{"reason": null}', 400),
        ('{"reason": "a", "reason": "b"}', 400),
        ('{"reason": "\\u0000"}', 400),
        (f'{{"reason": "{"x" * 257}"}}', 400),
        ('{"why": "a"}', 400),
        ("[]", 400),
        (f'{{"reason": "{"😀" * 256}"}}', 204),
        ('{"reason": "  "}', 204),
        ("{}", 204),
    ],
)
async def test_a_reason_is_a_short_text(management: Management, body: str, status: int) -> None:
    impersonation_id = new_id()
    headers = {"Content-Type": "application/json"}
    answer = await management.client.post(end_of(impersonation_id), content=body.encode(), headers=headers)
    assert answer.status_code == status
    assert (await published(management, impersonation_id) is not None) is (status == 204)


@pytest.mark.parametrize("impersonation_id", ["short", "x" * 22, "X" * 21, "key:" + "x" * 17, "x.y" + "x" * 18])
async def test_an_id_that_no_impersonation_can_have_is_a_miss(management: Management, impersonation_id: str) -> None:
    assert refusal(await management.client.post(end_of(impersonation_id))) == (404, "entity.not_found")


async def two_callers(management: Management, kind: str) -> list[str]:
    """Return the access tokens of two machines, or of two users of one application."""
    if kind == "machines":
        return [management.token(client_id=await management.machine(), scope="subject-tokens") for _ in range(2)]
    users = [(await management.created("users"))["id"] for _ in range(2)]
    return [management.token(subject=each, scope="subject-tokens") for each in users]


@pytest.mark.parametrize("kind", ["machines", "users"])
async def test_the_scope_for_minting_ends_what_its_holder_asked_for(management: Management, kind: str) -> None:
    tokens = await two_callers(management, kind)
    its_own, of_another = [await begun(management, token) for token in tokens]

    async with management.client_with(tokens[0]) as client:
        assert (await client.post(end_of(its_own))).status_code == 204
        assert refusal(await client.post(end_of(of_another))) == (404, "entity.not_found")
        assert refusal(await client.post(end_of(new_id()))) == (404, "entity.not_found")
        assert refusal(await client.post(END, json={"all": True})) == (403, "auth.forbidden")
    assert await published(management, of_another) is None
    assert (await management.client.post(end_of(of_another))).status_code == 204
    assert (await management.client.post(end_of(new_id()))).status_code == 204


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["machines", "users"])
async def test_the_scope_for_minting_ends_what_only_the_audit_trail_remembers(
    management: Management, kind: str
) -> None:
    own, other = await two_callers(management, kind)
    impersonation_id = await begun(management, own)
    key = impersonation_key(management.tenant_id, impersonation_id)
    async with management.client_with(own) as client, management.client_with(other) as another:
        async with asyncio.timeout(WAIT_S):
            while (await client.get(f"/api/impersonations/{impersonation_id}")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert refusal(await another.get(f"/api/impersonations/{impersonation_id}")) == (404, "entity.not_found")
        assert impersonation_id in {each["id"] for each in (await client.get("/api/impersonations")).json()}
        assert (await another.get("/api/impersonations")).json() == []
        await management.redis.delete(key)
        assert refusal(await another.post(end_of(impersonation_id))) == (404, "entity.not_found")
        assert (await client.post(end_of(impersonation_id))).status_code == 204


async def test_a_person_ends_an_impersonation_that_the_audit_trail_does_not_have_yet(management: Management) -> None:
    ada, bob = [(await management.created("users"))["id"] for _ in range(2)]
    impersonation_id = new_id()
    begun_now = BegunImpersonation(management.credentials.client_id, ada).format()
    await management.redis.set(impersonation_key(management.tenant_id, impersonation_id), begun_now)
    answers = []
    for user_id in (bob, ada):
        token = management.issuer.access_token(
            client_id=management.credentials.client_id,
            subject=user_id,
            audience=f"{management.issuer.issuer}/me",
            scope="openid impersonations",
        )
        async with management.client_with(token) as client:
            answers.append((await client.post(f"/oidc/me/impersonations/{impersonation_id}/end")).status_code)
    assert answers == [404, 204]
    assert await published(management, impersonation_id) is not None


async def test_what_redis_knows_of_an_impersonation(management: Management) -> None:
    user = (await management.created("users"))["id"]
    answer = await management.client.post("/api/subject-tokens", json={"userId": user})
    stored = await management.redis.get(impersonation_key(management.tenant_id, answer.headers["Impersonation-Id"]))
    client_id = management.credentials.client_id
    assert BegunImpersonation.parse(stored) == (client_id, user, None)
    assert BegunImpersonation.parse(f"{client_id} {user}".encode()) == (client_id, user, None)  # of an earlier release
    async with management.client_with(management.token(subject=user)) as client:
        answer = await client.post("/api/subject-tokens", json={"userId": user})
    stored = await management.redis.get(impersonation_key(management.tenant_id, answer.headers["Impersonation-Id"]))
    assert BegunImpersonation.parse(stored) == (client_id, user, user)


@pytest.mark.parametrize("scope", ["", "read:things"])
async def test_other_scopes_end_nothing(management: Management, scope: str) -> None:
    async with management.client_with(management.token(scope=scope)) as client:
        assert [refusal(await client.post(path, json={"all": True})) for path in (END, end_of(new_id()))] == [
            (403, "auth.forbidden")
        ] * 2


async def test_concurrent_ends_in_one_slot_are_all_in_its_state(management: Management) -> None:
    first = new_id()
    ids = [first, *(each for each in (new_id() for _ in range(3000)) if slot_of(each) == slot_of(first))][:4]
    answers = await asyncio.gather(*(management.client.post(end_of(each)) for each in ids))

    assert {answer.status_code for answer in answers} == {204}
    assert [end.id if (end := await published(management, each)) else None for each in ids] == ids


async def test_expired_ends_leave_the_state_of_their_slot_with_the_next_end(management: Management) -> None:
    first = new_id()
    other = next(each for each in iter(new_id, "") if slot_of(each) == slot_of(first))
    await management.client.post(end_of(first))
    await management.database.execute("UPDATE impersonation_ends SET expires_at = 1 WHERE id = $1", first)
    await management.client.post(end_of(other))

    assert await published(management, first) is None
    assert await published(management, other) is not None
    rows = await management.database.fetch("SELECT id FROM impersonation_ends WHERE id = ANY($1)", [first, other])
    assert [row["id"] for row in rows] == [other]
