"""Attacks on people who sign in, and on their applications (RFC 9700, RFC 9207).

The tests use browsers, two people and the SDK's client. What the token endpoint refuses by itself, from any client, is
in the protocol tests: replayed and raced codes and refresh tokens, those of another client, wrong verifiers, scopes
beyond the consent.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2 as httpx
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from stead import IdentityClient, OAuthError, SignInRequired
from tests.support.at_a_browser import PASSWORD, Form, Person, application, callback, heading
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.world import Client, World, outcome

ORGANIZATIONS = "urn:service:scope:organizations"


def sdk_client(world: World, client: Client) -> IdentityClient:
    return IdentityClient(world.stack.base_url, client.id, scopes=["read:things"], resources=[world.resource])


def with_changes(url: str, **changes: str | None) -> str:
    """Return a URL with other parameters in its query; None leaves one out."""
    address, _, query = url.partition("?")
    parameters = {**dict(parse_qsl(query)), **changes}
    return f"{address}?{urlencode({name: value for name, value in parameters.items() if value is not None})}"


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

    @pytest.mark.heavy
    def test_one_sign_in_gives_one_code(self, victim: Person, ours: Client) -> None:
        form = Form(victim.follow(victim.authorize(ours)).text).values
        answers = self.raced(victim, "/sign-in", {**form, "identifier": victim.username, "password": PASSWORD})
        assert self.codes(answers) == 1

    @pytest.mark.heavy
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
    """A third-party application gets only what the user has seen and allowed."""

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
        """A consent that was given once covers nothing else."""
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
