"""The authorization endpoint and its pages, step by step (RFC 6749 4.1, RFC 9207, OpenID Connect Core 3.1.2)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import PASSWORD, Form, Person, application, callback, heading, plant
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.waiting import eventually
from tests.support.world import MANAGEMENT_API, Client, World
from token_service.sign_in.pages.assets import PASSKEY_SCRIPT, SCRIPT


@pytest.fixture
def person(world: World) -> Person:
    return Person(world)


@pytest.fixture(scope="session")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="session")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


def test_a_person_signs_in_and_the_client_gets_a_code_that_gives_tokens(
    world: World, person: Person, spa: Client
) -> None:
    answer = person.authorize(spa)
    assert answer.headers["Location"].startswith(f"{world.stack.base_url}/sign-in?request=")
    page = person.follow(answer)
    assert (page.status_code, heading(page)) == (200, "Sign in")
    back = callback(person.sign_in(page))
    assert back.keys() == {"code", "state", "iss"}
    assert (back["state"], back["iss"]) == ("s-1", world.stack.issuer)


def test_the_code_is_bound_to_the_challenge_and_says_who_signed_in(world: World, person: Person, spa: Client) -> None:
    code, verifier = person.code(spa)
    tokens = person.redeem(spa, code, verifier)
    claims = world.claims(tokens["access_token"], f"{world.stack.issuer}/me")
    assert claims["sub"] == person.user_id
    assert tokens["refresh_token"]


def test_a_signed_in_user_is_asked_again_for_prompt_login_and_max_age_only(person: Person, spa: Client) -> None:
    person.code(spa)
    assert callback(person.authorize(spa))["code"]
    assert callback(person.authorize(spa, prompt="none"))["code"]
    assert callback(person.authorize(spa, max_age="3600"))["code"]
    for demand in ({"prompt": "login"}, {"max_age": "0"}):
        answer = person.authorize(spa, **demand)
        assert "/sign-in" in answer.headers["Location"]
        assert callback(person.sign_in(person.follow(answer)))["code"]


def test_a_form_of_another_site_begins_when_the_browser_sends_its_cookies(
    world: World, person: Person, spa: Client
) -> None:
    """OpenID Connect Core 3.1.2.1: POST; cookies with ``SameSite=Lax`` do not come with it."""
    page = person.follow(person.authorize(spa))
    assert heading(page) == "Sign in"
    arrived = person.post_authorization(spa, ui_locales="de")
    assert "Set-Cookie" not in arrived.headers, "other tabs keep their cookie"
    assert callback(person.sign_in(page))["code"]
    assert callback(person.follow(arrived))["code"], "the session is seen"
    assert heading(person.follow(arrived)) == "Bitte von vorn beginnen"
    assert callback(person.follow(person.post_authorization(spa, prompt="none")))["code"]
    assert callback(person.post_authorization(spa, prompt="none login"))["error"] == "invalid_request"
    other = Person(world)
    assert callback(other.follow(other.post_authorization(spa, prompt="none")))["error"] == "login_required"
    at_pages = person.follow(person.post_authorization(spa, prompt="login", ui_locales="de"))
    assert heading(person.follow(at_pages)) == "Anmelden"
    pending = dict(parse_qsl(urlsplit(at_pages.headers["Location"]).query))["request"]
    again = person.browser.get("/oidc/auth/continue", params={"request": pending})
    assert heading(again) == "Start again", "a request of a browser does not begin again"
    assert callback(person.sign_in(person.follow(at_pages)))["code"]


def test_prompt_none_shows_no_page(person: Person, spa: Client, partner: Client) -> None:
    """OpenID Connect Core 3.1.2.6: a foreign page learns nothing but the name of the error."""
    assert callback(person.authorize(spa, prompt="none"))["error"] == "login_required"
    person.code(spa)
    assert callback(person.authorize(partner, prompt="none"))["error"] == "consent_required"
    assert callback(person.authorize(spa, prompt="none", max_age="0"))["error"] == "login_required"


def test_spaces_around_a_name_are_stripped_and_those_around_a_password_are_not(person: Person, spa: Client) -> None:
    page = person.follow(person.authorize(spa))
    spaced = person.send(page, identifier=f"{person.username} ", password=f"{PASSWORD} ")
    assert Form(spaced.text).values["identifier"] == person.username
    assert "The name or the password is not right." in spaced.text
    assert "Enter your name and password." in person.send(spaced, identifier=" ", password=PASSWORD).text
    assert callback(person.send(spaced, identifier=f"\u00a0{person.username} ", password=PASSWORD))["code"]


def test_a_wrong_password_and_an_unknown_name_look_the_same(person: Person, spa: Client) -> None:
    page = person.follow(person.authorize(spa))
    wrong = person.sign_in(page, password="wrong")
    unknown = person.send(page, identifier="unknown user", password="wrong")
    assert wrong.status_code == unknown.status_code == 200
    alike, expected = (re.sub('(nonce|challenge)="[^"]+"', "", page.text) for page in (wrong, unknown))
    assert alike.replace(person.username, "unknown user") == expected
    assert "The name or the password is not right." in wrong.text
    assert PASSWORD not in wrong.text
    assert callback(person.sign_in(wrong))["code"]


@pytest.mark.heavy
def test_attempts_are_limited_and_the_right_password_is_refused_too(world: World, spa: Client) -> None:
    person = Person(world)
    page = person.follow(person.authorize(spa))
    for _ in range(10):
        assert person.sign_in(page, password="wrong").status_code == 200
    for password in ("wrong", PASSWORD):
        refused = person.sign_in(page, password=password)
        assert refused.status_code == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 900
        assert "Too many attempts" in refused.text
    other = Person(world)
    assert other.code(spa)


def test_a_suspended_person_cannot_sign_in_and_a_session_ends_with_the_suspension(
    world: World, person: Person, spa: Client
) -> None:
    person.code(spa)
    world.management.users.suspend(person.user_id)
    answer = person.authorize(spa)
    while "/sign-in" not in answer.headers["Location"]:
        answer = person.authorize(spa)
    refused = person.sign_in(person.follow(answer))
    assert "This account cannot sign in" in refused.text


def test_a_new_password_works_at_once(world: World, person: Person, spa: Client) -> None:
    """Every change invalidates up to the next second: several in one second lie ahead of the clock."""
    for _ in range(5):
        world.management.users.set_password(person.user_id, PASSWORD)
    assert person.redeem(spa, *person.code(spa))["refresh_token"]


@pytest.mark.heavy
def test_a_reinstated_user_signs_in_at_once(world: World, spa: Client) -> None:
    """The sign-in has seen every revision that the password check had seen."""
    for _ in range(10):
        person = Person(world)
        world.management.users.suspend(person.user_id)
        world.management.users.suspend(person.user_id, suspended=False)
        assert person.redeem(spa, *person.code(spa))["refresh_token"]


def test_cancelling_and_denying_tell_the_client(person: Person, spa: Client, partner: Client) -> None:
    page = person.follow(person.authorize(spa))
    denied = callback(person.cancel(page))
    assert (denied["error"], denied["state"]) == ("access_denied", "s-1")
    consent = person.follow(person.sign_in(person.follow(person.authorize(partner))))
    assert callback(person.send(consent, decision="deny"))["error"] == "access_denied"


def test_a_third_party_asks_for_consent_once_and_again_for_new_scopes(person: Person, partner: Client) -> None:
    asked = {"scope": "openid read:things"}
    consent = person.follow(person.sign_in(person.follow(person.authorize(partner, **asked))))
    assert heading(consent) == "Allow access?"
    assert "Orders &amp; &lt;more&gt;" in consent.text
    assert "read:things" in consent.text
    assert callback(person.send(consent, decision="allow"))["code"]
    assert callback(person.authorize(partner, **asked))["code"]
    more = person.follow(person.authorize(partner, scope="openid read:things write:things"))
    assert more.text.count('class="new"') == 1
    assert callback(person.send(more, decision="allow"))["code"]
    again = person.follow(person.authorize(partner, **asked, prompt="consent"))
    assert heading(again) == "Allow access?"


@pytest.mark.parametrize(
    "redirect_uri",
    [
        f"{REDIRECT_URI}/x",
        f"{REDIRECT_URI}?x=1",
        f"{REDIRECT_URI}#x",
        "https://app.example.com@evil.example.com/callback",
        "https://app.example.com.evil.example.com/callback",
        "https://app.example.com/%63allback",
        "javascript:alert(1)",
        "//evil.example.com",
        None,
    ],
)
def test_an_unregistered_redirect_uri_is_not_redirected_to(
    person: Person, spa: Client, redirect_uri: str | None
) -> None:
    answer = person.authorize(spa, redirect_uri=redirect_uri)
    assert answer.status_code == 400
    assert "Location" not in answer.headers
    assert heading(answer) == "This did not work"
    assert "evil.example.com" not in answer.text


@pytest.mark.parametrize("changes", [{}, {"prompt": "none"}, {"scope": ["openid", "profile"]}])
@pytest.mark.parametrize("response_mode", ["form_post", "fragment", "x"])
def test_an_unsupported_response_mode_is_not_answered_in_another(
    person: Person, spa: Client, response_mode: str, changes: dict[str, Any]
) -> None:
    """OpenID Connect Core 3.1.2.6: 400 without the parameters of an error, which the client could not read."""
    answer = person.authorize(spa, response_mode=response_mode, **changes)
    assert (answer.status_code, "Location" in answer.headers, heading(answer)) == (400, False, "This did not work")
    assert "only response_mode query is supported" in answer.text
    assert callback(person.authorize(spa, response_mode="query", prompt="none"))["error"] == "login_required"


def test_an_unknown_client_gets_a_page_and_no_redirect(world: World, person: Person) -> None:
    for client in (Client("unknown"), Client("<script>"), world.machine):
        answer = person.authorize(client)
        assert (answer.status_code, "Location" in answer.headers) == (400, False)
        assert "<script>" not in answer.text


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"request": "e30.e30."}, "request_not_supported"),
        ({"request_uri": "http://127.0.0.1:1/x"}, "request_uri_not_supported"),
        ({"resource": "https://unknown.example.com"}, "invalid_target"),
        ({"prompt": "none consent"}, "invalid_request"),
        ({"scope": ["openid", "profile"]}, "invalid_request"),
    ],
)
def test_an_error_is_reported_to_the_client(
    world: World, person: Person, spa: Client, changes: dict[str, Any], error: str
) -> None:
    back = callback(person.authorize(spa, **changes))
    assert (back["error"], back["state"], back["iss"]) == (error, "s-1", world.stack.issuer)


@pytest.mark.parametrize("third_party", [False, True])
def test_the_management_api_is_for_users_of_clients_that_may_request_it(
    world: World, person: Person, third_party: bool
) -> None:
    client = application(world, "SPA", third_party=third_party)
    resources = {"resource": [world.resource, MANAGEMENT_API]}
    back = callback(person.authorize(client, **resources))
    assert (back["error"], back["error_description"]) == (
        "invalid_target",
        "the application may not request the Management API for its users (allowManagementApi)",
    )
    world.management.applications.update(client.id, custom_client_metadata={"allowManagementApi": True})
    assert heading(person.follow(person.authorize(client, **resources))) == "Sign in"


def test_a_request_may_be_a_form_and_have_parameters_that_mean_nothing_here(
    world: World, person: Person, spa: Client
) -> None:
    """OpenID Connect Core 3.1.2.1 (both methods, unknown scopes) and 3.1.2.2 (unknown parameters are ignored)."""
    optional = {
        "scope": "openid unknown:things",
        "display": "touch",
        "claims_locales": "xx",
        "claims": "{}",
        "audience": "x",
        "y": "z",
    }
    page = person.follow(person.authorize(spa, **optional))
    assert heading(page) == "Sign in"
    form = {
        "client_id": spa.id,
        "redirect_uri": REDIRECT_URI,
        "response_type": "code",
        "code_challenge": (verifier := Verifier()).challenge,
        "code_challenge_method": "S256",
        **optional,
    }
    page = person.follow(person.browser.post("/oidc/auth", data=form))
    assert heading(page) == "Sign in"
    code = callback(person.sign_in(page))["code"]
    assert person.redeem(spa, code, verifier)["scope"] == "openid"


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "path",
    [
        *("/oidc/auth", "/sign-in", "/sign-in/cancel", "/consent", "/oidc/session/end"),
        *("/sign-in/forgotten", "/sign-in/recovery", "/sign-in/verification"),
    ],
)
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (FORM, b"identifier=" + b"a" * 200_000),
        (FORM, [b"identifier=", *[b"a" * 65_536] * 200]),  # chunked, without a Content-Length
        (FORM, b"&".join(b"p%d=1" % number for number in range(1000))),
        (FORM, b"identifier=a%00b"),
        (FORM, b"identifier=\xff"),
        ("application/json", b"{}"),
        ("", b""),
    ],
    ids=["large", "endless", "many", "NUL", "not UTF-8", "JSON", "nothing"],
)
def test_a_malformed_or_oversized_form_gets_a_page(
    world: World, path: str, content_type: str, body: bytes | list[bytes]
) -> None:
    headers = {"Content-Type": content_type, "Cookie": "identity-browser=b"}
    answer = world.stack.http.post(path, content=body, headers=headers)
    assert (answer.status_code, heading(answer)) == (400, "This did not work")


def test_a_page_opens_only_in_the_browser_that_asked(person: Person, spa: Client) -> None:
    """Session fixation and login CSRF: the link of another user opens nothing."""
    answer = person.authorize(spa)
    link = answer.headers["Location"]
    page = person.follow(answer)
    other = person.new_browser()
    assert (other.get(link).status_code, heading(other.get(link))) == (400, "Start again")
    form = Form(page.text)
    stolen = other.post(form.action, data={**form.values, "identifier": person.username, "password": PASSWORD})
    assert (stolen.status_code, "set-cookie" in stolen.headers) == (400, False)


@pytest.mark.parametrize("foreign", ['prefs={"theme":"dark"}', "a[b]=1", "n=café"])
def test_foreign_cookies_do_not_prevent_a_sign_in(person: Person, spa: Client, foreign: str) -> None:
    """Other software on this host may set any cookie."""

    def add_foreign(request: httpx.Request) -> None:
        ours = request.headers.get("Cookie")
        request.headers.encoding = "utf-8"
        request.headers["Cookie"] = f"{foreign}; {ours}" if ours else foreign

    person.browser.event_hooks = {"request": [add_foreign]}
    assert callback(person.sign_in(person.follow(person.authorize(spa))))["code"]
    assert callback(person.authorize(spa, prompt="none"))["code"]


def test_a_form_without_its_token_does_nothing(person: Person, partner: Client) -> None:
    page = person.follow(person.authorize(partner))
    for csrf_token in ("", "x", "ü"):
        assert (
            person.send(page, csrf_token=csrf_token, identifier=person.username, password=PASSWORD).status_code == 400
        )
    consent = person.follow(person.sign_in(page))
    assert person.send(consent, csrf_token="x", decision="allow").status_code == 400
    assert person.send(consent).status_code == 400
    assert callback(person.send(consent, decision="allow"))["code"]


def test_the_session_has_a_new_secret_after_every_sign_in(person: Person, spa: Client) -> None:
    person.code(spa)
    before = person.browser.cookies["identity-session"]
    person.sign_in(person.follow(person.authorize(spa, prompt="login")))
    after = person.browser.cookies["identity-session"]
    assert before != after
    thief = person.new_browser()
    plant(thief, "identity-session", before)
    person.browser = thief
    assert "/sign-in" in person.authorize(spa).headers["Location"]


def test_an_answered_page_cannot_be_answered_again(person: Person, partner: Client) -> None:
    """The back button, and a form that is sent twice."""
    page = person.follow(person.authorize(partner))
    consent = person.follow(person.sign_in(page))
    assert callback(person.send(consent, decision="allow"))["code"]
    again = person.send(consent, decision="allow")
    assert (again.status_code, heading(again)) == (400, "Start again")
    assert heading(person.browser.get(f"/sign-in?request={Form(page.text).values['request']}")) == "Start again"


def test_two_tabs_are_two_requests(person: Person, spa: Client) -> None:
    first, second = (person.follow(person.authorize(spa, state=state)) for state in ("one", "two"))
    assert callback(person.sign_in(first))["state"] == "one"
    continued = person.browser.get(f"/sign-in?request={Form(second.text).values['request']}")
    assert callback(continued)["state"] == "two"


def test_a_page_may_do_nothing_but_send_its_form(person: Person, spa: Client) -> None:
    """Clickjacking, injected scripts, leaking referrers, cached pages."""
    page = person.follow(person.authorize(spa))
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action" not in policy  # it would also judge where the application redirects to
    (nonce,) = re.findall("script-src 'nonce-([^']+)'(?:;|$)", policy)
    scripts = [f'<script src="{each.address}" nonce="{nonce}" defer></script>' for each in (SCRIPT, PASSKEY_SCRIPT)]
    assert re.findall("<script[^>]*>[^<]*</script>", page.text) == scripts
    again = person.browser.get(str(page.url))
    assert nonce not in again.headers["Content-Security-Policy"] + again.text
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"
    cookies = page.request.headers["Cookie"]
    assert "identity-browser=" in cookies


def test_signing_out_asks_unless_the_client_sends_an_id_token(world: World, person: Person, spa: Client) -> None:
    code, verifier = person.code(spa)
    form = {
        "grant_type": "authorization_code",
        "client_id": spa.id,
        "code": code,
        "redirect_uri": REDIRECT_URI,
        "code_verifier": verifier.secret,
    }
    tokens = world.stack.token_request(form).json()
    asked = person.browser.get("/oidc/session/end")
    assert (asked.status_code, heading(asked)) == (200, "Sign out?")
    assert callback(person.authorize(spa))["code"]
    target = f"{REDIRECT_URI}/bye"
    parameters = {"id_token_hint": tokens["id_token"], "post_logout_redirect_uri": target, "state": "x"}
    done = person.browser.get("/oidc/session/end", params=parameters)
    assert callback(done, target) == {"state": "x"}
    assert "/sign-in" in person.authorize(spa).headers["Location"]
    refresh = {"grant_type": "refresh_token", "client_id": spa.id, "refresh_token": tokens["refresh_token"]}
    assert world.stack.token_request(refresh).json()["error"] == "invalid_grant"


def test_signing_out_redirects_to_registered_addresses_only(person: Person, spa: Client) -> None:
    for target in ("https://evil.example.com", REDIRECT_URI):
        answer = person.browser.get(
            "/oidc/session/end", params={"client_id": spa.id, "post_logout_redirect_uri": target}
        )
        assert (answer.status_code, "Location" in answer.headers) == (400, False)


def test_the_form_of_the_sign_out_page_signs_out(person: Person, spa: Client) -> None:
    person.code(spa)
    page = person.browser.get("/oidc/session/end")
    forged = person.send(page, csrf_token="x")
    assert heading(forged) == "Sign out?"
    assert heading(person.send(page)) == "You are signed out"
    assert "/sign-in" in person.authorize(spa).headers["Location"]


def test_a_page_of_a_deleted_application_says_so(world: World, person: Person, spa: Client) -> None:
    """Also to a user who is signed in already: there is no redirect to its addresses any more."""
    person.code(spa)
    gone = application(world, "SPA")
    answer = person.authorize(gone, prompt="consent")
    world.management.applications.delete(gone.id)
    eventually(lambda: person.follow(answer).status_code != 200)  # the event is on its way
    page = person.follow(answer)
    assert (page.status_code, "the application was deleted" in page.text) == (400, True)
