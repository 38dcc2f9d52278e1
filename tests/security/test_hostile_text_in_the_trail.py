"""No text that a caller chooses keeps an act out of the audit trail: each is recorded, whatever its fields hold."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from identity_common.clock import now_ms
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from stead.models import AuditEntry
from tests.support.administrator import CONSOLE, Administrator
from tests.support.at_a_browser import Person, application
from tests.support.authorizing import REDIRECT_URI
from tests.support.lengths import length
from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import Client, World, error_body, own_world

pytestmark = pytest.mark.heavy

NUL_ESCAPED = "\\u0000"
"""Backslash, u and four zeros: no NUL, though the JSON of it contains the JSON of one."""
HOSTILE = [
    NUL_ESCAPED,
    "\\\\u0000\\",
    "\\ud800",
    "a\0b",
    "\ud800",
    "\u202eright to left\u2066",
    "9" * 400,
    "1e999",
    '","key":"forged',
    "%00%ff",
    "\U0001f600" * 300,
    "o" * 257,
    "x" * 1_000_000,
]
TEXTS = st.lists(st.sampled_from(HOSTILE[:-1]) | st.text(max_size=20), min_size=1, max_size=3).map("".join)
_MAX_HEADER = 2000
_WHY = "const getCustomJwtClaims = ({ context }) => ({ why: context.grant?.subjectTokenContext });"


@pytest.fixture(scope="module")
def world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world of its own: wrong passwords of other tests do not count."""
    directory = tmp_path_factory.mktemp("hostile")
    with own_world(servers, directory, "hostile", password_attempts_per_address=10_000) as world:
        world.management.custom_claims.save("access-token", _WHY)
        yield world


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def administrator(world: World) -> Administrator:
    administrator = Administrator(world.stack, "all")
    administrator.opens()
    return administrator


@pytest.fixture(scope="module")
def person(world: World) -> Person:
    return Person(world)


def header(text: str) -> bytes:
    """Return what a client can send of a text in a header: HTTP allows no control characters."""
    encoded = text.encode("utf-8", "surrogatepass")
    return bytes(byte for byte in encoded if byte >= 0x20 and byte != 0x7F)[:_MAX_HEADER].strip()


def recorded_agent(text: str) -> str:
    """Return the user agent in the entry of a request with a text as its ``User-Agent``."""
    return "".join(filter(str.isprintable, header(text).decode("latin-1")))[:256]


_EXCHANGE = {"grant_type": GRANT_TOKEN_EXCHANGE, "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN, "scope": "read:things"}


class Acts:
    """Requests with a text in every field that reaches the trail, and the entries that they must leave."""

    def __init__(self, world: World, text: str) -> None:
        self.expected: dict[str, str] = {}
        self.text = text
        self.began = now_ms()
        self.deleted = ""
        self._world = world
        access = world.stack.credentials.management_api
        form = {"grant_type": "client_credentials", "resource": access.resource, "scope": "all"}
        token = world.stack.token_request(form, auth=(access.client_id, access.client_secret)).json()["access_token"]
        self._authorization = f"Bearer {token}"

    def headers(self, key: str) -> list[tuple[str, bytes]]:
        """Return the headers of an act that leaves an entry with this key."""
        request_id = f"act-{secrets.token_hex(8)}"
        self.expected[request_id] = key
        return [("X-Request-Id", request_id.encode()), ("User-Agent", header(self.text))]

    def call(self, key: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request to the API; it leaves an entry if it is accepted."""
        headers = [*self.headers(key), ("Authorization", self._authorization.encode())]
        content = None if body is None else json.dumps(body)
        if content is not None:
            headers.append(("Content-Type", b"application/json"))
        answer = self._world.stack.http.request(method, f"/api/{path}", content=content, headers=headers)
        if answer.status_code >= 400:
            assert answer.status_code < 500, answer.text
            self.expected.popitem()
        return answer

    def grant(self, key: str, form: dict[str, str], client: Client) -> httpx.Response:
        """Send a request to the token endpoint as an authenticated client; a refusal leaves an entry too."""
        succeeded, headers = f"token.{key}.succeeded", self.headers(f"token.{key}.refused")
        answer = self._world.stack.http.post("/oidc/token", data=form, auth=client.basic, headers=headers)
        if answer.status_code == 200:
            self.expected[headers[0][1].decode()] = succeeded
        assert answer.status_code < 500, answer.text
        return answer

    def browse(self, browser: httpx.Client, key: str, act: Callable[[], httpx.Response], status: int) -> None:
        """Let a browser that names itself with the text send a form."""
        browser.headers = httpx.Headers([*self.headers(key), ("Origin", str(browser.base_url).encode())])
        assert act().status_code == status

    def _key(self, entry: AuditEntry) -> str:
        return self.expected.get(entry.request_id, "nothing expected")

    def entries(self) -> dict[str, AuditEntry]:
        """Return the entry of each act, as soon as the trail has them all, and has erased those of the deleted user."""
        found: dict[str, AuditEntry] = {}

        def are_there() -> bool:
            entries = self._world.management.logs.list(start_time=self.began - 60_000)
            found.update({each.request_id: each for each in entries if each.key.startswith(self._key(each))})
            erased = all(each.address == "" for each in found.values() if each.user_id == self.deleted)
            return erased and found.keys() >= self.expected.keys()

        eventually(are_there)
        return found


def act_through_the_api(acts: Acts, world: World) -> None:
    """Write, mint, exchange, end and delete with the text in bodies and headers."""
    text = acts.text
    user = acts.call("management.user.create", "POST", "users", {"name": "Ada"}).json()["id"]
    acts.call("management.user.update", "PATCH", f"users/{user}", {"name": text[:64]})
    organization = acts.call("template.organization.create", "POST", "organizations", {"name": "Engines"}).json()["id"]
    acts.call("template.organization.update", "PATCH", f"organizations/{organization}", {"description": text[:64]})
    minted = acts.call("subject-token.issued", "POST", "subject-tokens", {"userId": user})
    for context in ({"reason": text, "ticketId": text}, {"reason": text[:32], "ticketId": text[-32:]}, {text: text}):
        body = {"userId": user, "context": context}
        answer = acts.call("subject-token.issued", "POST", "subject-tokens", body)
        if answer.is_success:
            act_by_exchange(acts, world, answer.json()["subjectToken"], context)
    acts.call("management.", "POST", f"impersonations/{minted.headers['Impersonation-Id']}/end")
    for party in (text, text[:60]):
        acts.call("management.", "POST", "impersonations/end", {"userId": party})
    acts.call("management.user.delete", "DELETE", f"users/{user}")
    acts.deleted = user


def act_by_exchange(acts: Acts, world: World, subject_token: str, context: dict[str, str]) -> None:
    """Exchange a subject token; the custom-claims function gets its context unchanged."""
    form = {**_EXCHANGE, "resource": world.resource, "subject_token": subject_token}
    answer = acts.grant("exchange", form, world.traditional)
    assert answer.status_code == 200, answer.text
    assert world.claims(answer.json()["access_token"], world.resource)["why"] == context


def act_at_the_token_endpoint(acts: Acts, world: World) -> None:
    """Exchange, redeem, refresh and ask for a client's own token, with the text as the organization or without."""
    as_organization = {"organization_id": acts.text}
    exchange = {**_EXCHANGE, "resource": world.resource}
    own = {"grant_type": "client_credentials", "resource": world.resource, "scope": "read:things"}
    sign_in = SignIn(world)
    is_form = _fits_a_form(acts.text)
    for changes in ({}, as_organization) if is_form else ({},):
        acts.grant("exchange", {**exchange, "subject_token": world.subject_token(), **changes}, world.traditional)
        acts.grant("client-credentials", {**own, **changes}, world.machine)
    redeemed = acts.grant("authorization-code", _redemption(sign_in), sign_in.client)
    refresh = {"grant_type": "refresh_token", "refresh_token": redeemed.json()["refresh_token"]}
    acts.grant("refresh-token", refresh, sign_in.client)
    if is_form:
        acts.grant("refresh-token", {**refresh, **as_organization}, sign_in.client)
        acts.grant("authorization-code", {**_redemption(SignIn(world)), **as_organization}, sign_in.client)


def _redemption(sign_in: SignIn) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "code": sign_in.code,
        "redirect_uri": REDIRECT_URI,
        "code_verifier": sign_in.verifier.secret,
    }


def _fits_a_form(text: str) -> bool:
    """Tell whether the token endpoint reads the text: no NUL, valid UTF-8, 64 KiB."""
    return "\0" not in text and len(text) < 10_000 and text.encode("utf-8", "replace").decode() == text


def act_at_a_browser(acts: Acts, person: Person, spa: Client, administrator: Administrator) -> None:
    """Mistype a password, sign in, and write in the console."""
    browser = person.browser = person.new_browser()
    page = person.follow(person.authorize(spa))
    acts.browse(browser, "token.sign-in.refused", lambda: person.send(page, identifier="x", password="wrong"), 200)
    page = person.follow(person.authorize(spa))
    acts.browse(browser, "token.sign-in.succeeded", lambda: person.sign_in(page), 303)
    form = administrator.opens(f"{CONSOLE}/organizations/new")
    acts.browse(administrator.browser, "template.organization.create", lambda: administrator.sends(form, name="E"), 303)


@settings(max_examples=length(short=3, long=30))
@given(text=TEXTS)
@example(text=NUL_ESCAPED)
@example(text="a\0b\ud800")
@example(text="o" * 257)
@example(text="x" * 1_000_000)
def test_each_act_is_in_the_trail(
    text: str, world: World, spa: Client, person: Person, administrator: Administrator
) -> None:
    acts = Acts(world, text)
    act_through_the_api(acts, world)
    act_at_the_token_endpoint(acts, world)
    act_at_a_browser(acts, person, spa, administrator)
    entries = acts.entries()
    agent = recorded_agent(text)
    of_console = agent.encode("ascii", "replace").decode().strip()
    assert {each.user_agent for each in entries.values() if each.user_id != acts.deleted} <= {agent, of_console}
    assert {(each.user_agent, each.context) for each in entries.values() if each.user_id == acts.deleted} == {
        ("", None)
    }


@pytest.mark.parametrize("organization_id", ["o" * 65, "o" * 257, "\u202e" * 65], ids=["65", "257", "65 of two bytes"])
def test_an_organization_id_that_is_too_long_spends_nothing(world: World, organization_id: str) -> None:
    """The entries of an exchange would be refused for it, after the subject token was spent."""
    too_long = {"organization_id": organization_id}
    refused = (400, error_body("invalid_request", "this organization_id is not supported"))
    subject_token, sign_in, redeemed = world.subject_token(), SignIn(world), SignIn(world)
    refresh_token = redeemed.tokens()["refresh_token"]
    for answer in (
        world.exchange(subject_token, **too_long),
        world.client_credentials(**too_long),
        sign_in.redeem(**too_long),
        redeemed.refresh(refresh_token, **too_long),
    ):
        assert (answer.status_code, answer.json()) == refused
    assert world.exchange(subject_token).status_code == 200
    assert sign_in.redeem().status_code == 200
    assert redeemed.refresh(refresh_token).status_code == 200
