"""Forged forms, fixed sessions and frames: what another site can make the browser of a victim do (RFC 9700)."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlencode, urlsplit

import httpx2 as httpx
import pytest
from markupsafe import escape

from identity_common.identifiers import new_id
from identity_common.pages.cookies import Cookies
from tests.support.at_a_browser import PASSWORD, Form, Person, application, callback, heading, is_signed_in, plant
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import SESSION


class TestForgedForms:
    """Cross-site request forgery: the browser is the victim's, the form is not ours."""

    def test_the_victim_is_not_signed_in_as_the_attacker(self, victim: Person, attacker: Person, ours: Client) -> None:
        """Login CSRF: the attacker's page, request, token, name and password, sent by the victim's browser."""
        victim.follow(victim.authorize(ours))
        form = Form(attacker.follow(attacker.authorize(ours)).text)
        credentials = {"identifier": attacker.username, "password": PASSWORD}
        forged = victim.browser.post(form.action, data={**form.values, **credentials})
        assert (forged.status_code, heading(forged)) == (400, "Start again")
        assert SESSION not in victim.browser.cookies
        assert callback(victim.authorize(ours, prompt="none"))["error"] == "login_required"

    def test_a_token_is_good_for_its_own_request_only(self, victim: Person, partner: Client) -> None:
        first, second = (Form(victim.follow(victim.authorize(partner)).text).values for _ in range(2))
        crossed = {"request": first["request"], "csrf_token": second["csrf_token"]}
        credentials = {"identifier": victim.username, "password": PASSWORD}
        for path, fields in (("/sign-in", credentials), ("/sign-in/cancel", {}), ("/consent", {"decision": "allow"})):
            assert victim.browser.post(path, data={**crossed, **fields}).status_code == 400
        assert SESSION not in victim.browser.cookies

    @pytest.mark.parametrize("content_type", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
    def test_only_a_form_is_a_consent(self, world: World, victim: Person, partner: Client, content_type: str) -> None:
        """Content types that other sites can send without a preflight, and those that they cannot."""
        consent = victim.follow(victim.sign_in(victim.follow(victim.authorize(partner))))
        body = urlencode({**Form(consent.text).values, "decision": "allow"})
        forged = victim.browser.post("/consent", content=body, headers={"Content-Type": content_type})
        assert (forged.status_code, "Location" in forged.headers) == (400, False)
        assert world.management.users.consents(victim.user_id) == []

    def test_a_consent_is_never_given_by_following_a_link(self, world: World, victim: Person, partner: Client) -> None:
        consent = victim.follow(victim.sign_in(victim.follow(victim.authorize(partner))))
        fields = {**Form(consent.text).values, "decision": "allow"}
        assert heading(victim.browser.get("/consent", params=fields)) == "Allow access?"
        assert world.management.users.consents(victim.user_id) == []

    def test_the_attacker_cannot_sign_the_victim_out(
        self, world: World, victim: Person, attacker: Person, ours: Client
    ) -> None:
        """A link, a form without our token, the attacker's own ID token, one that names no session."""
        victim.code(ours)
        own = attacker.redeem(ours, *attacker.code(ours))["id_token"]
        forged = world.forger.sign({"sub": victim.user_id, "aud": ours.id}, typ="JWT")
        end = "/oidc/session/end"
        for parameters in ({}, {"client_id": ours.id}, {"id_token_hint": own}, {"id_token_hint": forged}):
            assert heading(victim.browser.get(end, params=parameters)) == "Sign out?"
            assert heading(victim.browser.post(end, data={**parameters, "decision": "sign-out"})) == "Sign out?"
        token = Form(attacker.browser.get(end).text).values["csrf_token"]
        assert heading(victim.browser.post(end, data={"csrf_token": token})) == "Sign out?"
        assert is_signed_in(victim, ours)

    def test_cookies_do_not_travel_with_other_sites_requests(self, victim: Person, ours: Client) -> None:
        answer = victim.authorize(ours)
        signed_in = victim.sign_in(victim.follow(answer))
        for cookie in (answer.headers["Set-Cookie"], signed_in.headers["Set-Cookie"]):
            attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
            assert {"httponly", "samesite=lax", "path=/"} <= attributes
            assert not any(attribute.startswith("domain") for attribute in attributes)

    def test_on_https_a_cookie_is_of_this_host_alone(self) -> None:
        """RFC 6265bis section 4.1.3.2: a neighbouring subdomain cannot plant a cookie with this prefix."""
        cookie = Cookies(secure=True).set(SESSION, "secret").to_header(header="")
        assert cookie.startswith(f"__Host-{SESSION}=secret;")
        assert "secure" in cookie.lower()
        assert Cookies(secure=True).read([(b"cookie", f"{SESSION}=planted".encode())], SESSION) is None


class TestSessionFixation:
    """What an attacker has put into the browser before the victim signs in."""

    def test_an_invented_session_is_not_a_session(self, victim: Person, ours: Client) -> None:
        planted = "a" * 43
        plant(victim.browser, SESSION, planted)
        victim.code(ours)
        thief = victim.new_browser()
        plant(thief, SESSION, planted)
        victim.browser = thief
        assert not is_signed_in(victim, ours)

    def test_the_attackers_session_does_not_become_the_victims(
        self, world: World, victim: Person, attacker: Person, ours: Client
    ) -> None:
        """Signed in over another's session: the secret is new, and the old one is over."""
        attacker.code(ours)
        planted = attacker.browser.cookies[SESSION]
        plant(victim.browser, SESSION, planted)
        code, verifier = victim.code(ours, prompt="login")
        claims = world.claims(victim.redeem(ours, code, verifier)["access_token"], f"{world.stack.issuer}/me")
        assert claims["sub"] == victim.user_id
        assert not is_signed_in(attacker, ours)

    def test_a_planted_browser_cookie_does_not_let_the_attacker_join_the_sign_in(
        self, victim: Person, attacker: Person, partner: Client
    ) -> None:
        """The attacker knows the cookie that binds a request to a browser, and opens the request meanwhile."""
        link = attacker.authorize(partner).headers["Location"]
        for name, value in attacker.browser.cookies.items():
            plant(victim.browser, name, value)
        consent = victim.follow(victim.sign_in(victim.browser.get(link)))
        assert heading(consent) == "Allow access?"
        assert heading(attacker.browser.get(link)) == "Sign in"
        allowed = attacker.browser.post("/consent", data={**Form(consent.text).values, "decision": "allow"})
        assert urlsplit(allowed.headers["Location"]).path == "/sign-in"
        assert SESSION not in attacker.browser.cookies


class TestFrames:
    """Clickjacking (RFC 9700 section 4.16)."""

    def test_no_page_of_any_status_can_be_framed(self, victim: Person, ours: Client, partner: Client) -> None:
        sign_in = victim.follow(victim.authorize(partner))
        wrong = victim.sign_in(sign_in, password="wrong")
        consent = victim.follow(victim.sign_in(sign_in))
        sign_out = victim.browser.get("/oidc/session/end")
        pages = [
            sign_in,
            wrong,
            consent,
            sign_out,
            victim.send(sign_out),
            victim.authorize(ours, redirect_uri="https://evil.example.com"),
            victim.browser.get("/sign-in?request=nobody's"),
            victim.browser.get("/oidc/session/end?post_logout_redirect_uri=https://evil.example.com"),
        ]
        for page in pages:
            assert page.headers["Content-Type"].startswith("text/html")
            assert page.headers["X-Frame-Options"] == "DENY"
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"].split("; ")


class Targets(HTMLParser):
    """Where the forms of a page are sent, by ``action`` or ``formaction``."""

    def __init__(self, page: httpx.Response) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in {"action", "formaction"}]


class TestInjectedForms:
    """No policy restricts where the forms of these pages are sent (decision 30), so markup must not get into them."""

    def test_whatever_things_are_called_forms_are_sent_to_us(self, world: World, victim: Person) -> None:
        hostile = "'\"></textarea></p></form><form action=//evil.example.com><button formaction=//evil.example.com>"
        name = hostile[:128]
        scope, permission = f"read:{new_id()}", f"pay:{new_id()}"
        api = world.management
        api.users.update(victim.user_id, name=name)
        resource = api.resources.create(name, f"https://{new_id()}.example.com")
        api.resources.create_scope(resource.id, scope, hostile)
        api.organization_permissions.create(permission, hostile)
        for _ in range(3):
            organization = api.organizations.create(name).id
            api.organizations.add_users(organization, [victim.user_id])
        world.caught_up()
        client = application(world, "SPA", third_party=True, name=name)
        asked = victim.authorize(
            client,
            scope=f"openid {scope} urn:service:scope:organizations {permission}",
            resource=resource.indicator,
            login_hint=hostile,
            ui_locales=hostile,
        )
        sign_in = victim.follow(asked)
        wrong = victim.send(sign_in, identifier=hostile, password="wrong")
        consent = victim.follow(victim.sign_in(sign_in))
        account = victim.follow(victim.authorize(client, prompt="select_account"))
        leaving = {"client_id": client.id, "post_logout_redirect_uri": f"{REDIRECT_URI}/bye", "state": hostile}
        sign_out = victim.browser.get("/oidc/session/end", params=leaving)
        pages = [sign_in, wrong, account, consent, sign_out]
        headings = ["Sign in", "Sign in", "Choose an account", "Allow access?", "Sign out?"]
        assert [heading(page) for page in pages] == headings
        assert all(str(escape(name)) in page.text for page in pages)
        at = f"?client_id={client.id}"
        assert [Targets(page).found for page in pages] == [
            [f"/sign-in{at}", f"/sign-in/passkey{at}", f"/sign-in/cancel{at}"],
            [f"/sign-in{at}", f"/sign-in/passkey{at}", f"/sign-in/cancel{at}"],
            [f"/sign-in/account{at}"],
            [f"/consent{at}", f"/consent/switch{at}", f"/consent{at}"],
            ["/oidc/session/end"],
        ]
