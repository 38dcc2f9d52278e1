"""People see and end the impersonations of their own account, and no others.

``/oidc/me/impersonations`` needs the scope ``impersonations``, ``/api/my-account/impersonations`` needs ``account``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from stead.models import SubjectToken
from stead.verify.impersonations import ImpersonationSegments
from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.authorizing import Verifier
from tests.support.issuer import Issuer
from tests.support.management_api import Management, issues, refusal
from tests.support.waiting import eventually
from tests.support.world import World

PATH = "/oidc/me/impersonations"
OF_ACCOUNT = "/api/my-account/impersonations"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed_in(world: World, person: Person) -> str:
    """Sign in to a third party, allow what it asks for, and return its userinfo token."""
    client, verifier = application(world, "SPA", third_party=True), Verifier()
    asked: dict[str, Any] = {"scope": "openid impersonations", "resource": None, "verifier": verifier}
    page = person.follow(person.sign_in(person.follow(person.authorize(client, **asked))))
    assert heading(page) == "Allow access?"
    assert "See and end impersonations of your account" in page.text
    tokens = person.redeem(client, callback(person.send(page, decision="allow"))["code"], verifier)
    assert set(tokens["scope"].split()) == {"openid", "impersonations"}
    return str(tokens["access_token"])


def begin(world: World, person: Person) -> SubjectToken:
    context = {"reason": "A lost order", "ticketId": "T-1", "internal": "not for the person"}
    return world.management.subject_tokens.create(person.user_id, context=context)


def listed(world: World, token: str, path: str = PATH, **params: str) -> httpx.Response:
    answer = world.stack.http.get(path, params=params, headers=bearer(token))
    assert answer.status_code == 200, answer.text
    return answer


def is_active(world: World, access_token: str, revision: str) -> bool:
    answer = world.stack.http.post(
        "/oidc/token/introspection",
        data={"token": access_token},
        auth=world.traditional.basic,
        headers={"Identity-Revision": revision},
    )
    return bool(answer.json()["active"])


@pytest.mark.heavy
def test_a_person_sees_who_acted_for_them_and_ends_it(world: World) -> None:
    ada, bob = Person(world), Person(world)
    of_ada, of_bob = signed_in(world, ada), signed_in(world, bob)
    first, second = begin(world, ada), begin(world, ada)
    exchanged = world.exchange(
        second.token, actor_token=world.userinfo_token(), actor_token_type=TOKEN_TYPE_ACCESS_TOKEN
    ).json()["access_token"]
    eventually(lambda: [each.keys() >= {"issuedTo"} for each in listed(world, of_ada).json()] == [True, True])
    eventually(lambda: "scope" in listed(world, of_ada).json()[0])

    newest, oldest = listed(world, of_ada).json()
    assert [newest["id"], oldest["id"]] == [second.impersonation_id, first.impersonation_id]
    assert {name: value for name, value in newest.items() if not name.endswith("At")} == {
        "id": second.impersonation_id,
        "userId": ada.user_id,
        "actorId": world.agent,
        "clientId": world.traditional.id,
        "resource": world.resource,
        "scope": newest["scope"],
        "context": {"reason": "A lost order", "ticketId": "T-1"},
        "issuedTo": oldest["issuedTo"],
    }
    assert newest["createdAt"] <= newest["exchangedAt"] < newest["expiresAt"]

    page = listed(world, of_ada, page_size="1")
    following = page.links["next"]["url"]
    assert [each["id"] for each in page.json()] == [second.impersonation_id]
    assert urlsplit(following).path == PATH
    assert [each["id"] for each in world.stack.http.get(following, headers=bearer(of_ada)).json()] == [
        first.impersonation_id
    ]

    end = f"{PATH}/{second.impersonation_id}/end"
    assert listed(world, of_bob).json() == []
    assert refusal(world.stack.http.post(end, headers=bearer(of_bob))) == (404, "entity.not_found")
    assert is_active(world, exchanged, "management:0")

    ended = world.stack.http.post(end, headers=bearer(of_ada))
    assert (ended.status_code, ended.content) == (204, b"")
    assert not is_active(world, exchanged, ended.headers["Identity-Revision"])
    assert [each["id"] for each in listed(world, of_ada, active="true").json()] == [first.impersonation_id]
    eventually(lambda: "endedBy" in listed(world, of_ada).json()[0])
    told = listed(world, of_ada, active="false").json()[0]
    assert (told["id"], told["endedBy"], told["reason"]) == (second.impersonation_id, ada.user_id, "ended")
    assert world.stack.http.post(end, headers=bearer(of_ada)).status_code == 204


@pytest.mark.heavy
def test_the_account_page_tells_by_name_who_acted_and_ends_it(world: World) -> None:
    ada, bob = Person(world), Person(world)
    of_ada, of_bob = (world.userinfo_token(each.user_id, scope="openid account") for each in (ada, bob))
    agent = world.management.users.create(name="Ann Agent", primary_email=f"{ada.username}.agent@example.com")
    begun, other = begin(world, ada), begin(world, ada)
    actor = {"actor_token": world.userinfo_token(agent.id), "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
    exchanged = world.exchange(begun.token, **actor).json()["access_token"]
    eventually(lambda: ["scope" in each for each in listed(world, of_ada, OF_ACCOUNT).json()] == [False, True])

    newest, oldest = listed(world, of_ada, OF_ACCOUNT).json()
    client = world.management.applications.get(world.traditional.id)
    assert (oldest["actorId"], oldest["actorName"], oldest["clientName"]) == (agent.id, "Ann Agent", client.name)
    assert newest.keys().isdisjoint({"actorName", "clientName"})  # not exchanged yet
    assert agent.primary_email not in listed(world, of_ada, OF_ACCOUNT).text
    page = listed(world, of_ada, OF_ACCOUNT, page_size="1")
    assert urlsplit(page.links["next"]["url"]).path == OF_ACCOUNT

    end = f"{OF_ACCOUNT}/{begun.impersonation_id}/end"
    assert listed(world, of_bob, OF_ACCOUNT).json() == []
    assert refusal(world.stack.http.post(end, headers=bearer(of_bob))) == (404, "entity.not_found")
    assert is_active(world, exchanged, "management:0")
    ended = world.stack.http.post(end, headers=bearer(of_ada), json={"reason": "I did not ask for this."})
    assert (ended.status_code, ended.content) == (204, b"")
    assert not is_active(world, exchanged, ended.headers["Identity-Revision"])
    get = world.management.impersonations.get
    eventually(lambda: get(begun.impersonation_id).end_reason is not None)  # it comes with the entry of the request
    told = get(begun.impersonation_id)
    assert (told.ended_by, told.reason, told.end_reason) == (ada.user_id, "ended", "I did not ask for this.")
    assert [each["id"] for each in listed(world, of_ada, OF_ACCOUNT, active="true").json()] == [other.impersonation_id]

    world.management.users.delete(agent.id)
    assert "actorName" not in listed(world, of_ada, OF_ACCOUNT).json()[-1]


def test_a_token_from_an_exchange_neither_sees_nor_ends(world: World) -> None:
    person = Person(world)
    begun = begin(world, person)
    token = world.exchanged_userinfo_token(person.user_id, scope="openid impersonations")
    answers = (
        world.stack.http.get(PATH, headers=bearer(token)),
        world.stack.http.post(f"{PATH}/{begun.impersonation_id}/end", headers=bearer(token)),
    )
    assert [refusal(each) for each in answers] == [(403, "auth.forbidden")] * 2


def test_pages_of_every_origin_may_read_it(world: World) -> None:
    origin = {"Origin": "https://anywhere.example"}
    preflight = world.stack.http.options(PATH, headers={**origin, "Access-Control-Request-Method": "GET"})
    answer = world.stack.http.get(PATH, headers=origin)
    assert (preflight.status_code, answer.status_code) == (204, 401)
    assert {each.headers["Access-Control-Allow-Origin"] for each in (preflight, answer)} == {"*"}
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    assert "Link" in answer.headers["Access-Control-Expose-Headers"]
    elsewhere = world.stack.http.get("/api/users", headers=origin)
    assert "Access-Control-Allow-Origin" not in elsewhere.headers


async def refused(management: Management, token: str | None) -> tuple[int, str, str]:
    """Return how both operations refuse a token: the same."""
    async with management.client_with(token) as client:
        answers = [await client.get(PATH), await client.post(f"{PATH}/{'x' * 21}/end")]
    (found,) = {(*refusal(each), each.headers["WWW-Authenticate"]) for each in answers}
    return found


async def userinfo_token(management: Management, issuer: Issuer, **changes: Any) -> str:
    values = {
        "client_id": management.credentials.client_id,
        "subject": (await management.created("users"))["id"],
        "audience": f"{issuer.issuer}/me",
        "scope": "openid impersonations",
        **changes,
    }
    return issuer.access_token(**values)


async def test_only_a_userinfo_token_of_the_person_with_the_scope_is_accepted(
    management: Management, issuer: Issuer
) -> None:
    """RFC 6750 section 3.1."""
    invalid = (401, "auth.unauthorized", 'Bearer error="invalid_token"')
    forbidden = (403, "auth.forbidden", 'Bearer error="insufficient_scope", scope="impersonations"')
    suspended = await management.created("users")
    await management.client.patch(f"/api/users/{suspended['id']}/is-suspended", json={"isSuspended": True})
    client_id = management.credentials.client_id
    begun_now = ImpersonationSegments((new_id(),), now_ms()).format()  # after whatever other tests have ended
    wrong: dict[str, tuple[dict[str, Any], tuple[int, str, str]]] = {
        "no scope": ({"scope": "openid profile"}, forbidden),
        "exchanged": ({"gty": GRANT_TOKEN_EXCHANGE, "jti": begun_now}, forbidden),
        "with an actor": ({"act": {"sub": "eve"}}, forbidden),
        "of a machine": ({"subject": client_id}, forbidden),
        "for the Management API": ({"audience": management.settings.management_api_resource}, invalid),
        "of no user": ({"subject": new_id()}, invalid),
        "of a suspended user": ({"subject": suspended["id"]}, invalid),
        "of no client": ({"client_id": new_id()}, invalid),
        "expired": ({"exp": 1}, invalid),
    }
    assert {
        name: await refused(management, await userinfo_token(management, issuer, **changes))
        for name, (changes, _) in wrong.items()
    } == {name: expected for name, (_, expected) in wrong.items()}
    assert await refused(management, None) == (401, "auth.authorization_header_missing", "Bearer")
    token = await userinfo_token(management, issuer)
    async with management.client_with(token) as client:
        assert (await client.get("/api/users")).status_code == 401


async def test_bad_input_is_named(management: Management, issuer: Issuer) -> None:
    async with management.client_with(await userinfo_token(management, issuer)) as client:
        answer = await client.get(PATH)
        assert (answer.status_code, answer.json(), answer.headers["Cache-Control"]) == (200, [], "private, no-cache")
        assert issues(await client.get(f"{PATH}?active=yes&userId=u&role=actor")) == {"active", "userId", "role"}
        assert issues(await client.get(f"{PATH}?after=x")) == {"after"}
        assert refusal(await client.get(f"{PATH}?page_size=0")) == (400, "guard.invalid_pagination")
        for unknown in ("short", "x" * 21, "x" * 5_000):
            assert refusal(await client.post(f"{PATH}/{unknown}/end")) == (404, "entity.not_found")
        assert issues(await client.post(f"{PATH}/%00/end")) == {""}
        assert (await client.post(PATH)).status_code == 405
