"""What the pages say and offer: languages, the look of an application, the way back, how long a sign-in lasts."""

from __future__ import annotations

import re
import secrets
from typing import Any

import httpx2 as httpx
import pytest

from stead import InvalidInput
from tests.support.at_a_browser import PASSWORD, Form, Person, application, callback, heading
from tests.support.authorizing import Verifier
from tests.support.waiting import eventually
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import SESSION

ORGANIZATIONS = "urn:service:scope:organizations"
HOME = '<a class="button" href="https://app.example.com/">'
GERMAN = {"Accept-Language": "de-AT, en;q=0.5"}


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


@pytest.fixture
def person(world: World) -> Person:
    return Person(world)


def language(answer: httpx.Response) -> tuple[str, str, str]:
    (tag,) = re.findall('<html lang="([^"]+)"', answer.text)
    return tag, answer.headers["Content-Language"], heading(answer)


def page_with_organizations(
    person: Person, partner: Client, count: int, **changes: Any
) -> tuple[httpx.Response, set[str]]:
    """Make a user a member of organizations, and return the consent page that offers them."""
    template = person.world.template
    organizations = {template.organization() for _ in range(count)}
    for each in organizations:
        template.member(each, person.user_id)
    person.world.caught_up()
    asked = person.authorize(partner, scope=f"openid {ORGANIZATIONS}", **changes)
    return person.follow(person.sign_in(person.follow(asked))), organizations


def picked(page: httpx.Response) -> set[str]:
    return set(re.findall(r'name="organization" value="([^"]+)"\s+checked', page.text))


def test_pages_are_in_the_language_of_the_browser(person: Person, partner: Client) -> None:
    person.browser.headers.update(GERMAN)
    page = person.follow(person.authorize(partner))
    assert language(page) == ("de", "de", "Anmelden")
    wrong = person.sign_in(page, password="wrong")
    assert "Der Name oder das Passwort stimmt nicht." in wrong.text
    consent = person.follow(person.sign_in(wrong))
    assert language(consent) == ("de", "de", "Zugriff erlauben?")
    assert "<strong><bdi>Orders &amp; &lt;more&gt;</bdi></strong> möchte für Sie handeln." in consent.text
    assert callback(person.send(consent, decision="allow"))["code"]
    assert language(person.send(consent, decision="allow")) == ("de", "de", "Bitte von vorn beginnen")
    assert language(person.browser.get("/oidc/session/end")) == ("de", "de", "Abmelden?")
    assert language(person.browser.get("/oidc/auth?client_id=unknown")) == ("de", "de", "Das hat nicht geklappt")


def test_the_language_of_the_application_stays_to_the_last_page(person: Person, partner: Client) -> None:
    """OpenID Connect Core 1.0 section 3.1.2.1; also where the request, which named it, is gone."""
    page = person.follow(person.authorize(partner, ui_locales="fr de"))
    consent = person.follow(person.sign_in(person.sign_in(page, password="wrong")))
    assert language(consent) == ("de", "de", "Zugriff erlauben?")
    assert callback(person.send(consent, decision="allow"))["code"]
    assert language(person.send(consent, decision="allow")) == ("de", "de", "Bitte von vorn beginnen")
    out = person.send(person.browser.get("/oidc/session/end?ui_locales=de"))
    assert language(out) == ("de", "de", "Sie sind abgemeldet")
    unknown = person.follow(person.authorize(partner, ui_locales="fr", prompt="login"))
    assert language(unknown) == ("en", "en", "Sign in")


def test_dead_ends_lead_back_to_the_application(person: Person, ours: Client) -> None:
    page = person.follow(person.authorize(ours))
    assert callback(person.sign_in(page))["code"]
    for answer in (person.sign_in(page), person.browser.get(str(page.url)), person.new_browser().get(str(page.url))):
        assert (answer.status_code, heading(answer), HOME in answer.text) == (400, "Start again", True)
    signed_out = person.send(person.browser.get("/oidc/session/end", params={"client_id": ours.id}))
    assert (heading(signed_out), HOME in signed_out.text) == ("You are signed out", True)
    unknown = person.browser.get("/sign-in?request=gone&client_id=unknown")
    assert (unknown.status_code, heading(unknown), 'href="https' in unknown.text) == (400, "Start again", False)


def test_a_session_outlives_the_browser_only_if_the_user_asks_for_it(person: Person, ours: Client) -> None:
    page = person.follow(person.authorize(ours))
    assert re.findall(r'<input type="checkbox" name="remember"[^>]*>', page.text)
    assert "checked" not in page.text
    lifetimes = []
    for choice in ({}, {"remember": "yes"}, {}):
        page = person.follow(person.authorize(ours, prompt="login"))
        answer = person.send(page, identifier=person.username, password=PASSWORD, **choice)
        (cookie,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(f"{SESSION}=")]
        session_id = cookie.partition("=")[2].partition(".")[0]
        ttl_s = person.world.redis.ttl(f"identity:default:session:{session_id}")
        lifetimes.append((re.findall("Max-Age=([0-9]+)", cookie), round(ttl_s / 86_400)))
    assert lifetimes == [([], 1), (["1209600"], 14), ([], 1)]


def test_another_person_can_sign_in_at_the_consent_page(world: World, person: Person, partner: Client) -> None:
    other, verifier = Person(world), Verifier()
    consent = person.follow(person.sign_in(person.follow(person.authorize(partner, verifier=verifier))))
    assert "Signed in as <strong><bdi>Ada Lovelace</bdi></strong>" in consent.text
    form = Form(consent.text).values
    assert heading(person.browser.post("/consent/switch", data={**form, "csrf_token": "x"})) == "Start again"
    page = person.follow(person.browser.post("/consent/switch", data=form))
    assert heading(page) == "Sign in"
    assert heading(person.browser.get(f"/consent?request={form['request']}")) == "Sign in"
    assert heading(person.follow(person.send(consent, decision="allow"))) == "Sign in"
    again = person.follow(person.send(page, identifier=other.username, password=PASSWORD))
    tokens = person.redeem(partner, callback(person.send(again, decision="allow"))["code"], verifier)
    me = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
    assert me.json()["sub"] == other.user_id
    assert world.management.users.consents(person.user_id) == []


def test_an_answered_request_cannot_be_switched(person: Person, partner: Client) -> None:
    consent = person.follow(person.sign_in(person.follow(person.authorize(partner))))
    form = Form(consent.text).values
    assert callback(person.send(consent, decision="allow"))["code"]
    assert heading(person.browser.post("/consent/switch", data=form)) == "Start again"


def test_the_consent_page_says_where_the_browser_goes(world: World, person: Person, partner: Client) -> None:
    consent = person.follow(person.sign_in(person.follow(person.authorize(partner))))
    assert "Then you go to <strong><bdi>app.example.com</bdi></strong>." in consent.text
    native = world.management.applications.create(
        name="Phone", type="Native", oidc_client_metadata={"redirectUris": ["com.example.phone:/cb"]}
    )
    asked = person.authorize(Client(native.id), redirect_uri="com.example.phone:/cb", prompt="consent")
    assert "Then you return to the application on this device." in person.follow(asked).text


def test_organizations_are_ticked_all_at_once_without_scripts(person: Person, partner: Client) -> None:
    page, organizations = page_with_organizations(person, partner, 3)
    assert picked(page) == set()
    page = person.send(page, decision="select-all")
    assert (heading(page), picked(page)) == ("Allow access?", organizations)
    page = person.send(page, decision="select-none")
    assert (heading(page), picked(page)) == ("Allow access?", set())
    assert person.world.management.users.consents(person.user_id) == []


def test_a_hundred_organizations_can_be_picked(person: Person, partner: Client) -> None:
    page, organizations = page_with_organizations(person, partner, 1)
    many = [*organizations, *(f"unknown{number}" for number in range(100))]
    assert callback(person.send(page, decision="allow", organization=many))["code"]
    (consent,) = person.world.management.users.consents(person.user_id)
    assert set(consent.organization_ids) == organizations


def test_a_user_without_organizations_reads_and_consents_to_nothing_about_them(
    world: World, person: Person, partner: Client
) -> None:
    permission = f"pay:{secrets.token_hex(5)}"
    world.template.permission(permission)
    asked = {"scope": f"openid {ORGANIZATIONS} {permission}"}
    page = person.follow(person.sign_in(person.follow(person.authorize(partner, **asked))))
    assert "rganization" not in page.text
    assert callback(person.send(page, decision="allow"))["code"]
    (consent,) = world.management.users.consents(person.user_id)
    assert (consent.scopes, consent.organization_ids) == (("openid",), ())
    assert callback(person.authorize(partner, **asked, prompt="none"))["code"]

    organization = world.template.organization()
    world.template.member(organization, person.user_id)
    world.caught_up()
    assert callback(person.authorize(partner, **asked, prompt="none"))["error"] == "consent_required"
    page = person.follow(person.authorize(partner, **asked))
    assert "See the organizations that you belong to" in page.text
    assert callback(person.send(page, decision="allow", organization=organization))["code"]
    (consent,) = world.management.users.consents(person.user_id)
    assert (consent.scopes, consent.organization_ids) == (("openid", ORGANIZATIONS), (organization,))


def test_organizations_that_were_not_on_the_page_are_not_consented_to(
    world: World, person: Person, partner: Client
) -> None:
    """They were joined while the page was open."""
    page = person.follow(person.sign_in(person.follow(person.authorize(partner, scope=f"openid {ORGANIZATIONS}"))))
    organization = world.template.organization()
    world.template.member(organization, person.user_id)
    world.caught_up()
    assert callback(person.send(page, decision="allow", organization=organization))["code"]
    (consent,) = world.management.users.consents(person.user_id)
    assert (consent.scopes, consent.organization_ids) == (("openid",), ())


def test_pages_show_the_logo_and_the_colour_of_the_application(world: World, person: Person) -> None:
    branded = application(world, "SPA", third_party=True)
    look = {"logoUri": "https://cdn.example.com:8443/logo.svg?a=1&b=2", "primaryColor": "#6B1D8C"}
    world.management.applications.update(branded.id, branding=look)
    eventually(lambda: "6b1d8c" in person.follow(person.authorize(branded)).text)
    page = person.follow(person.authorize(branded))
    consent = person.follow(person.sign_in(page))
    gone = person.browser.get(f"/consent?request=gone&client_id={branded.id}")
    asked = person.browser.get("/oidc/session/end", params={"client_id": branded.id})
    for shown in (page, consent, gone, asked):
        assert 'src="https://cdn.example.com:8443/logo.svg?a=1&amp;b=2"' in shown.text
        assert '<link rel="stylesheet" href="/sign-in/accent/6b1d8c">' in shown.text
        policy = shown.headers["Content-Security-Policy"].split("; ")
        assert [each for each in policy if "img-src" in each] == ["img-src 'self' https://cdn.example.com:8443"]
    style = person.browser.get("/sign-in/accent/6b1d8c")
    assert (style.status_code, style.headers["Content-Type"]) == (200, "text/css; charset=utf-8")
    assert "--accent: #6b1d8c;" in style.text
    for wrong in ("6b1d8", "6b1d8c;", "zzzzzz", "6B1D8C%0A"):
        assert person.browser.get(f"/sign-in/accent/{wrong}").status_code == 404
    with pytest.raises(InvalidInput):
        world.management.applications.update(branded.id, branding={"primaryColor": "#ffff00"})
