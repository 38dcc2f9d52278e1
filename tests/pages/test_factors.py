"""Passkeys and codes: the pages as browsers without scripts see them, and the forms as an attacker sends them."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import urlsafe_b64decode
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import Form, Person, application, callback, heading
from tests.support.authenticator import Authenticator, base64url, new_challenge
from tests.support.factors import AuthenticatorApp
from tests.support.lengths import length
from tests.support.mailed_links import mails_of
from tests.support.waiting import eventually
from tests.support.world import Client, World

MFA, PHR = "urn:service:acr:mfa", "phr"
RACES = length(short=16, long=64)
START_AGAIN = (400, "Start again")
CONFIRM = "Confirm that it is you"


class FactorPerson(Person):
    """A person with a verified address, who reads their mail."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        address = f"{self.username}@example.com"
        world.management.users.update(self.user_id, primary_email=address, is_email_verified=True)

    def arrive(self, client: Client, acr: str | None = None, **changes: Any) -> httpx.Response:
        """Return the page after a sign-in with the password."""
        sign_in = self.follow(self.authorize(client, acr_values=acr, **changes))
        return self.follow(self.sign_in(sign_in)) if heading(sign_in) == "Sign in" else sign_in

    def page(self, shown: httpx.Response, link: str) -> httpx.Response:
        """Follow a link of a page by its text."""
        (address,) = re.findall(rf'href="([^"]*)">{link}</a>', shown.text)
        return self.browser.get(unescape(address))

    def mailed_code(self, shown: httpx.Response) -> str:
        """Have a code mailed by the first form of a page, and return it."""
        sent = self.follow(self.send(shown))
        assert "A code is on its way to" in sent.text
        mails = asyncio.run(mails_of(self.world.stack._stack.management))
        code = [mail for mail in mails if mail.user_id == self.user_id][-1].values["code"]
        self.world.stack.recorder.keep(code, "enrolment code")
        return code

    def submit(self, shown: httpx.Response, action: str, **values: str) -> httpx.Response:
        """Send the first form of a page with this action."""
        form = next(part for part in shown.text.split("<form")[1:] if f'action="{action}?' in part)
        parsed = Form("<form" + form)
        return self.browser.post(parsed.action, data={**parsed.values, **values})

    def with_passkey(self, client: Client) -> tuple[Authenticator, list[str]]:
        """Create a passkey as the first factor; return it with the recovery codes."""
        choice = self.arrive(client, PHR)
        code = self.mailed_code(choice)
        shown = self.page(choice, "Create a passkey")
        device = Authenticator(origin=self.world.stack.base_url)
        credential = device.create(of_page(shown, "challenge"), user_handle=decoded(of_page(shown, "user")))
        done = self.submit(shown, "/sign-in/set-up/passkey", credential=credential, enrolment_code=code)
        assert heading(done) == "Keep your recovery codes"
        codes = re.findall("<li><code>([^<]+)</code></li>", done.text)
        assert callback(self.page(done, "I have kept them: continue"))["code"]
        return device, codes

    def with_app(self, client: Client) -> tuple[AuthenticatorApp, list[str]]:
        """Set up an authenticator app as the first factor; return it with the recovery codes."""
        choice = self.arrive(client, MFA)
        code = self.mailed_code(choice)
        shown = self.page(choice, "Set up an authenticator app")
        (secret,) = re.findall('<code class="key">([A-Z2-7]+)</code>', shown.text)
        app = AuthenticatorApp(secret)
        action = "/sign-in/set-up/authenticator"
        done = self.submit(shown, action, current=app.earlier(), enrolment_code=code)
        codes = re.findall("<li><code>([^<]+)</code></li>", done.text)
        assert callback(self.page(done, "I have kept them: continue"))["code"]
        return app, codes

    def leaves(self) -> None:
        """Forget everything at this browser."""
        self.browser.close()
        self.browser = self.new_browser()


def of_page(shown: httpx.Response, name: str) -> str:
    """Return what a page tells its script about the passkey."""
    (value,) = re.findall(rf'data-{name}="([^"]*)"', shown.text)
    return unescape(value)


def decoded(value: str) -> bytes:
    return urlsafe_b64decode(value + "==")


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def person(world: World) -> FactorPerson:
    return FactorPerson(world)


@pytest.fixture(scope="module")
def owner(world: World, ours: Client) -> tuple[FactorPerson, Authenticator]:
    """A person with a passkey."""
    person = FactorPerson(world)
    return person, person.with_passkey(ours)[0]


def shown(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, heading(answer)


def test_everything_but_passkeys_works_without_scripts(person: FactorPerson, ours: Client) -> None:
    app, codes = person.with_app(ours)
    assert len(set(codes)) == 10
    person.leaves()
    page = person.arrive(ours)
    assert shown(page) == (200, CONFIRM)
    wrong = person.submit(page, "/sign-in/factor", code=app.wrong())
    assert (shown(wrong), "The code is not right, or was used already." in wrong.text) == ((200, CONFIRM), True)
    empty = person.submit(wrong, "/sign-in/factor", code=" ")
    assert shown(empty) == (200, CONFIRM)
    assert callback(person.submit(empty, "/sign-in/factor", code=app.code()))["code"]

    page = person.follow(person.authorize(ours, action="new-recovery-codes"))
    assert shown(page) == (200, "New recovery codes")
    made = person.submit(page, "/sign-in/set-up/recovery-codes")
    assert shown(made) == (200, "Keep your recovery codes")
    assert "no-store" in made.headers["Cache-Control"]
    new = re.findall("<li><code>([^<]+)</code></li>", made.text)
    assert (len(new), set(new) & set(codes)) == (10, set())
    assert callback(person.page(made, "I have kept them: continue"))["code"]


def test_a_passkey_signs_in_without_a_password(owner: tuple[FactorPerson, Authenticator], ours: Client) -> None:
    person, device = owner
    person.leaves()
    page = person.follow(person.authorize(ours, acr_values=PHR))
    assert 'autocomplete="username webauthn"' in page.text
    assert of_page(page, "rp") == "localhost"
    answer = person.submit(page, "/sign-in/passkey", credential=device.get(of_page(page, "challenge")))
    assert callback(answer)["code"]


def test_an_answer_to_a_challenge_counts_once(owner: tuple[FactorPerson, Authenticator], ours: Client) -> None:
    """Of many browsers' requests with one answer, one gets a code."""
    person, device = owner
    person.leaves()
    page = person.follow(person.authorize(ours))
    credential = device.get(of_page(page, "challenge"))
    with ThreadPoolExecutor(RACES) as pool:
        answers = [pool.submit(person.submit, page, "/sign-in/passkey", credential=credential) for _ in range(RACES)]
        locations = [each.result().headers.get("Location", "") for each in answers]
    assert sum("code=" in location for location in locations) == 1


def test_a_challenge_is_of_the_last_page_of_its_request(
    owner: tuple[FactorPerson, Authenticator], ours: Client
) -> None:
    person, device = owner
    person.leaves()
    first, other = (person.follow(person.authorize(ours)) for _ in range(2))
    invented = device.get(new_challenge())
    for page, credential in ((first, device.get(of_page(other, "challenge"))), (other, invented)):
        refused = person.submit(page, "/sign-in/passkey", credential=credential)
        assert (shown(refused), "The passkey was not accepted." in refused.text) == ((200, "Sign in"), True)
        assert 'data-passkey-problem="failed" hidden' not in refused.text
    earlier = person.follow(person.authorize(ours))
    later = person.browser.get(earlier.url)
    assert shown(person.submit(later, "/sign-in/passkey", credential=device.get(of_page(earlier, "challenge")))) == (
        200,
        "Sign in",
    )
    again = person.browser.get(later.url)
    credential = device.get(of_page(again, "challenge"))
    assert callback(person.submit(again, "/sign-in/passkey", credential=credential))["code"]


@pytest.mark.parametrize(
    "credential",
    ["", "{}", "[]", "null", "{" * 20_000, "x" * 70_000, json.dumps({"id": "a", "response": {}})],
    ids=["empty", "object", "list", "null", "nested", "huge", "incomplete"],
)
def test_a_malformed_passkey_loses_nothing(person: FactorPerson, ours: Client, credential: str) -> None:
    page = person.follow(person.authorize(ours, login_hint="ada"))
    refused = person.submit(page, "/sign-in/passkey", credential=credential)
    assert shown(refused) == (200, "Sign in")
    assert callback(person.sign_in(refused))["code"]


def test_another_users_passkey_is_not_a_second_factor(
    person: FactorPerson, owner: tuple[FactorPerson, Authenticator], ours: Client
) -> None:
    person.with_passkey(ours)
    person.leaves()
    page = person.arrive(ours)
    assert shown(page) == (200, CONFIRM)
    _, device = owner
    refused = person.submit(page, "/sign-in/factor/passkey", credential=device.get(of_page(page, "challenge")))
    assert (shown(refused), "The passkey was not accepted." in refused.text) == ((200, CONFIRM), True)
    assert callback(person.authorize(ours, prompt="none"))["error"] == "login_required"


def test_who_knows_the_password_adds_no_factor_beside_another(person: FactorPerson, ours: Client) -> None:
    person.with_app(ours)
    person.leaves()
    page = person.arrive(ours, action="add-passkey")
    assert shown(page) == (200, CONFIRM)
    values = {name: Form(page.text).values[name] for name in ("request", "csrf_token")}
    credential = Authenticator(origin=person.world.stack.base_url).create(new_challenge(), user_handle=b"x" * 32)
    for path, form in {
        "passkey": {"credential": credential},
        "authenticator": {"sealed": "ab", "current": "123456"},
        "recovery-codes": {},
        "code": {},
    }.items():
        answer = person.browser.post(f"/sign-in/set-up/{path}", data={**values, **form})
        assert (answer.status_code, "/sign-in/factor?" in answer.headers["Location"]) == (303, True), path


def test_who_knows_the_password_adds_no_first_factor(person: FactorPerson, ours: Client) -> None:
    choice = person.arrive(ours, MFA)
    page = person.page(choice, "Create a passkey")
    device = Authenticator(origin=person.world.stack.base_url)
    before = outcomes(person.world)
    for code in ("", "0000-0000", base64url(b"x" * 400)):
        credential = device.create(of_page(page, "challenge"), user_handle=decoded(of_page(page, "user")))
        page = person.submit(page, "/sign-in/set-up/passkey", credential=credential, enrolment_code=code)
        assert (shown(page), 'role="alert" id="problem"' in page.text) == ((200, "Create a passkey"), True)
    wrong = outcomes(person.world)["wrong-enrolment-code"] - before["wrong-enrolment-code"]
    assert wrong == 1, "of the three, one is like a code"
    assert callback(person.authorize(ours, prompt="none", acr_values=MFA))["error"] == "login_required"


def test_a_typed_enrolment_code_is_kept_unless_it_was_wrong(person: FactorPerson, ours: Client) -> None:
    choice = person.arrive(ours, MFA)
    code = person.mailed_code(choice)
    for link, path, sent in (
        ("Create a passkey", "passkey", {"credential": "{}"}),
        ("Set up an authenticator app", "authenticator", {"current": "12345"}),
    ):
        page, action = person.page(choice, link), f"/sign-in/set-up/{path}"
        kept = person.submit(page, action, enrolment_code=code, **sent)
        assert (shown(kept), f'spellcheck="false" value="{code}"' in kept.text) == ((200, link), True)
    (secret,) = re.findall('<code class="key">([A-Z2-7]+)</code>', page.text)
    wrong = person.submit(page, action, enrolment_code="AAAA-AAAA", current=AuthenticatorApp(secret).code())
    assert (shown(wrong), 'role="alert"' in wrong.text, "AAAA-AAAA" in wrong.text) == ((200, link), True, False)


def test_a_passkey_is_of_the_user_whose_page_made_it(world: World, ours: Client) -> None:
    """In another tab of the browser another user has signed in meanwhile, who could never use it."""
    person, other = FactorPerson(world), FactorPerson(world)
    page = person.page(person.arrive(ours, PHR), "Create a passkey")
    other.browser = person.browser
    code = other.mailed_code(other.arrive(ours, PHR, prompt="login"))
    device = Authenticator(origin=world.stack.base_url)
    credential = device.create(of_page(page, "challenge"), user_handle=decoded(of_page(page, "user")))
    refused = other.submit(page, "/sign-in/set-up/passkey", credential=credential, enrolment_code=code)
    assert shown(refused) == (200, "Create a passkey")
    assert of_page(refused, "user") != of_page(page, "user")


@pytest.mark.parametrize(
    "path",
    [
        "/sign-in/passkey",
        "/sign-in/factor",
        "/sign-in/factor/passkey",
        "/sign-in/set-up/code",
        "/sign-in/set-up/passkey",
        "/sign-in/set-up/authenticator",
        "/sign-in/set-up/recovery-codes",
    ],
)
def test_a_form_is_from_the_page_of_this_browser(person: FactorPerson, ours: Client, path: str) -> None:
    page = person.follow(person.authorize(ours))
    values = {name: Form(page.text).values[name] for name in ("request", "csrf_token")}
    with person.new_browser() as other:
        assert shown(other.post(path, data=values)) == START_AGAIN
    for wrong in ({**values, "csrf_token": "x"}, {"csrf_token": values["csrf_token"]}, {"request": values["request"]}):
        assert shown(person.browser.post(path, data=wrong)) == START_AGAIN
    repeated = "&".join(f"{name}={value}" for name, value in [*values.items(), *values.items()])
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert shown(person.browser.post(path, content=repeated, headers=headers)) == START_AGAIN
    if path != "/sign-in/passkey":  # no one has signed in: it leads to the page that asks for it
        answer = person.browser.post(path, data=values)
        assert (answer.status_code, "/sign-in?" in answer.headers["Location"]) == (303, True)


def test_a_page_that_is_not_needed_leads_on(person: FactorPerson, ours: Client) -> None:
    sign_in = person.follow(person.authorize(ours))
    for path in ("factor", "set-up", "set-up/passkey", "set-up/recovery-codes"):
        answer = person.browser.get(f"/sign-in/{path}", params=sign_in.url.params)
        assert (answer.status_code, "/sign-in?" in answer.headers["Location"]) == (303, True)
        assert shown(person.browser.get(f"/sign-in/{path}?request=unknown")) == START_AGAIN
    choice = person.arrive(ours, MFA)
    odd = person.browser.get(choice.url.copy_merge_params({"sent": "<b>" + "9" * 5000}))
    assert (shown(odd), "is on its way" in odd.text) == ((200, "Protect your account"), False)


@pytest.mark.heavy
def test_a_reload_of_what_a_form_has_led_to_changes_nothing(person: FactorPerson, ours: Client) -> None:
    """A browser sends the form once more: what was refused is refused again, and what was done is not done twice."""
    choice = person.arrive(ours, MFA)
    code, shown_app = person.mailed_code(choice), person.page(choice, "Set up an authenticator app")
    (secret,) = re.findall('<code class="key">([A-Z2-7]+)</code>', shown_app.text)
    action, typed = "/sign-in/set-up/authenticator", {"current": AuthenticatorApp(secret).earlier()}
    for _ in range(2):
        refused = person.submit(shown_app, action, current="000", enrolment_code=code)
        assert (shown(refused), "The code" in refused.text) == ((200, "Set up an authenticator app"), True)
    assert heading(person.submit(shown_app, action, **typed, enrolment_code=code)) == "Keep your recovery codes"
    again = person.submit(shown_app, action, **typed, enrolment_code=code)
    assert callback(again)["code"], "it is needed no more"
    factors = person.world.management.users.factors(person.user_id)
    assert ([each.type for each in factors.factors], factors.recovery_codes) == (["authenticator"], 10)


def test_every_way_says_that_a_code_was_mailed(person: FactorPerson, ours: Client) -> None:
    sent = person.follow(person.send(person.arrive(ours, MFA)))
    for link in ("Create a passkey", "Set up an authenticator app"):
        way = person.page(sent, link)
        assert "A code is on its way to" in way.text
        sent = person.page(way, "Another way")
        assert (heading(sent), "A code is on its way to" in sent.text) == ("Protect your account", True)
    app = person.page(sent, "Set up an authenticator app")
    assert "If you have scanned an earlier picture" in person.follow(person.send(app)).text


def test_the_trail_and_the_metrics_tell_how_a_user_signed_in(person: FactorPerson, ours: Client, world: World) -> None:
    device, _ = person.with_passkey(ours)
    app = FactorPerson(world)
    app_of, codes = app.with_app(ours)
    for each in (person, app):
        each.leaves()
    before = outcomes(world)
    page = person.follow(person.authorize(ours))
    page = person.submit(page, "/sign-in/passkey", credential=device.get(new_challenge()))
    callback(person.submit(page, "/sign-in/passkey", credential=device.get(of_page(page, "challenge"))))
    page = app.submit(app.arrive(ours), "/sign-in/factor", code=app_of.wrong())
    callback(app.submit(page, "/sign-in/factor", code=codes[0]))
    now = outcomes(world)
    assert {name: now[name] - before[name] for name in ("succeeded", "wrong-passkey", "wrong-code")} == {
        "succeeded": 2, "wrong-passkey": 1, "wrong-code": 1,
    }  # fmt: skip

    def told(each: FactorPerson) -> list[tuple[str, str | None, tuple[str, ...]]]:
        entries = world.management.logs.list(user_id=each.user_id)
        told = [(entry.key, entry.reason, tuple(entry.amr)) for entry in entries]
        return [one for one in told if one[0].startswith(("token.sign-in", "token.factor"))]

    eventually(lambda: len(told(person)) == 3)
    assert told(person)[0] == ("token.sign-in.succeeded", None, ("mfa", "pop", "user"))
    eventually(lambda: len(told(app)) == 5)
    assert told(app)[:2] == [
        ("token.factor.succeeded", None, ("mfa", "otp", "pwd")),
        ("token.sign-in.refused", "wrong-code", ()),
    ]


def outcomes(world: World) -> dict[str, float]:
    """Return how many attempts to sign in ended how."""
    found = re.findall(
        r'stead_sign_ins_total\{[^}]*outcome="([a-z-]+)"[^}]*\} ([0-9.]+)', world.stack.http.get("/metrics").text
    )
    return {name: float(value) for name, value in found}
