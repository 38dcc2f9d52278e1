"""``/api/my-account``: a person reads and changes their own account, by a token of their own recent sign-in."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.wire.account_links import ConfirmAddress, Done, Refused
from stead.verify.impersonations import ImpersonationSegments
from tests.support.mailed_links import Pages
from tests.support.management_api import AUDIENCE, Management, at_once, issues, refusal, revision_of, unique

PATH = "/api/my-account"
PASSWORD = "unlike any documented example"
ANOTHER = "another good password"
WRONG = (422, "session.invalid_credentials")
TOO_OLD = (401, "auth.insufficient_user_authentication")
TOO_MANY = (429, "session.verification_blocked_too_many_attempts")
RECENT_WRITES = {
    ("PATCH", PATH): {"username": "ada"},
    ("POST", f"{PATH}/password"): {"password": ANOTHER},
    ("POST", f"{PATH}/primary-email"): {"email": "ada@example.com"},
}
"""What changes how a person signs in."""


class Person:
    """A user, and a client with a token of their sign-in."""

    def __init__(self, management: Management, user: dict[str, Any]) -> None:
        self.management = management
        self.id: str = user["id"]

    async def request(self, method: str, path: str, body: Any = None, **changed: Any) -> httpx.Response:
        async with self.management.client_with(self.management.own_token(self.id, **changed)) as client:
            return await client.request(method, path, **({} if body is None else {"json": body}))

    async def changes_password(self, **body: Any) -> httpx.Response:
        later = time.time() + 2  # a token of the second in which the password changed is refused
        return await self.request("POST", f"{PATH}/password", body, issued_at=later)

    async def stored(self) -> dict[str, Any]:
        return dict((await self.management.client.get(f"/api/users/{self.id}")).json())


async def created(management: Management, **members: Any) -> Person:
    given = {"username": unique("u").replace("-", "_"), "password": PASSWORD, **members}
    return Person(management, await management.created("users", **given))


@pytest.fixture
async def person(management: Management) -> Person:
    return await created(management)


@pytest.mark.heavy
async def test_administrators_change_how_they_sign_in_by_a_recent_sign_in_alone(management: Management) -> None:
    """A stolen session of the console would otherwise take over the account that it is of."""
    own, other = await created(management), await created(management)
    bodies: dict[tuple[str, str], dict[str, Any]] = {
        ("PATCH", ""): {"primaryEmail": f"{unique('e')}@example.com"},
        ("PATCH", "/"): {"username": unique("u").replace("-", "_")},
        ("PATCH", "//"): {"allowsPassword": True},
        ("POST", "/invitation"): {},
        ("POST", "/identities"): {"connectorId": new_id(), "value": "unknown"},
        ("DELETE", "/identities/unknown"): {},
        ("PATCH", "/password"): {"password": ANOTHER},
    }
    of_nothing = {"/identities": 422, "/identities/unknown": 404}
    now = int(time.time())
    for auth_time, expected in ((now - 700, TOO_OLD), (None, TOO_OLD), (now, None)):
        token = management.token(subject=own.id, auth_time=auth_time)
        async with management.client_with(token) as administrator:
            assert (await administrator.patch(f"/api/users/{own.id}", json={"name": "Ada"})).status_code == 200
            for (method, path), body in bodies.items():
                mine = await administrator.request(method, f"/api/users/{own.id}{path.rstrip('/')}", json=body)
                if expected is None:
                    assert mine.status_code == of_nothing.get(path, 200), (path, mine.text)
                else:
                    assert refusal(mine) == expected, path
            if expected is not None:
                assert 'max_age="600"' in mine.headers["WWW-Authenticate"]
                theirs = await administrator.patch(f"/api/users/{other.id}/password", json={"password": ANOTHER})
                assert theirs.status_code == 200, theirs.text


async def test_a_person_sees_their_account_and_nothing_of_the_integrator(management: Management) -> None:
    username, email = unique("u").replace("-", "_"), f"{unique('e')}@example.com"
    profile = {"given_name": "Ada", "locale": "de", "website": 7, "internal": "not for the person"}
    members = {"name": "Ada Lovelace", "customData": {"plan": "gold"}, "profile": profile, "primaryEmail": email}
    person = await created(management, username=username, isEmailVerified=True, **members)
    stored = await person.stored()
    absent = ("familyName", "middleName", "nickname", "preferredUsername", "profile", "website", "gender")
    assert (await person.request("GET", PATH)).json() == {
        "tenantId": management.tenant_id,
        "id": person.id,
        "username": username,
        "primaryEmail": email,
        "primaryPhone": None,
        "name": "Ada Lovelace",
        "avatar": None,
        "profile": {"givenName": "Ada", "locale": "de"} | dict.fromkeys((*absent, "birthdate", "zoneinfo")),
        "isEmailVerified": True,
        "hasPassword": True,
        "canChangePassword": True,
        "canChangeEmail": True,
        "createdAt": stored["createdAt"],
        "updatedAt": stored["updatedAt"],
    }


async def test_a_person_changes_what_is_theirs_and_only_as_they_read_it(management: Management, person: Person) -> None:
    username = unique("u").replace("-", "_")
    body = {"name": " Ada  Lovelace ", "avatar": "https://example.com/ada.png", "username": username}
    answer = await person.request("PATCH", PATH, body)
    assert answer.status_code == 200, answer.text
    assert revision_of(answer) == await management.revision()
    expected = {**body, "name": "Ada Lovelace"}
    assert {name: answer.json()[name] for name in body} == expected
    assert {name: (await person.stored())[name] for name in body} == expected

    async with management.client_with(management.own_token(person.id)) as client:
        read = await client.get(PATH)
        cleared = await client.patch(PATH, json={"name": " "}, headers={"If-Match": read.headers["ETag"]})
        assert (cleared.status_code, cleared.json()["name"]) == (200, None)
        late = await client.patch(PATH, json={"name": "A"}, headers={"If-Match": read.headers["ETag"]})
        assert refusal(late) == (412, "entity.version_mismatch")

    other = await created(management)
    taken = {"username": username.upper()}
    assert refusal(await other.request("PATCH", PATH, taken)) == (422, "user.username_already_in_use")
    for name, value in {"username": "a@b", "avatar": "javascript:alert(1)"}.items():
        assert issues(await other.request("PATCH", PATH, {name: value})) == {name}
    assert issues(await other.request("PATCH", PATH, {"primaryEmail": "a@b.example", "customData": {}})) == {
        "primaryEmail",
        "customData",
    }
    assert refusal(await other.request("PATCH", PATH, {"name": "\u202eAda"})) == (422, "entity.invalid_name")


async def test_the_profile_keeps_what_the_integrator_has_in_it(management: Management) -> None:
    person = await created(management, profile={"internal": 1, "given_name": "Ada", "nickname": "A"})
    body = {"givenName": "Augusta", "locale": "de-AT", "nickname": None, "familyName": "  ", "birthdate": "1815-12-10"}
    answer = await person.request("PATCH", f"{PATH}/profile", body)
    assert answer.status_code == 200, answer.text
    kept = {"givenName": "Augusta", "locale": "de-AT", "birthdate": "1815-12-10"}
    assert {name: value for name, value in answer.json()["profile"].items() if value is not None} == kept
    assert (await person.stored())["profile"] == {"internal": 1, **kept}
    cleared = await person.request("PATCH", f"{PATH}/profile", dict.fromkeys(kept))
    assert set(cleared.json()["profile"].values()) == {None}

    wrong = {
        "birthdate": "10.12.1815",
        "locale": "de_AT; DROP",
        "zoneinfo": "../etc/passwd",
        "website": "javascript:alert(1)",
        "profile": "ftp://example.com",
        "givenName": "A\u200bda",
    }
    before = await management.revision()
    assert issues(await person.request("PATCH", f"{PATH}/profile", wrong)) == wrong.keys()
    assert issues(await person.request("PATCH", f"{PATH}/profile", {"address": {}, "nickname": 1})) == {
        "address",
        "nickname",
    }
    full = await created(management, profile={"internal": "x" * (64 * 1024 - 20)})
    grown = await full.request("PATCH", f"{PATH}/profile", {"nickname": "x" * 256})
    assert refusal(grown) == (413, "request.too_large")
    assert (await full.request("PATCH", f"{PATH}/profile", {"nickname": None})).status_code == 200
    assert await management.revision() == before + 1


@pytest.mark.parametrize("ago_s", [601, None])
async def test_how_one_signs_in_changes_after_a_recent_sign_in_only(person: Person, ago_s: int | None) -> None:
    """RFC 9470 section 3."""
    auth_time = {"auth_time": None if ago_s is None else int(time.time()) - ago_s}
    for (method, path), body in RECENT_WRITES.items():
        answer = await person.request(method, path, body, **auth_time)
        assert refusal(answer) == TOO_OLD
        challenge = answer.headers["WWW-Authenticate"]
        assert challenge.startswith('Bearer error="insufficient_user_authentication"')
        assert challenge.endswith('max_age="600"')
    assert (await person.request("PATCH", PATH, {"name": "Ada"}, **auth_time)).status_code == 200
    assert (await person.request("GET", PATH, **auth_time)).json()["name"] == "Ada"


async def test_something_to_sign_in_with_remains(management: Management) -> None:
    person = await created(management)
    last = (422, "user.last_identifier")
    assert refusal(await person.request("PATCH", PATH, {"username": None})) == last
    assert (await person.stored())["username"] is not None
    with_phone = await created(management, primaryPhone="+4915112345670")
    assert (await with_phone.request("PATCH", PATH, {"username": None})).status_code == 200
    by_administrator = await management.client.patch(f"/api/users/{person.id}", json={"username": None})
    assert by_administrator.status_code == 200
    assert (await person.request("PATCH", PATH, {"name": "Ada"})).status_code == 200


async def test_a_new_password_needs_the_present_one_and_ends_every_session(
    management: Management, person: Person
) -> None:
    before = await person.stored()
    assert issues(await person.changes_password(password=ANOTHER)) == {"currentPassword"}
    assert issues(await person.changes_password(password="short", currentPassword=PASSWORD)) == {"password"}
    assert refusal(await person.changes_password(password=ANOTHER, currentPassword="wrong")) == WRONG
    same = await person.changes_password(password=PASSWORD, currentPassword=PASSWORD)
    assert refusal(same) == (422, "user.same_password")
    assert await person.stored() == before

    answer = await person.changes_password(password=ANOTHER, currentPassword=PASSWORD)
    assert (answer.status_code, answer.content) == (204, b"")
    assert revision_of(answer) == await management.revision()
    assert refusal(await person.request("GET", PATH)) == (401, "auth.unauthorized")
    assert refusal(await person.changes_password(password=PASSWORD, currentPassword=PASSWORD)) == WRONG
    assert (await person.changes_password(password=PASSWORD, currentPassword=ANOTHER)).status_code == 204


async def test_passwords_that_look_alike_are_the_same(management: Management) -> None:
    person = await created(management, password="se\u0301same ouvre-toi")
    body = {"password": "s\u00e9same ouvre-toi", "currentPassword": "s\u00e9same ouvre-toi"}
    assert refusal(await person.changes_password(**body)) == (422, "user.same_password")


async def test_a_person_without_a_password_sets_the_first_one(management: Management) -> None:
    person = await created(management, password=None)
    assert (await person.request("GET", PATH)).json()["hasPassword"] is False
    assert refusal(await person.changes_password(password=ANOTHER, currentPassword="a guess")) == WRONG
    assert (await person.changes_password(password=ANOTHER)).status_code == 204
    assert issues(await person.changes_password(password=PASSWORD)) == {"currentPassword"}


async def test_guesses_of_the_present_password_are_limited_apart_from_sign_ins(
    management: Management, person: Person
) -> None:
    limit = management.settings.password_attempts_per_account
    guesses = [person.changes_password(password=ANOTHER, currentPassword=f"guess {n}") for n in range(limit + 2)]
    answers = await at_once(*guesses)
    assert sorted(refusal(each) for each in answers) == [WRONG] * limit + [TOO_MANY] * 2
    assert all(1 <= int(each.headers["Retry-After"]) <= 903 for each in answers if each.status_code == 429)
    right = {"password": ANOTHER, "currentPassword": PASSWORD}
    assert refusal(await person.changes_password(**right)) == TOO_MANY
    keys = management.redis.scan_iter(f"*{management.tenant_id}:sign-in-attempts:*{person.id}*")
    (key,) = [key async for key in keys]
    assert await management.redis.hgetall(key) == {b"my-account": str(limit).encode()}
    cleared = await management.client.post(f"/api/users/{person.id}/sign-in-attempts/clear")
    assert cleared.status_code == 204
    assert (await person.changes_password(**right)).status_code == 204


async def test_of_two_who_know_the_present_password_one_changes_it(management: Management) -> None:
    for password in (PASSWORD, None):
        person = await created(management, password=password)
        body = {} if password is None else {"currentPassword": password}
        both = [person.changes_password(password=f"a new password {n}", **body) for n in range(2)]
        first, second = sorted(await asyncio.gather(*both), key=lambda answer: answer.status_code)
        assert first.status_code == 204
        # Which of them depends on how far the second was when the first had committed.
        assert refusal(second) in {WRONG, (400, "guard.invalid_input")}


async def test_a_new_address_is_the_account_s_once_its_link_was_followed(pages: Pages) -> None:
    management = pages.management
    person = await created(management, primaryEmail=f"{unique('old')}@example.com", profile={"locale": "de"})
    before, email = await person.stored(), f"{unique('new')}@example.com"
    answer = await person.request("POST", f"{PATH}/primary-email", {"email": email})
    assert (answer.status_code, answer.content) == (204, b"")
    assert await person.stored() == before
    (mail,) = await pages.sent(email)
    assert (mail.kind, mail.language, mail.user_id) == ("email-verification", "de", person.id)
    assert mail.application_id == management.credentials.client_id

    assert isinstance(await pages.ask(ConfirmAddress(link=await pages.link(email))), Done)
    after = await person.stored()
    assert (after["primaryEmail"], after["isEmailVerified"]) == (email, True)
    (notice,) = await pages.sent(before["primaryEmail"])
    assert (notice.kind, notice.values["address"]) == ("email-changed", email)


async def test_nobody_learns_here_that_another_account_has_an_address(pages: Pages) -> None:
    taken = f"{unique('taken')}@example.com"
    other = await created(pages.management, primaryEmail=taken)
    person = await created(pages.management, primaryEmail=f"{unique('e')}@example.com")
    before = await person.stored(), await other.stored()
    answer = await person.request("POST", f"{PATH}/primary-email", {"email": taken.upper()})
    assert (answer.status_code, answer.content) == (204, b"")
    assert isinstance(await pages.ask(ConfirmAddress(link=await pages.link(taken.upper()))), Refused)
    assert (await person.stored(), await other.stored()) == before

    for wrong in (
        "",
        "ada",
        "ada@localhost",
        "a b@example.com",
        "a@example.com\r\nBcc: eve@example.com",
        "a@b.c" * 99,
    ):
        assert issues(await person.request("POST", f"{PATH}/primary-email", {"email": wrong})) == {"email"}


async def test_an_address_is_sent_a_few_links_and_no_more(management: Management, person: Person) -> None:
    requests = [person.request("POST", f"{PATH}/primary-email", {"email": "bombed@example.com"}) for _ in range(6)]
    refused = [each for each in await at_once(*requests) if each.status_code != 204]
    assert {refusal(each) for each in refused} == {(429, "mail.too_many_to_recipient")}
    assert len(refused) == 3
    assert all(int(each.headers["Retry-After"]) >= 1 for each in refused)


async def test_a_new_password_is_told_by_mail_and_ends_the_links_of_a_stolen_session(pages: Pages) -> None:
    person = await created(pages.management, primaryEmail=f"{unique('e')}@example.com")
    address, of_thief = (await person.stored())["primaryEmail"], f"{unique('thief')}@example.com"
    assert (await person.request("POST", f"{PATH}/primary-email", {"email": of_thief})).status_code == 204
    link = await pages.link(of_thief)
    assert (await person.changes_password(password=ANOTHER, currentPassword="wrong")).status_code == 422
    assert (await person.changes_password(password=ANOTHER, currentPassword=PASSWORD)).status_code == 204
    assert [(mail.kind, mail.user_id) for mail in await pages.sent(address)] == [("password-changed", person.id)]
    assert isinstance(await pages.ask(ConfirmAddress(link=link)), Refused)
    assert (await person.stored())["primaryEmail"] == address


async def test_a_person_may_hold_more_than_the_token_of_their_sign_in_says(management: Management) -> None:
    """An administrator's account is changed by its person, and still by no token for the API that holds less."""
    resources = (await management.client.get("/api/resources")).json()
    of_api = next(each["id"] for each in resources if each["indicator"] == AUDIENCE)
    scopes = (await management.client.get(f"/api/resources/{of_api}/scopes")).json()
    every = next(each["id"] for each in scopes if each["name"] == "all")
    role = await management.created("roles", name=unique("r"), description="", type="User", scopeIds=[every])
    person = await created(management)
    await management.client.post(f"/api/users/{person.id}/roles", json={"roleIds": [role["id"]]})

    assert (await person.request("PATCH", PATH, {"username": unique("u").replace("-", "_")})).status_code == 200
    recent = management.token(subject=person.id, scope="users account", auth_time=int(time.time()))
    async with management.client_with(recent) as client:
        answer = await client.patch(f"/api/users/{person.id}/password", json={"password": ANOTHER})
    assert refusal(answer) == (403, "auth.scopes_missing")


async def test_only_a_userinfo_token_of_an_own_sign_in_is_accepted(management: Management, person: Person) -> None:
    invalid, forbidden = (401, "auth.unauthorized"), (403, "auth.forbidden")
    begun_now = ImpersonationSegments((new_id(),), now_ms()).format()  # after whatever other tests have ended
    wrong: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
        "no scope": ({"scope": "openid profile"}, forbidden),
        "another scope": ({"scope": "openid impersonations accounts"}, forbidden),
        "exchanged": ({"gty": GRANT_TOKEN_EXCHANGE, "jti": begun_now}, forbidden),
        "with an actor": ({"act": {"sub": "eve"}, "jti": begun_now}, forbidden),
        "of a machine": ({"subject": management.credentials.client_id}, forbidden),
        "for the Management API": ({"audience": AUDIENCE, "scope": "all account"}, invalid),
        "for another resource": ({"audience": "https://api.example.com"}, invalid),
        "of no user": ({"subject": new_id()}, invalid),
        "of no client": ({"client_id": new_id()}, invalid),
        "expired": ({"exp": 1}, invalid),
    }
    tokens = {name: management.own_token(person.id, **changed) for name, (changed, _) in wrong.items()}
    claims = {"iss": management.issuer.issuer, "sub": person.id, "aud": f"{management.issuer.issuer}/me"}
    client_id = management.credentials.client_id
    times = {"iat": int(time.time()), "exp": int(time.time()) + 60, "auth_time": int(time.time())}
    of_id = {**claims, **times, "client_id": client_id, "jti": new_id(), "scope": "openid account"}
    tokens["an ID token"] = management.issuer.sign(of_id, typ="JWT")
    expected = {name: {status} for name, (_, status) in wrong.items()} | {"an ID token": {invalid}}
    found = {}
    for name, token in tokens.items():
        async with management.client_with(token) as client:
            answers = [
                await client.get(PATH),
                await client.patch(PATH, json={"name": "Eve"}),
                await client.patch(f"{PATH}/profile", json={"nickname": "Eve"}),
                await client.post(f"{PATH}/password", json={"password": ANOTHER, "currentPassword": PASSWORD}),
                await client.post(f"{PATH}/primary-email", json={"email": "eve@example.com"}),
                await client.get(f"{PATH}/impersonations"),
                await client.post(f"{PATH}/impersonations/{'x' * 21}/end"),
            ]
        found[name] = {refusal(each) for each in answers}
    assert found == expected
    async with management.client_with(management.own_token(person.id)) as client:
        assert (await client.get("/api/users")).status_code == 401


async def test_pages_of_every_origin_may_use_it(management: Management) -> None:
    origin = {"Origin": "https://anywhere.example"}
    async with management.client_with(None) as client:
        preflight = await client.options(PATH, headers={**origin, "Access-Control-Request-Method": "PATCH"})
        answer = await client.get(f"{PATH}/impersonations", headers=origin)
    assert {each.headers["Access-Control-Allow-Origin"] for each in (preflight, answer)} == {"*"}
    assert {"GET", "POST", "PATCH", "DELETE"} <= set(preflight.headers["Access-Control-Allow-Methods"].split(", "))
    assert "Access-Control-Allow-Credentials" not in preflight.headers
