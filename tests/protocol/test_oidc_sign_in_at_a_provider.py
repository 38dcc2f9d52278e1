"""Signing in at the provider of a connector (OpenID Connect Core 1.0 section 3.1, as a relying party)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2 as httpx
import jwt
import pytest
from sqlalchemy import text

from identity_common.authentication import AtProvider, UsedFactor
from identity_common.clock import now_ms
from identity_common.stores.redis import RedisCommands
from stead.verify.feed.entries import entry_of
from tests.support.at_a_browser import PASSWORD, Form, application, callback, heading, is_signed_in, plant, problem
from tests.support.authorizing import REDIRECT_URI, Stores, Verifier, in_stores
from tests.support.company import Company, Employee
from tests.support.databases import locked
from tests.support.provider import METADATA, SECRET, Provider
from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import Client, World, outcome
from token_service.sign_in import flow
from token_service.sign_in.pages.cookies import SESSION
from token_service.sign_in.sessions import Sessions

MFA = "urn:service:acr:mfa"


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def company(world: World, ours: Client) -> Iterator[Company]:
    with Company(world, ours) as company:
        yield company


@pytest.fixture(scope="module")
def other(world: World, ours: Client) -> Iterator[Company]:
    with Company(world, ours, domains=[]) as other:
        yield other


def tokens(employee: Employee, client: Client, **changes: Any) -> dict[str, Any]:
    """Sign in through the provider, up to the tokens."""
    verifier = Verifier()
    answer = employee.arrive(employee.begin(client, verifier=verifier, **changes))
    return employee.redeem(client, callback(answer)["code"], verifier)


def claims(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


class TestWholeSignIn:
    def test_an_address_of_the_domain_leads_to_the_provider_and_its_answer_to_tokens(
        self, company: Company, ours: Client
    ) -> None:
        employee, verifier = company.hire(name="Ada Archer"), Verifier()
        page = employee.follow(employee.authorize(ours, verifier=verifier))
        assert (heading(page), "password" in Form(page.text).values) == ("Sign in", False)
        sent = employee.send(page, identifier=company.address("ada"))
        url = employee.at_provider(sent)
        (asked,) = company.provider.asked.values()
        assert asked["login_hint"] == company.address("ada")
        code = callback(employee.arrive(url))["code"]
        got = employee.redeem(ours, code, verifier)
        said = claims(got["id_token"])
        assert (said["name"], said["amr"], said["acr"]) == ("Ada Archer", [], "urn:service:acr:password")
        assert abs(said["auth_time"] - time.time()) < 60
        assert is_signed_in(employee, ours)

    def test_another_address_or_the_quiet_way_leads_to_the_password(self, company: Company, ours: Client) -> None:
        employee = company.hire()
        page = employee.follow(employee.authorize(ours))
        for values in ({"identifier": "ada@elsewhere.test"}, {"identifier": company.address("a"), "way": "password"}):
            asked = employee.send(page, **values)
            assert Form(asked.text).values["identifier"] == values["identifier"]
            assert "password" in Form(asked.text).values

    def test_a_button_and_login_hint_lead_there_too(self, company: Company, other: Company, ours: Client) -> None:
        employee = other.hire()
        page = employee.follow(employee.authorize(ours))
        assert "code" in callback(employee.arrive(employee.at_provider(employee.press(page))))
        hinted = company.hire()
        assert hinted.at_provider(hinted.authorize(ours, login_hint=company.address("ada")))

    @pytest.mark.parametrize("asked", ["sso:unknown", "social:google", "sso:"])
    def test_an_unknown_direct_sign_in_shows_the_page(self, company: Company, ours: Client, asked: str) -> None:
        employee = company.hire()
        assert heading(employee.follow(employee.authorize(ours, direct_sign_in=asked))) == "Sign in"

    def test_prompt_none_never_asks_a_provider(self, company: Company, ours: Client) -> None:
        asked = {"direct_sign_in": f"sso:{company.connector}", "prompt": "none"}
        assert callback(company.hire().authorize(ours, **asked))["error"] == "login_required"


class TestTheAnswer:
    def test_state_and_code_work_once_and_in_their_browser_alone(self, company: Company, ours: Client) -> None:
        employee = company.hire()
        url = employee.begin(ours)
        assert heading(Employee(company).arrive(url)) == "Start again"
        assert "code" in callback(employee.arrive(url))
        assert heading(employee.arrive(url)) == "Start again"
        state = {"state": url.partition("state=")[2].partition("&")[0][:-1] + "x"}
        assert heading(employee.arrive(employee.begin(ours, prompt="login"), **state)) == "Start again"

    def test_an_answer_at_the_callback_of_another_connector_is_refused(
        self, company: Company, other: Company, ours: Client
    ) -> None:
        employee = company.hire()
        redeemed = len(company.provider.forms), len(other.provider.forms)
        mixed_up = employee.begin(ours).replace(company.connector, other.connector)
        assert "did not say who you are" in problem(employee.arrive(mixed_up))
        assert (len(company.provider.forms), len(other.provider.forms)) == redeemed

    def test_the_answer_to_an_expired_request_leads_nowhere(self, company: Company, ours: Client) -> None:
        employee = company.hire()
        page = employee.follow(employee.authorize(ours))
        url = employee.at_provider(employee.press(page))
        employee.cancel(page)
        assert heading(employee.arrive(url)) == "Start again"

    def test_who_refuses_there_can_sign_in_otherwise(self, company: Company, ours: Client) -> None:
        employee = company.hire()
        state = employee.begin(ours).partition("state=")[2]
        page = employee.browser.get(f"/sign-in/callback/{company.connector}?error=access_denied&state={state}")
        page = employee.follow(page)
        assert "cancelled or refused" in problem(page)
        assert "code" in callback(employee.arrive(employee.at_provider(employee.press(page))))

    def test_a_provider_that_fails_keeps_the_request(self, company: Company, ours: Client) -> None:
        employee = company.hire()
        url = employee.begin(ours)
        company.provider.answers["/realm/token"] = 500
        try:
            page = employee.arrive(url)
        finally:
            del company.provider.answers["/realm/token"]
        assert "cannot be reached" in problem(page)
        assert "code" in callback(employee.arrive(employee.at_provider(employee.press(page))))

    def test_a_provider_that_is_down_before_it_was_ever_read_is_named_on_the_page(
        self, world: World, ours: Client
    ) -> None:
        with Provider() as down, Company(world, ours) as company:
            company.change(config={"issuer": down.issuer, "clientSecret": SECRET})
            down.answers[METADATA] = 503
            employee = company.hire()
            page = employee.follow(employee.authorize(ours, direct_sign_in=f"sso:{company.connector}"))
            assert (heading(page), "cannot be reached" in problem(page)) == ("Sign in", True)


class TestHowTheyHaveSignedIn:
    @pytest.mark.parametrize("asked", [{"max_age": "60"}, {"prompt": "login"}])
    def test_only_the_provider_says_when(self, company: Company, ours: Client, asked: dict[str, str]) -> None:
        employee = company.hire(auth_time=int(time.time()) - 3600)
        assert "too old" in problem(employee.arrive(employee.begin(ours, **asked)))
        del company.provider.person["auth_time"]
        said = claims(tokens(employee, ours, **asked)["id_token"])
        assert time.time() - said["auth_time"] < 60

    def test_a_sign_in_for_another_request_does_not_make_an_old_one_new(self, company: Company, ours: Client) -> None:
        """Two tabs: one asks for a new sign-in, the other is content with an old one."""
        employee = company.hire(auth_time=int(time.time()) - 3600)
        demanding = employee.authorize(ours, max_age="60")
        assert "code" in callback(employee.arrive(employee.begin(ours)))
        assert heading(employee.follow(demanding)) == "Sign in"

    def test_what_the_provider_is_not_asked_is_not_said(self, company: Company, ours: Client) -> None:
        employee = company.hire(auth_time=None, amr=["mfa"])
        said = claims(tokens(employee, ours)["id_token"])
        assert ("auth_time" in said, said["amr"], said["acr"]) == (False, [], "urn:service:acr:password")

    @pytest.mark.parametrize("known", [None, 3600])
    def test_a_factor_is_set_up_only_after_a_sign_in_there_that_is_known_to_be_recent(
        self, company: Company, ours: Client, known: int | None
    ) -> None:
        """Or a stolen session at the provider would be enough to protect the account with a factor of the thief."""
        employee = company.hire(auth_time=known and int(time.time()) - known)
        page = employee.arrive(employee.begin(ours, acr_values=MFA))
        for _ in range(2):  # unasked, and asked in vain
            assert (heading(page), "too old" in problem(page)) == ("Sign in", True)
            sent = employee.press(page)
            assert httpx.URL(sent.headers["Location"]).params["max_age"] == "600"
            url = employee.at_provider(sent)
            page = employee.arrive(url)
        del company.provider.person["auth_time"]
        page = employee.follow(employee.arrive(employee.at_provider(employee.press(page))))
        assert heading(page) == "Protect your account"

    def test_a_trusted_factor_satisfies_a_demand(self, company: Company, ours: Client) -> None:
        company.change(trusts={"factors": [{"claim": "amr", "value": "mfa", "level": "mfa"}]})
        said = claims(tokens(company.hire(amr=["mfa", "pwd"]), ours, acr_values=MFA)["id_token"])
        company.change(trusts={"factors": []})
        assert (said["acr"], "mfa" in said["amr"]) == (MFA, True)


class TestLink:
    """The verified address has an account: its owner signs in to it once."""

    @pytest.fixture
    def owner(self, world: World, company: Company) -> str:
        """The address of an account with a password."""
        address = company.address(f"owner-{secrets.token_hex(4)}")
        created = company.request(
            "POST", "/api/users", primaryEmail=address, isEmailVerified=True, password=PASSWORD, name="Owner"
        )
        assert created.status_code == 200, created.text
        return address

    def test_the_account_is_connected_by_its_password(self, company: Company, ours: Client, owner: str) -> None:
        employee, verifier = company.hire(email=owner), Verifier()
        page = employee.arrive(employee.begin(ours, verifier=verifier))
        assert (heading(page), Form(page.text).values["identifier"]) == ("Connect your account", owner)
        wrong = employee.send(page, password="not the password 1")
        assert (heading(wrong), "not right" in problem(wrong)) == ("Connect your account", True)
        answer = employee.send(wrong, password=PASSWORD)
        assert answer.has_redirect_location, answer.text
        while "/sign-in" in answer.headers["Location"]:
            answer = employee.follow(answer)
        got = employee.redeem(ours, callback(answer)["code"], verifier)
        assert claims(got["id_token"])["amr"] == ["pwd"]
        again = Employee(company)
        assert claims(tokens(again, ours)["id_token"])["sub"] == claims(got["id_token"])["sub"]

    def test_another_account_is_not_connected(self, world: World, company: Company, ours: Client, owner: str) -> None:
        other_address = f"other-{secrets.token_hex(4)}@elsewhere.test"
        company.request("POST", "/api/users", primaryEmail=other_address, isEmailVerified=True, password=PASSWORD)
        employee = company.hire(email=owner)
        page = employee.arrive(employee.begin(ours))
        answer = employee.send(page, identifier=other_address, password=PASSWORD)
        page = employee.follow(employee.follow(answer))
        assert (heading(page), "another account" in problem(page)) == ("Connect your account", True)

    def test_it_can_be_left(self, company: Company, ours: Client, owner: str) -> None:
        employee = company.hire(email=owner)
        page = employee.arrive(employee.begin(ours))
        left = employee.browser.post("/sign-in/connect/leave", data=Form(page.text).values)
        assert heading(employee.follow(left)) == "Sign in"


def ended(world: World, ours: Client, got: dict[str, Any]) -> bool:
    """Return whether an access token is in the not-valid feed and not active, and the refresh token refused."""
    form = {"grant_type": "refresh_token", "refresh_token": got["refresh_token"], "client_id": ours.id}
    userinfo = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {got['access_token']}"})
    refreshed = outcome(world.stack.token_request(form))
    authorization_id = claims(got["access_token"])["jti"].partition(".")[0]
    is_in_feed = in_stores(world.stack.token_settings, partial(in_feed, entry=entry_of("token", authorization_id)))
    return is_in_feed and userinfo.status_code == 401 and refreshed == (400, "invalid_grant")


async def in_feed(stores: Stores, *, entry: bytes) -> bool:
    async with stores.engine.connect() as connection:
        found = await connection.execute(text("SELECT 1 FROM not_valid_entries WHERE entry = :entry"), {"entry": entry})
        return found.first() is not None


class TestTheEnd:
    def test_a_closed_connector_ends_everything_that_came_through_it(self, world: World, ours: Client) -> None:
        with Company(world, ours) as company:
            employee = company.hire()
            got = tokens(employee, ours, resource=None, scope="openid offline_access")
            away = Employee(company)
            at_provider = away.begin(ours)
            company.change(isEnabled=False)
            company.until(is_open=False)
            eventually(lambda: ended(world, ours, got))
            assert not is_signed_in(employee, ours)
            assert "closed" in problem(away.arrive(at_provider))
            company.change(isEnabled=True)
            company.until(is_open=True)
            assert ended(world, ours, got)
            assert not is_signed_in(employee, ours)
            assert tokens(employee, ours)

    @pytest.mark.parametrize("by", ["an administrator", "the person"])
    def test_a_removed_identity_ends_what_came_through_it(
        self, company: Company, world: World, ours: Client, by: str
    ) -> None:
        employee = company.hire()
        user = claims(tokens(employee, ours)["id_token"])["sub"]
        company.request("PATCH", f"/api/users/{user}", username=user, allowsPassword=True)
        company.request("PATCH", f"/api/users/{user}/password", password=PASSWORD)
        got = tokens(employee, ours, resource=None, scope="openid offline_access account")
        [identity] = company.request("GET", f"/api/users/{user}/identities").json()
        colleague = company.hire()
        others = tokens(colleague, ours, resource=None, scope="openid offline_access")
        if by == "an administrator":
            answer = company.request("DELETE", f"/api/users/{user}/identities/{identity['id']}")
        else:
            headers = {"Authorization": f"Bearer {got['access_token']}"}
            answer = world.stack.http.delete(f"/api/my-account/identities/{identity['id']}", headers=headers)
        assert answer.status_code == 204, answer.text
        eventually(lambda: ended(world, ours, got))
        eventually(lambda: not is_signed_in(employee, ours))
        assert is_signed_in(colleague, ours)
        assert not ended(world, ours, others)

    def test_the_provider_ends_a_session_by_a_logout_token(self, company: Company, world: World, ours: Client) -> None:
        employee = company.hire(sid="session-1")
        got = tokens(employee, ours, resource=None, scope="openid offline_access")
        path = f"/sign-in/backchannel-logout/{company.connector}"
        event = {"http://schemas.openid.net/event/backchannel-logout": {}}

        def posted(**changed: Any) -> httpx.Response:
            said = {"sid": "session-1", "jti": secrets.token_hex(8), "events": event, **changed}
            token = company.provider.id_token(company.provider.person["sub"], **said)
            return world.stack.http.post(path, data={"logout_token": token})

        refused = posted(nonce="n")
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
        assert refused.headers["Cache-Control"] == "no-store"
        nowhere = world.stack.http.post(f"{path}%00", data={"logout_token": "x"})
        assert nowhere.json()["error"] == "invalid_request", "what is tried again is not counted"
        assert posted(sid="session-2").status_code == 200
        assert is_signed_in(employee, ours)
        answer = posted()
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
        assert not is_signed_in(employee, ours)
        assert ended(world, ours, got)

    def test_a_logout_token_that_is_sent_again_ends_no_later_session(
        self, company: Company, world: World, ours: Client
    ) -> None:
        employee, jti = company.hire(), secrets.token_hex(8)
        tokens(employee, ours)
        event, said = {"http://schemas.openid.net/event/backchannel-logout": {}}, {"iat": int(time.time()) - 60}
        token = company.provider.id_token(company.provider.person["sub"], jti=jti, events=event, **said)
        path = f"/sign-in/backchannel-logout/{company.connector}"
        assert world.stack.http.post(path, data={"logout_token": token}).status_code == 200
        assert not is_signed_in(employee, ours)
        tokens(employee, ours)
        assert world.stack.http.post(path, data={"logout_token": token}).status_code == 200
        assert is_signed_in(employee, ours)

    @pytest.mark.parametrize("sid", [None, "session-9"])
    @pytest.mark.parametrize("is_known", [False, True])
    def test_a_logout_that_comes_before_the_session_is_stored_counts(
        self, company: Company, world: World, ours: Client, sid: str | None, is_known: bool
    ) -> None:
        """The provider sends it once it has answered with the ID token: there is nothing to end yet."""
        employee, provider = company.hire(), company.provider
        if is_known:
            tokens(employee, ours)
            employee = Employee(company)
        provider.person |= {"sid": sid}
        subject, answered = provider.person["sub"], []

        def token(nonce: str) -> str:
            event = {"http://schemas.openid.net/event/backchannel-logout": {}}
            logout = provider.id_token(subject, jti=secrets.token_hex(8), events=event, sid=sid)
            path = f"/sign-in/backchannel-logout/{company.connector}"
            answered.append(world.stack.http.post(path, data={"logout_token": logout}).status_code)
            return provider.id_token(subject, nonce=nonce, sid=sid)

        url = employee.begin(ours)
        provider.token = token
        try:
            page = employee.arrive(url)
        finally:
            provider.token = None
        assert answered == [200]
        assert "signed out there" in problem(page)
        assert not is_signed_in(employee, ours)
        assert "code" in callback(employee.arrive(employee.at_provider(employee.press(page)))), "a later one counts"

    def test_a_connector_asks_again_after_its_time(self, company: Company, world: World, ours: Client) -> None:
        company.opened_long_ago()
        at, employee = now_ms() - 61_000, company.hire()
        provider = AtProvider(connector_id=company.connector, revision=1)
        factors = (UsedFactor("provider", at, provider),)

        async def session(stores: Stores) -> str:
            tenant_id, commands = world.stack.tenant_id, RedisCommands(stores.redis)
            sessions = Sessions(commands, stores.redis, tenant_id=tenant_id, replicas=0)
            cookie, _ = await sessions.sign_in(
                world.customer, judged_at=at, tokens_valid_after=0, method="provider", provider=provider
            )
            return cookie

        def sign_in() -> SignIn:
            return SignIn(world, ours, auth_time=at, factors=factors, resource_scopes={})

        eventually(lambda: sign_in().redeem().status_code == 200)
        plant(employee.browser, SESSION, in_stores(world.stack.token_settings, session))
        signed_in = sign_in()
        refresh_token = signed_in.tokens()["refresh_token"]
        assert is_signed_in(employee, ours)
        company.change(sessionMaxAgeS=60)
        eventually(lambda: outcome(signed_in.refresh(refresh_token)) == (400, "invalid_grant"))
        assert not is_signed_in(employee, ours)
        assert employee.at_provider(employee.authorize(ours)), "without a page"
        company.change(sessionMaxAgeS=None)


def test_a_group_gives_a_role_that_the_first_token_has(company: Company, world: World, ours: Client) -> None:
    """The code waits for template-service."""
    company.change(groupsClaim="groups")
    organization, role = world.template.organization(), world.organization_role("read:invoices")
    answer = company.request(
        "POST",
        f"/api/organizations/{organization}/jit/groups",
        ssoConnectorId=company.connector,
        group="support",
        organizationRoleIds=[role],
    )
    assert answer.is_success, answer.text
    employee = company.hire(groups=["support"])
    permission = world.permission("read:invoices")
    scope = f"openid urn:service:scope:organizations {permission}"
    verifier = Verifier()
    asked = {"scope": scope, "resource": "urn:service:resource:organizations", "verifier": verifier}
    code = callback(employee.arrive(employee.begin(ours, **asked)))["code"]
    form = {"grant_type": "authorization_code", "client_id": ours.id, "code": code, "redirect_uri": REDIRECT_URI}
    answer = world.stack.token_request({**form, "code_verifier": verifier.secret, "organization_id": organization})
    assert answer.status_code == 200, answer.text
    assert answer.json()["scope"] == permission


def test_while_memberships_are_not_applied_the_application_is_told_so_and_nothing_is_lost(
    company: Company, world: World, ours: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "GROUPS_WAIT_S", 0.2)
    employee, stack = company.hire(), world.stack
    lock = "SELECT FROM projection_position WHERE tenant_id = $1 FOR UPDATE"
    with locked(stack.addresses.template_database_url, lock, stack.tenant_id):
        answer = callback(employee.arrive(employee.begin(ours)))
        assert (answer["error"], answer["state"]) == ("temporarily_unavailable", "s-1")
    eventually(lambda: is_signed_in(employee, ours))
