"""Sessions from sign-in to sign-out, and the tokens that applications get from them (RP-Initiated Logout 1.0)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import jwt
import pytest

from identity_common.clock import now_ms
from identity_common.stores.redis import RedisCommands
from stead import NotFound, SignInSession
from tests.support.at_a_browser import Person, application, callback, heading, plant
from tests.support.authorizing import REDIRECT_URI, Stores, Verifier, in_stores
from tests.support.signing_in import tokens_valid_after
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import SESSION
from token_service.sign_in.sessions import Sessions

END = "/oidc/session/end"


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def other(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def person(world: World) -> Person:
    return Person(world)


def tokens_of(person: Person, client: Client, **changes: Any) -> dict[str, Any]:
    return person.redeem(client, *person.code(client, **changes))


def is_alive(person: Person, client: Client, tokens: dict[str, Any]) -> bool:
    """Tell whether the tokens are alive; access token and refresh token must agree."""
    form = {"grant_type": "refresh_token", "client_id": client.id, "refresh_token": tokens["refresh_token"]}
    refreshed = person.world.stack.token_request(form)
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    assert (person.world.stack.http.get("/oidc/me", headers=bearer).status_code == 200) == refreshed.is_success
    tokens.update(refreshed.json() if refreshed.is_success else {})
    return refreshed.is_success


def session_of(tokens: dict[str, Any]) -> str:
    return str(jwt.decode(tokens["id_token"], options={"verify_signature": False})["sid"])


def sign_out(browser: httpx.Client, tokens: dict[str, Any]) -> None:
    assert heading(browser.get(END, params={"id_token_hint": tokens["id_token"]})) == "You are signed out"


@pytest.mark.parametrize("demand", [{"prompt": "login"}, {"max_age": "0"}])
def test_signing_in_again_continues_the_session_and_signing_out_ends_all_of_it(
    person: Person, spa: Client, other: Client, demand: dict[str, str]
) -> None:
    first, elsewhere = tokens_of(person, spa), tokens_of(person, other)
    under_way, verifier = person.code(other)
    again = tokens_of(person, spa, **demand)
    assert session_of(again) == session_of(first)
    assert all(is_alive(person, client, tokens) for client, tokens in ((spa, first), (other, elsewhere), (spa, again)))
    assert session_of(first) == session_of(again), "a refreshed ID token names it too"
    person.redeem(other, under_way, verifier)

    sign_out(person.browser, again)
    assert not any(
        is_alive(person, client, tokens) for client, tokens in ((spa, first), (other, elsewhere), (spa, again))
    )
    assert session_of(tokens_of(person, spa)) != session_of(again)


def test_signing_in_over_another_users_session_ends_that_session(world: World, person: Person, spa: Client) -> None:
    earlier = tokens_of(person, spa)
    under_way, verifier = person.code(spa)
    later = Person(world)
    later.browser = person.browser
    page = later.follow(later.authorize(spa, prompt="login"))
    assert is_alive(person, spa, earlier), "the new sign-in is not complete yet"
    later.sign_in(page, password="wrong")
    assert is_alive(person, spa, earlier), "nor now"
    assert callback(later.sign_in(page))["code"]

    assert not is_alive(person, spa, earlier)
    form = {"grant_type": "authorization_code", "client_id": spa.id, "code": under_way, "redirect_uri": REDIRECT_URI}
    refused = world.stack.token_request({**form, "code_verifier": verifier.secret})
    assert refused.json()["error"] == "invalid_grant"
    tokens = tokens_of(later, spa)
    assert session_of(tokens) != session_of(earlier)
    assert is_alive(later, spa, tokens)


@pytest.mark.heavy
@pytest.mark.parametrize("end", ["set_password", "suspend", "reset_factors"])
def test_a_sign_in_that_was_judged_before_a_reset_does_not_survive_it(world: World, spa: Client, end: str) -> None:
    """The factor is accepted, the reset follows, the session begins: by a clock that is ahead, after the reset."""
    person = Person(world)
    judged_against = tokens_valid_after(world, person.user_id)

    async def begin(stores: Stores) -> str:
        sessions = Sessions(RedisCommands(stores.redis), stores.redis, tenant_id=world.stack.tenant_id, replicas=0)
        cookie, _ = await sessions.sign_in(
            person.user_id, judged_at=now_ms() + 3_600_000, tokens_valid_after=judged_against
        )
        return cookie

    plant(person.browser, SESSION, in_stores(world.stack.token_settings, begin))
    tokens = tokens_of(person, spa)
    under_way, verifier = person.code(spa)

    users = world.management.users
    if end == "set_password":
        users.set_password(person.user_id, "another long password")
    elif end == "suspend":
        users.suspend(person.user_id)
        users.suspend(person.user_id, suspended=False)
    else:
        users.reset_factors(person.user_id, reason="A lost phone.")
    world.caught_up()

    assert callback(person.authorize(spa, prompt="none"))["error"] == "login_required"
    form = {"grant_type": "authorization_code", "client_id": spa.id, "code": under_way, "redirect_uri": REDIRECT_URI}
    refused = world.stack.token_request({**form, "code_verifier": verifier.secret})
    assert refused.json()["error"] == "invalid_grant"
    assert not is_alive(person, spa, tokens)


def test_a_refused_sign_in_does_not_end_another_users_session(world: World, person: Person, spa: Client) -> None:
    tokens = tokens_of(person, spa)
    suspended = Person(world)
    world.management.users.suspend(suspended.user_id)
    suspended.browser = person.browser
    page = suspended.sign_in(suspended.follow(suspended.authorize(spa, prompt="login")))
    assert "This account cannot sign in" in page.text
    assert is_alive(person, spa, tokens)
    assert callback(person.authorize(spa, prompt="none"))["code"]


def test_without_the_session_cookie_signing_out_ends_that_clients_tokens_only(
    person: Person, spa: Client, other: Client
) -> None:
    """An ID token alone cannot end the session of another browser."""
    tokens, elsewhere = tokens_of(person, spa), tokens_of(person, other)
    verifier = Verifier()
    under_way = callback(person.authorize(spa, verifier=verifier))["code"]
    sign_out(person.new_browser(), tokens)

    assert not is_alive(person, spa, tokens)
    form = {"grant_type": "authorization_code", "client_id": spa.id, "code": under_way, "redirect_uri": REDIRECT_URI}
    refused = person.world.stack.token_request({**form, "code_verifier": verifier.secret})
    assert refused.json()["error"] == "invalid_grant"
    assert is_alive(person, other, elsewhere)
    assert is_alive(person, spa, tokens_of(person, spa)), "the session goes on where it is"


def test_signing_out_with_an_old_id_token_ends_its_own_tokens_too(person: Person, spa: Client) -> None:
    """The browser was closed, and the person signed in again."""
    old = tokens_of(person, spa)
    person.browser = person.new_browser()
    new = tokens_of(person, spa)
    sign_out(person.browser, old)
    assert not is_alive(person, spa, old)
    assert not is_alive(person, spa, new)
    assert "/sign-in" in person.authorize(spa).headers["Location"]


@pytest.fixture
def parameters(spa: Client) -> dict[str, str]:
    """The sign-out request of an application that keeps no ID token."""
    return {"client_id": spa.id, "post_logout_redirect_uri": f"{REDIRECT_URI}/bye", "state": "s-2"}


def test_signing_out_without_an_id_token_takes_one_click(
    person: Person, spa: Client, parameters: dict[str, str]
) -> None:
    """RP-Initiated Logout 1.0 sections 2 and 6: the user is asked, because any site could have sent the browser."""
    tokens = tokens_of(person, spa)
    page = person.browser.get(END, params=parameters)
    assert (page.status_code, heading(page)) == (200, "Sign out?")
    assert all(text in page.text for text in ("Orders &amp; &lt;more&gt;", "Ada Lovelace", "Cancel"))
    assert is_alive(person, spa, tokens)

    back = person.send(page, decision="sign-out")
    assert callback(back, f"{REDIRECT_URI}/bye") == {"state": "s-2"}
    assert not is_alive(person, spa, tokens)
    again = person.browser.get(END, params=parameters)
    assert callback(again, f"{REDIRECT_URI}/bye") == {"state": "s-2"}, "nobody is signed in: no question"


def test_cancelling_leaves_the_user_signed_in(person: Person, spa: Client, parameters: dict[str, str]) -> None:
    """The address is for a browser whose user has been signed out: it is offered as a link, without the state."""
    tokens = tokens_of(person, spa)
    page = person.send(person.browser.get(END, params=parameters), decision="cancel")
    assert (page.status_code, heading(page)) == (200, "You are still signed in")
    assert f'href="{REDIRECT_URI}/bye"' in page.text
    assert is_alive(person, spa, tokens)
    assert callback(person.authorize(spa, prompt="none"))["code"]


def test_a_suspended_user_is_asked_without_a_name(
    world: World, person: Person, spa: Client, parameters: dict[str, str]
) -> None:
    """Nothing is said about an account that cannot sign in; the session can still be ended."""
    tokens_of(person, spa)
    world.management.users.suspend(person.user_id)
    world.caught_up()
    page = person.browser.get(END, params=parameters)
    assert (heading(page), "Ada Lovelace" in page.text) == ("Sign out?", False)
    assert callback(person.send(page), f"{REDIRECT_URI}/bye") == {"state": "s-2"}


def test_signing_out_with_an_id_token_of_another_user_leaves_the_session_alone(
    world: World, person: Person, spa: Client
) -> None:
    tokens, other_person = tokens_of(person, spa), Person(world)
    theirs = tokens_of(other_person, spa)
    asked = other_person.browser.get(END, params={"id_token_hint": tokens["id_token"]})
    assert heading(asked) == "Sign out?"
    assert not is_alive(person, spa, tokens)
    assert is_alive(other_person, spa, theirs)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("an address that is not registered", {"post_logout_redirect_uri": "https://evil.example.com"}),
    ("an address without a client", {"client_id": None}),
    ("an unknown client", {"client_id": "unknown"}),
    ("an ID token of another client", {"id_token_hint": "another"}),
    ("a repeated parameter", {"state": ["a", "b"]}),
    ("a NUL character", {"state": "a\0"}),
    ("more than a request may have", {f"further_{number}": "1" for number in range(70)}),
]


@pytest.mark.parametrize("changes", [each[1] for each in REFUSED], ids=[each[0] for each in REFUSED])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refused_request_leaves_a_way_to_sign_out(
    person: Person, spa: Client, other: Client, parameters: dict[str, str], method: str, changes: dict[str, Any]
) -> None:
    """RP-Initiated Logout 1.0 section 4: what is not valid is not used; the user can still decide to sign out."""
    tokens = tokens_of(person, spa)
    if "id_token_hint" in changes:
        changes = {"id_token_hint": tokens_of(person, other)["id_token"]}
    sent = {name: value for name, value in {**parameters, **changes}.items() if value is not None}

    def requested() -> httpx.Response:
        return person.browser.get(END, params=sent) if method == "GET" else person.browser.post(END, data=sent)

    page = requested()
    assert (page.status_code, heading(page)) == (400, "This did not work")
    assert is_alive(person, spa, tokens)
    assert heading(person.send(page, csrf_token="x")) == "Sign out?", "only our own page signs out"

    done = person.send(page, decision="sign-out")
    assert (done.status_code, heading(done)) == (200, "You are signed out")
    assert not is_alive(person, spa, tokens)
    again = requested()
    assert (again.status_code, "<form" in again.text) == (400, False), "the session has ended"


@pytest.mark.parametrize("hint", ["x", "eyJhbGciOiJub25lIn0.e30.", "an access token"])
def test_what_is_not_an_id_token_of_ours_is_ignored(
    person: Person, spa: Client, parameters: dict[str, str], hint: str
) -> None:
    """The user is asked as without one."""
    tokens = tokens_of(person, spa)
    hint = tokens["access_token"] if hint == "an access token" else hint
    page = person.browser.get(END, params={**parameters, "id_token_hint": hint})
    assert heading(page) == "Sign out?"
    assert is_alive(person, spa, tokens)
    assert callback(person.send(page, decision="sign-out"), f"{REDIRECT_URI}/bye") == {"state": "s-2"}


def test_a_request_to_sign_out_may_be_a_form_and_its_id_token_expired(
    world: World, person: Person, spa: Client, parameters: dict[str, str]
) -> None:
    """Section 2: both methods; an ID token of a current session counts after its expiry."""
    tokens = tokens_of(person, spa)
    claims = jwt.decode(tokens["id_token"], options={"verify_signature": False})
    expired = world.forger.sign({**claims, "iat": claims["iat"] - 7200, "exp": claims["exp"] - 7200}, typ="JWT")
    done = person.browser.post(END, data={**parameters, "id_token_hint": expired})
    assert callback(done, f"{REDIRECT_URI}/bye") == {"state": "s-2"}
    assert not is_alive(person, spa, tokens)


def posted_elsewhere(person: Person, form: dict[str, Any]) -> httpx.Response:
    """Send a form of another site, which comes without cookies (``SameSite=Lax``)."""
    with person.new_browser() as without_cookies:
        arrived = without_cookies.post(END, data=form)
    assert arrived.headers.get_list("Set-Cookie") == [], "a browser would lose its session or its other requests"
    return arrived


def test_a_form_of_another_site_signs_out_as_one_of_our_own(
    person: Person, spa: Client, parameters: dict[str, str]
) -> None:
    """With an ID token at once, without one after a question, and refused with a way on."""
    tokens = tokens_of(person, spa)
    refused = person.follow(
        posted_elsewhere(person, {**parameters, "post_logout_redirect_uri": "https://evil.example"})
    )
    assert (refused.status_code, heading(refused), "<form" in refused.text) == (400, "This did not work", True)
    assert heading(person.follow(posted_elsewhere(person, parameters))) == "Sign out?"
    assert is_alive(person, spa, tokens)

    arrived = posted_elsewhere(person, {**parameters, "id_token_hint": tokens["id_token"]})
    assert is_alive(person, spa, tokens), "nothing has happened yet"
    assert callback(person.follow(arrived), f"{REDIRECT_URI}/bye") == {"state": "s-2"}
    assert not is_alive(person, spa, tokens)

    tokens = tokens_of(person, spa)
    assert heading(person.follow(arrived)) == "Sign out?", "it was taken: the same address signs nobody out"
    back = person.send(person.follow(posted_elsewhere(person, parameters)), decision="sign-out")
    assert callback(back, f"{REDIRECT_URI}/bye") == {"state": "s-2"}
    assert not is_alive(person, spa, tokens)


def test_a_form_too_large_to_be_stored_leaves_a_way_to_sign_out(person: Person, spa: Client) -> None:
    tokens = tokens_of(person, spa)
    page = person.follow(posted_elsewhere(person, {"state": "s" * 66_000}))
    assert heading(page) == "Sign out?"
    assert heading(person.send(page, decision="sign-out")) == "You are signed out"
    assert not is_alive(person, spa, tokens)


MINE = "/api/my-account/sessions"
OF_ONE = {"scope": "openid account offline_access", "resource": None}


def bearer(tokens: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens['access_token']}"}


def listed(person: Person, tokens: dict[str, Any]) -> list[dict[str, Any]]:
    answer = person.world.stack.http.get(MINE, headers=bearer(tokens))
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_the_sessions_of_a_user_are_listed_and_ended(person: Person, spa: Client, other: Client) -> None:
    users = person.world.management.users
    assert list(users.sessions(person.user_id)) == []
    person.browser.headers["User-Agent"] = "Firefox <script>"
    phone = tokens_of(person, spa)
    person.browser = person.new_browser()
    person.browser.headers["User-Agent"] = f"\u202e{'x' * 1_000}"  # as UTF-8, which is read as Latin-1
    laptop, elsewhere = tokens_of(person, spa), tokens_of(person, other)
    verifier = Verifier()
    under_way = callback(person.authorize(other, verifier=verifier))["code"]

    newest, oldest = users.sessions(person.user_id)
    assert newest == SignInSession(
        id=session_of(laptop),
        user_id=person.user_id,
        tenant_id="default",
        created_at=newest.created_at,
        signed_in_at=newest.created_at,
        expires_at=newest.expires_at,
        address="127.0.0.1",
        user_agent=f"â®{'x' * 254}",
    )
    assert newest.expires_at is not None
    assert newest.created_at < newest.expires_at
    assert (oldest.id, oldest.user_agent) == (session_of(phone), "Firefox <script>")

    users.end_session(person.user_id, newest.id)
    assert [each.id for each in users.sessions(person.user_id)] == [oldest.id]
    assert not is_alive(person, spa, laptop)
    assert not is_alive(person, other, elsewhere)
    redemption = {"grant_type": "authorization_code", "client_id": other.id, "code": under_way}
    redemption |= {"redirect_uri": REDIRECT_URI, "code_verifier": verifier.secret}
    assert person.world.stack.token_request(redemption).json()["error"] == "invalid_grant"
    assert callback(person.authorize(spa, prompt="none"))["error"] == "login_required"
    assert is_alive(person, spa, phone)
    with pytest.raises(NotFound):
        users.end_session(person.user_id, newest.id)

    users.set_password(person.user_id, "a password unlike the earlier one")
    person.world.caught_up()
    assert list(users.sessions(person.user_id)) == []


def test_users_see_and_end_their_own_sessions_only(world: World, person: Person, spa: Client) -> None:
    stranger = Person(world)
    theirs = session_of(tokens_of(stranger, spa))
    here = tokens_of(person, spa, **OF_ONE)
    person.browser = person.new_browser()
    there = tokens_of(person, spa, **OF_ONE)
    assert [(each["id"], each["isCurrent"]) for each in listed(person, here)] == [
        (session_of(there), False),
        (session_of(here), True),
    ]
    page = world.stack.http.get(f"{MINE}?page=2&page_size=1", headers=bearer(here))
    assert ([each["id"] for each in page.json()], page.headers["Total-Number"]) == ([session_of(here)], "2")
    assert page.links["prev"]["url"].endswith(f"{MINE}?page=1&page_size=1")
    for query in ("page=0", "page_size=101", "page=x", "page=1&page=1", "q=x", "userId=x"):
        assert world.stack.http.get(f"{MINE}?{query}", headers=bearer(here)).status_code == 400, query

    http, session_id = world.stack.http, session_of(there)
    for unknown in (theirs, "x", "x" * 5_000, f"{session_id}.x"):
        assert http.delete(f"{MINE}/{unknown}", headers=bearer(here)).status_code == 404
    assert [each.id for each in world.management.users.sessions(stranger.user_id)] == [theirs]
    with pytest.raises(NotFound):
        world.management.users.end_session(stranger.user_id, session_id)
    with pytest.raises(NotFound):
        list(world.management.users.sessions("nobody"))

    def end() -> int:
        return http.delete(f"{MINE}/{session_id}", headers=bearer(here)).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = [each.result() for each in [pool.submit(end) for _ in range(8)]]
    assert set(statuses) <= {204, 404}
    assert 204 in statuses
    assert end() == 404
    assert not is_alive(person, spa, there)
    assert [each["id"] for each in listed(person, here)] == [session_of(here)]

    assert http.delete(f"{MINE}/{session_of(here)}", headers=bearer(here)).status_code == 204
    assert http.get(MINE, headers=bearer(here)).status_code == 401


def test_users_see_and_withdraw_their_own_consents_only(world: World, person: Person, spa: Client) -> None:
    path, stranger = "/api/my-account/consents", Person(world)
    tokens_of(stranger, spa, **OF_ONE)
    partner = application(world, "SPA", third_party=True, name="Partner <b>")
    tokens, verifier = tokens_of(person, spa, **OF_ONE), Verifier()
    page = person.follow(person.authorize(partner, verifier=verifier))
    granted = person.redeem(partner, callback(person.send(page, decision="allow"))["code"], verifier)
    found = world.stack.http.get(path, headers=bearer(tokens)).json()
    assert {each["applicationId"]: (each["applicationName"], each["implicit"]) for each in found} == {
        spa.id: ("Orders & <more>", True),
        partner.id: ("Partner <b>", False),
    }
    assert sorted(found, key=lambda each: each["applicationId"]) == found

    def withdraw(application_id: str) -> int:
        return world.stack.http.delete(f"{path}/{application_id}", headers=bearer(tokens)).status_code

    assert [withdraw(each) for each in (partner.id, partner.id, "x" * 5_000)] == [204, 404, 404]
    assert not is_alive(person, partner, granted)
    assert is_alive(person, spa, tokens)
    assert [each.application_id for each in world.management.users.consents(stranger.user_id)] == [spa.id]
