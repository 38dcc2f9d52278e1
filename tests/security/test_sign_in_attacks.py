"""Attacks on people who sign in, and on their applications (RFC 9700, RFC 9207).

The tests use browsers, two people and the SDK's client. What the token endpoint refuses by itself, from any client, is
in the protocol tests: replayed and raced codes and refresh tokens, those of another client, wrong verifiers, scopes
beyond the consent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2 as httpx
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from identity_common.pages.cookies import Cookies
from stead import IdentityClient, OAuthError, SignInRequired
from tests.support.at_a_browser import PASSWORD, Form, Person, application, callback, heading
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.world import Client, World, outcome
from token_service.sign_in.pages.assets import SCRIPT
from token_service.sign_in.pages.cookies import SESSION

ORGANIZATIONS = "urn:service:scope:organizations"
MARKUP = "\"'></title><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"
MARKUP_IN_A_NAME = "<svg/onload=alert(1)>"
"""Without the characters that no scope may have."""


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


@pytest.fixture(scope="module", params=["SPA", "Native", "Traditional"])
def client(world: World, request: pytest.FixtureRequest) -> Client:
    """An application of every kind that people sign in to."""
    return application(world, request.param)


@pytest.fixture(scope="module")
def native(world: World) -> Client:
    """An application on people's own machines."""
    metadata = {"redirectUris": ["http://127.0.0.1/cb"]}
    created = world.management.applications.create(name="Native", type="Native", oidc_client_metadata=metadata)
    return Client(created.id)


@pytest.fixture
def victim(world: World) -> Person:
    return Person(world)


@pytest.fixture(scope="module")
def signed_in(world: World, ours: Client) -> Person:
    """A person who is signed in, so that a code would be issued at once."""
    person = Person(world)
    person.code(ours)
    return person


@pytest.fixture
def attacker(world: World) -> Person:
    return Person(world)


def sdk_client(world: World, client: Client) -> IdentityClient:
    return IdentityClient(world.stack.base_url, client.id, scopes=["read:things"], resources=[world.resource])


def with_changes(url: str, **changes: str | None) -> str:
    """Return a URL with other parameters in its query; None leaves one out."""
    address, _, query = url.partition("?")
    parameters = {**dict(parse_qsl(query)), **changes}
    return f"{address}?{urlencode({name: value for name, value in parameters.items() if value is not None})}"


def is_signed_in(person: Person, client: Client) -> bool:
    """Tell whether the browser gets a code without being asked anything."""
    return "code" in callback(person.authorize(client, prompt="none"))


class TestMixUp:
    """RFC 9700 section 4.4: an answer of one server is taken for that of another."""

    def test_every_answer_names_its_issuer(self, world: World, victim: Person, ours: Client, partner: Client) -> None:
        """RFC 9207: codes and errors alike."""
        sign_in = victim.follow(victim.authorize(ours))
        answers = [
            victim.authorize(ours, prompt="none"),
            victim.authorize(ours, max_age="soon"),
            victim.cancel(sign_in),
            victim.sign_in(victim.follow(victim.authorize(ours))),
            victim.authorize(ours),
            victim.send(victim.follow(victim.authorize(partner)), decision="deny"),
            victim.send(victim.follow(victim.authorize(partner)), decision="allow"),
        ]
        assert [callback(answer)["iss"] for answer in answers] == [world.stack.issuer] * len(answers)

    @pytest.mark.parametrize("issuer", [None, "", "https://evil.example.com/oidc", "with a slash"])
    def test_an_answer_of_another_server_is_refused(
        self, world: World, victim: Person, ours: Client, issuer: str | None
    ) -> None:
        client = sdk_client(world, ours)
        for prompt in (None, "none"):
            back = victim.go(client.sign_in_url(REDIRECT_URI, prompt))
            wrong = f"{world.stack.issuer}/" if issuer == "with a slash" else issuer
            with pytest.raises(SignInRequired) as refused:
                client.handle_callback(with_changes(back, iss=wrong))
            assert refused.value.reason == "wrong_issuer"
            assert not client.is_signed_in()


class TestCodeInjection:
    """RFC 9700 section 4.5: the victim's code in the attacker's session, and the attacker's in the victim's."""

    def test_the_attackers_code_does_not_sign_the_victim_in_as_the_attacker(
        self, world: World, victim: Person, attacker: Person, ours: Client
    ) -> None:
        client = sdk_client(world, ours)
        expected = victim.go(client.sign_in_url(REDIRECT_URI))
        code, _ = attacker.code(ours)
        with pytest.raises(OAuthError) as refused:
            client.handle_callback(with_changes(expected, code=code))
        assert refused.value.error == "invalid_grant"
        assert not client.is_signed_in()

    def test_a_stolen_code_is_useless_in_the_attackers_own_session(
        self, world: World, victim: Person, attacker: Person, ours: Client
    ) -> None:
        stolen = victim.go(sdk_client(world, ours).sign_in_url(REDIRECT_URI))
        client = sdk_client(world, ours)
        own = dict(parse_qsl(urlsplit(attacker.go(client.sign_in_url(REDIRECT_URI))).query))
        with pytest.raises(SignInRequired) as unknown:
            client.handle_callback(stolen)
        assert unknown.value.reason == "unknown_state"
        with pytest.raises(OAuthError) as refused:
            client.handle_callback(with_changes(stolen, state=own["state"]))
        assert refused.value.error == "invalid_grant"
        assert not client.is_signed_in()

    def test_a_code_from_the_history_is_refused_and_its_tokens_are_revoked(
        self, world: World, victim: Person, ours: Client
    ) -> None:
        """RFC 6749 section 4.1.2: a second use revokes the tokens of the first."""
        code, verifier = victim.code(ours)
        tokens = victim.redeem(ours, code, verifier)
        form = {"grant_type": "authorization_code", "client_id": ours.id, "code": code, "redirect_uri": REDIRECT_URI}
        replayed = world.stack.token_request({**form, "code_verifier": verifier.secret})
        assert outcome(replayed) == (400, "invalid_grant")
        refresh = {"grant_type": "refresh_token", "client_id": ours.id, "refresh_token": tokens["refresh_token"]}
        assert outcome(world.stack.token_request(refresh)) == (400, "invalid_grant")


class TestPkceDowngrade:
    """RFC 9700 section 4.8.2, CVE-2024-23647: only settings exempt a client from PKCE; a request never does."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"code_challenge": None, "code_challenge_method": None},
            {"code_challenge": None},
            {"code_challenge": ""},
            {"code_challenge_method": None},
            {"code_challenge_method": "plain"},
            {"code_challenge_method": "s256"},
            {"code_challenge_method": ["S256", "plain"]},
            {"code_challenge": [Verifier().challenge, Verifier().challenge]},
        ],
    )
    def test_there_is_no_code_without_s256(self, signed_in: Person, client: Client, changes: dict[str, Any]) -> None:
        assert "code" in callback(signed_in.authorize(client))
        back = callback(signed_in.authorize(client, **changes))
        assert (back["error"], "code" in back) == ("invalid_request", False)

    def test_a_stripped_challenge_gives_a_code_that_the_verifier_does_not_redeem(
        self, world: World, signed_in: Person
    ) -> None:
        """A client that uses PKCE although its settings exempt it, and an attacker who removes its challenge."""
        client = application(world, "Traditional", custom_client_metadata={"requirePkce": False})
        created = world.management.applications.create_secret(client.id, "first")
        stripped: dict[str, Any] = {"code_challenge": None, "code_challenge_method": None}

        def redeem(**verifier: str) -> tuple[int, str | None]:
            form = {
                "grant_type": "authorization_code",
                "code": callback(signed_in.authorize(client, **stripped))["code"],
                "redirect_uri": REDIRECT_URI,
                **verifier,
            }
            return outcome(world.stack.token_request(form, auth=(client.id, created.value)))

        assert redeem(code_verifier=Verifier().secret) == (400, "invalid_grant")
        assert redeem() == (200, None)
        back = callback(signed_in.authorize(client, **stripped, nonce=None))
        assert (back["error"], "code" in back) == ("invalid_request", False)


class TestRedirectUris:
    """RFC 9700 section 4.1: where a code may go."""

    @pytest.mark.parametrize(
        "redirect_uri",
        [
            "https://app.example.com/callback/",
            "https://app.example.com/callback/../evil",
            "https://app.example.com/callback%2f..%2fevil",
            "https://app.example.com/callback%23",
            "https://app.example.com/callback%00",
            "https://app.example.com/callback\t",
            "https://app.example.com/callback;x",
            "https://app.example.com/CALLBACK",
            "https://APP.example.com/callback",
            "https://app.example.com:443/callback",
            "https://app.example.com./callback",
            "https://app.example.com\\@evil.example.com/callback",
            "https://app.example.com%40evil.example.com/callback",
            "https://evil.example.com/?https://app.example.com/callback",
            "https://evil.example.com#https://app.example.com/callback",
            "https://app。example.com/callback",
            "https:app.example.com/callback",
            "http://app.example.com/callback",
            " https://app.example.com/callback",
            "https://app.example.com/callback https://evil.example.com",
            "data:text/html,x",
            "",
        ],
    )
    @pytest.mark.parametrize("prompt", ["login", "none"])
    def test_neither_a_code_nor_an_error_goes_anywhere_else(
        self, signed_in: Person, ours: Client, redirect_uri: str, prompt: str
    ) -> None:
        answer = signed_in.authorize(ours, redirect_uri=redirect_uri, prompt=prompt)
        assert (answer.status_code, "Location" in answer.headers) == (400, False)
        assert heading(answer) == "This did not work"

    @pytest.mark.parametrize("evil_first", [True, False])
    def test_two_redirect_uris_are_refused(self, signed_in: Person, ours: Client, evil_first: bool) -> None:
        both = ["https://evil.example.com/", REDIRECT_URI]
        answer = signed_in.authorize(ours, redirect_uri=both if evil_first else both[::-1])
        assert (answer.status_code, "Location" in answer.headers) == (400, False)

    @pytest.mark.parametrize(
        "redirect_uri",
        [
            "http://127.0.0.1:1@evil.example.com/cb",
            "http://127.0.0.1:1.evil.example.com/cb",
            "http://127.0.0.1:1#@evil.example.com/cb",
            "http://127.0.0.1:1\\@evil.example.com/cb",
            "http://127.0.0.1:1/cb?x=1",
            "http://127.0.0.1:1/../cb",
            "http://127.0.0.1:99999/cb",
            "http://127.0.0.1:/cb",
            "http://127.0.0.2:1/cb",
            "http://localhost:1/cb",
            "http://0.0.0.0:1/cb",
            "http://[::1]:1/cb",
            "https://127.0.0.1:1/cb",
        ],
    )
    def test_only_the_loopback_port_is_free(self, signed_in: Person, native: Client, redirect_uri: str) -> None:
        """RFC 8252 section 7.3: only the port of a native application's loopback address."""
        good = signed_in.authorize(native, redirect_uri="http://127.0.0.1:49152/cb")
        assert good.headers["Location"].startswith("http://127.0.0.1:49152/cb?code=")
        answer = signed_in.authorize(native, redirect_uri=redirect_uri)
        assert (answer.status_code, "Location" in answer.headers) == (400, False)


class TestOpenRedirects:
    """RFC 9700 section 4.11: the service never redirects to an address of the attacker's choice."""

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "evil.example.com"},
            {"X-Forwarded-Host": "evil.example.com", "X-Forwarded-Proto": "https"},
            {"Forwarded": "host=evil.example.com;proto=https"},
            {"X-Original-URL": "//evil.example.com/"},
        ],
    )
    def test_our_own_addresses_come_from_the_settings(
        self, world: World, victim: Person, ours: Client, headers: dict[str, str]
    ) -> None:
        """GHSA-7wfc-4796-gmg5."""
        victim.browser.headers.update(headers)
        answer = victim.authorize(ours)
        assert answer.headers["Location"].startswith(f"{world.stack.base_url}/sign-in?")

    def test_the_pages_ignore_an_address_in_a_form(self, victim: Person, partner: Client) -> None:
        """The redirect is that of the validated request, whatever else is sent."""
        evil = dict.fromkeys(("redirect_uri", "return_to", "next", "continue", "url"), "https://evil.example.com/")
        page = victim.follow(victim.authorize(partner))
        consent = victim.follow(victim.send(page, identifier=victim.username, password=PASSWORD, **evil))
        assert "code" in callback(victim.send(consent, decision="allow", **evil))

    @pytest.mark.parametrize(
        "target",
        [
            f"{REDIRECT_URI}/bye/",
            f"{REDIRECT_URI}/bye?next=https://evil.example.com",
            f"{REDIRECT_URI}/bye#x",
            f"{REDIRECT_URI}/bye%2e",
            "https://app.example.com@evil.example.com/callback/bye",
            "https://app.example.com.evil.example.com/callback/bye",
            "//evil.example.com",
            "javascript:alert(1)",
        ],
    )
    def test_signing_out_does_not_redirect_elsewhere(
        self, victim: Person, ours: Client, partner: Client, target: str
    ) -> None:
        """With a hint, without one, and with a form whose fields were changed."""
        id_token = victim.redeem(ours, *victim.code(ours))["id_token"]
        end = "/oidc/session/end"
        page = victim.browser.get(end, params={"client_id": ours.id, "post_logout_redirect_uri": f"{REDIRECT_URI}/bye"})
        answers = [
            victim.browser.get(end, params={"client_id": ours.id, "post_logout_redirect_uri": target}),
            victim.browser.get(end, params={"id_token_hint": id_token, "post_logout_redirect_uri": target}),
            victim.browser.get(end, params={"post_logout_redirect_uri": f"{REDIRECT_URI}/bye"}),
            victim.browser.get(end, params={"client_id": partner.id, "id_token_hint": id_token}),
            victim.send(page, post_logout_redirect_uri=target),
        ]
        assert [(answer.status_code, "Location" in answer.headers) for answer in answers] == [(400, False)] * 5
        assert is_signed_in(victim, ours)


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
        victim.browser.cookies.set(SESSION, planted, domain="127.0.0.1")
        victim.code(ours)
        thief = victim.new_browser()
        thief.cookies.set(SESSION, planted, domain="127.0.0.1")
        victim.browser = thief
        assert not is_signed_in(victim, ours)

    def test_the_attackers_session_does_not_become_the_victims(
        self, world: World, victim: Person, attacker: Person, ours: Client
    ) -> None:
        """Signed in over another's session: the secret is new, and the old one is over."""
        attacker.code(ours)
        planted = attacker.browser.cookies[SESSION]
        victim.browser.cookies.set(SESSION, planted, domain="127.0.0.1")
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
            victim.browser.cookies.set(name, value, domain="127.0.0.1")
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


class TestSuspendedMeanwhile:
    """Each step of a sign-in judges the account again (CVE-2026-16103)."""

    @pytest.mark.parametrize("end", ["suspend", "delete"])
    def test_a_consent_after_the_account_ended_gives_no_code(
        self, world: World, victim: Person, partner: Client, end: str
    ) -> None:
        consent = victim.follow(victim.sign_in(victim.follow(victim.authorize(partner))))
        getattr(world.management.users, end)(victim.user_id)
        world.caught_up()
        answer = victim.browser.post("/consent", data={**Form(consent.text).values, "decision": "allow"})
        assert "code=" not in answer.headers.get("Location", "")


class TestRaces:
    """The same request many times at once."""

    def raced(self, person: Person, path: str, fields: dict[str, Any]) -> list[httpx.Response]:
        """Send a form twelve times at once from one browser; repeat those that the service was too busy to judge."""

        def send(_: int) -> httpx.Response:
            answer = person.browser.post(path, data=fields)
            while answer.status_code == 503:
                answer = person.browser.post(path, data=fields)
            return answer

        with ThreadPoolExecutor(12) as threads:
            return list(threads.map(send, range(12)))

    def codes(self, answers: list[httpx.Response]) -> int:
        return sum("code=" in answer.headers.get("Location", "") for answer in answers)

    def test_one_consent_gives_one_code(self, victim: Person, partner: Client) -> None:
        consent = victim.follow(victim.sign_in(victim.follow(victim.authorize(partner))))
        answers = self.raced(victim, "/consent", {**Form(consent.text).values, "decision": "allow"})
        assert self.codes(answers) == 1
        assert {answer.status_code for answer in answers} == {303, 400}

    def test_one_sign_in_gives_one_code(self, victim: Person, ours: Client) -> None:
        form = Form(victim.follow(victim.authorize(ours)).text).values
        answers = self.raced(victim, "/sign-in", {**form, "identifier": victim.username, "password": PASSWORD})
        assert self.codes(answers) == 1

    def test_concurrent_attempts_do_not_get_round_the_limit(self, victim: Person, ours: Client) -> None:
        """CVE-2023-47111; and every spelling of an account's name or number shares one limit."""
        form = Form(victim.follow(victim.authorize(ours)).text).values
        number = str(secrets.randbelow(10**12)).zfill(12)
        for spellings in ((victim.username, victim.username.upper()), (f"+{number}", number)):
            statuses = [
                answer.status_code
                for name in spellings
                for answer in self.raced(victim, "/sign-in", {**form, "identifier": name, "password": "wrong"})
            ]
            assert (statuses.count(200), statuses.count(429)) == (10, 14), spellings


class TestIdTokens:
    """An ID token says who signed in; it opens nothing (RFC 8725 section 3.12)."""

    def test_it_is_accepted_nowhere(self, world: World, victim: Person, ours: Client) -> None:
        id_token = victim.redeem(ours, *victim.code(ours))["id_token"]
        bearer = {"Authorization": f"Bearer {id_token}"}
        scopes = f"/api/organizations/{world.organization}/users/{victim.user_id}/scopes"
        for path in ("/oidc/me", "/api/users", scopes):
            assert world.stack.http.get(path, headers=bearer).status_code == 401, path
        asked = world.stack.http.post(
            "/oidc/token/introspection", data={"token": id_token}, auth=world.traditional.basic
        )
        assert asked.json() == {"active": False}
        assert outcome(world.exchange(id_token)) == (400, "invalid_request")
        acting = {"actor_token": id_token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
        assert outcome(world.exchange(world.subject_token(), **acting)) == (400, "invalid_request")
        refresh = {"grant_type": "refresh_token", "client_id": ours.id, "refresh_token": id_token}
        assert outcome(world.stack.token_request(refresh)) == (400, "invalid_grant")


class TestMoreThanWasAgreedTo:
    """A partner gets only what the person has seen and allowed."""

    def test_nothing_is_added_after_the_page_was_shown(self, world: World, victim: Person, partner: Client) -> None:
        """Fields that the form does not have, and an organization that the person does not belong to."""
        world.template.member(world.template.organization(), victim.user_id)
        world.caught_up()
        verifier = Verifier()
        asked = {"scope": f"openid offline_access read:things {ORGANIZATIONS}", "verifier": verifier}
        consent = victim.follow(victim.sign_in(victim.follow(victim.authorize(partner, **asked))))
        more = {
            "scope": "openid email write:things",
            "resource": world.other_resource,
            "organization": world.organization,
        }
        code = callback(victim.send(consent, decision="allow", **more))["code"]
        (agreed,) = world.management.users.consents(victim.user_id)
        assert (agreed.organization_ids, [each.scopes for each in agreed.resources]) == ((), [("read:things",)])
        tokens = victim.redeem(partner, code, verifier)
        assert set(tokens["scope"].split()) <= {"openid", "offline_access", ORGANIZATIONS}
        refresh = {"grant_type": "refresh_token", "client_id": partner.id, "refresh_token": tokens["refresh_token"]}
        for changes, error in (
            ({"scope": "openid email"}, (400, "invalid_scope")),
            ({"resource": world.resource, "scope": "write:things"}, (400, "invalid_scope")),
            ({"resource": world.other_resource}, (400, "invalid_target")),
            ({"organization_id": world.organization}, (403, "access_denied")),
        ):
            assert outcome(world.stack.token_request({**refresh, **changes})) == error

    def test_nothing_is_added_without_a_page(self, victim: Person, partner: Client) -> None:
        """What was allowed once does not let more through."""
        consent = victim.follow(victim.sign_in(victim.follow(victim.authorize(partner, scope="openid read:things"))))
        assert "code" in callback(victim.send(consent, decision="allow"))
        back = callback(victim.authorize(partner, scope="openid read:things email", prompt="none"))
        assert (back["error"], "code" in back) == ("consent_required", False)
        assert heading(victim.follow(victim.authorize(partner, scope="openid read:things email"))) == "Allow access?"


class TestSilence:
    """``prompt=none`` tells a page nothing but the name of an error (OpenID Connect Core section 3.1.2.6)."""

    def test_it_says_and_leaves_nothing(self, world: World, victim: Person, ours: Client, partner: Client) -> None:
        """No cookie, no pending request and no name, for a user who is signed in and for one who is guessed."""
        errors = {
            tuple(sorted(callback(victim.authorize(ours, prompt="none", login_hint=hint)).items()))
            for hint in (victim.username, "unknown user")
        }
        assert len(errors) == 1
        assert not victim.browser.cookies
        victim.code(ours)
        waiting = set(world.redis.scan_iter("identity:*:pending-authorization:*"))
        silent = victim.authorize(partner, prompt="none")
        assert "Set-Cookie" not in silent.headers
        assert silent.text == ""
        back = callback(silent)
        assert back == {
            "error": "consent_required",
            "error_description": back["error_description"],
            "state": "s-1",
            "iss": world.stack.issuer,
        }
        assert not {victim.user_id, victim.username, "Ada"} & set(back["error_description"].split())
        assert set(world.redis.scan_iter("identity:*:pending-authorization:*")) <= waiting

    def test_a_suspended_user_is_not_told_from_an_anonymous_one(
        self, world: World, victim: Person, ours: Client
    ) -> None:
        """A silent request does not reveal a suspension."""
        anonymous = callback(Person(world).authorize(ours, prompt="none"))
        victim.code(ours)
        world.management.users.suspend(victim.user_id)
        back = callback(victim.authorize(ours, prompt="none"))
        while "code" in back:
            back = callback(victim.authorize(ours, prompt="none"))
        assert back == anonymous


@pytest.fixture(scope="module")
def named(world: World) -> Callable[[Person], dict[str, str]]:
    """Put markup into every name; return a function that gives the parameters to request it all."""
    management = world.management
    resource = management.resources.create(MARKUP, "https://markup.example.com/api")
    management.resources.create_scope(resource.id, "read:markup", MARKUP)
    management.resources.create_scope(resource.id, MARKUP_IN_A_NAME)
    management.organization_permissions.create("pay:markup", MARKUP)
    management.organization_permissions.create(f"{MARKUP_IN_A_NAME}2")
    organization = management.organizations.create(MARKUP)

    def of(person: Person) -> dict[str, str]:
        management.users.update(person.user_id, name=MARKUP)
        management.organizations.add_users(organization.id, [person.user_id])
        return {
            "resource": "https://markup.example.com/api",
            "scope": f"openid read:markup pay:markup {MARKUP_IN_A_NAME} {MARKUP_IN_A_NAME}2 {ORGANIZATIONS}",
            "state": MARKUP,
            "nonce": MARKUP,
            "login_hint": MARKUP,
        }

    return of


class Elements(HTMLParser):
    """What a browser finds on a page."""

    def __init__(self, page: httpx.Response) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.scripts: list[dict[str, str | None]] = []
        self.attributes: set[str] = set()
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs))
        else:
            self.tags.add(tag)
            self.attributes |= {name for name, _ in attrs}


class TestMarkup:
    """HTML in every field that a person, an administrator or an application can name."""

    OURS = frozenset({"html", "head", "meta", "title", "link", "body", "main", "h1", "h2", "p", "strong", "ul", "li"})
    CONTROLS = frozenset({"section", "code", "span", "form", "input", "label", "button", "fieldset", "legend"})
    COMFORT = frozenset({"div", "a", "br", "svg", "path", "circle"})

    def harmless(self, page: httpx.Response) -> None:
        elements = Elements(page)
        assert elements.tags <= self.OURS | self.CONTROLS | self.COMFORT
        assert [each.get("src") for each in elements.scripts] in ([], [SCRIPT.address])
        assert not {name for name in elements.attributes if name.startswith("on") or name in {"style", "src"}}
        assert "alert(1)>{{7*7}}" not in page.text

    def test_it_is_text_on_every_page(
        self, world: World, victim: Person, named: Callable[[Person], dict[str, str]]
    ) -> None:
        created = world.management.applications.create(
            name=MARKUP,
            type="SPA",
            is_third_party=True,
            oidc_client_metadata={"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [f"{REDIRECT_URI}/bye"]},
        )
        client = Client(created.id)
        sign_in = victim.follow(victim.authorize(client, **named(victim)))
        again = victim.send(sign_in, identifier=MARKUP, password="wrong")
        consent = victim.follow(victim.sign_in(again))
        assert heading(consent) == "Allow access?"
        sign_out = victim.browser.get(
            "/oidc/session/end",
            params={"client_id": client.id, "state": MARKUP, "post_logout_redirect_uri": f"{REDIRECT_URI}/bye"},
        )
        for page in (sign_in, again, consent, sign_out):
            assert page.status_code == 200
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
            assert "{{7*7}}" in page.text
            self.harmless(page)
        assert consent.text.count("&lt;svg/onload=alert(1)&gt;") == 2
        back = victim.send(consent, decision="allow")
        assert callback(back)["state"] == MARKUP
        assert "<" not in back.headers["Location"]
        assert callback(victim.send(sign_out), f"{REDIRECT_URI}/bye") == {"state": MARKUP}

    @pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "scope", "prompt", "resource", "max_age"])
    def test_it_is_not_on_an_error_page(self, signed_in: Person, ours: Client, name: str) -> None:
        answer = signed_in.authorize(ours, **{"redirect_uri": "https://evil.example.com", name: MARKUP})
        assert answer.status_code == 400
        self.harmless(answer)
        assert "alert" not in answer.text
        for path in ("/sign-in", "/consent", "/oidc/session/end"):
            self.harmless(signed_in.browser.get(path, params={name: MARKUP, "request": MARKUP}))

    @pytest.mark.parametrize(
        "state", ["a\r\nSet-Cookie: x=1", "a\nLocation: //evil.example.com", "é\u2028%0d%0a&code=x"]
    )
    def test_a_state_stays_one_value_in_the_address(self, signed_in: Person, ours: Client, state: str) -> None:
        """Response splitting, and the attacker's parameters in the answer."""
        answer = signed_in.authorize(ours, state=state)
        assert callback(answer)["state"] == state
        assert "Set-Cookie" not in answer.headers
        assert len(parse_qsl(urlsplit(answer.headers["Location"]).query)) == 3
