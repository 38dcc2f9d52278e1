"""What requests without credentials store in Redis: no more than the table in docs/operations/sizing.md says."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import msgspec
import pytest

from provision import ServerAddresses
from tests.support.administrator import ACCOUNT, CONSOLE, Administrator
from tests.support.at_a_browser import Form, Person, application
from tests.support.company import Company, Employee
from tests.support.recorder import Recorder
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from tests.support.world import Client, World

pytestmark = pytest.mark.heavy

PAGE = Path(__file__).parents[2] / "docs/operations/sizing.md"
PENDING, ATTEMPTS, FAILURES = 12, 6, 4
"""The limits of this system; the defaults differ only in the number."""
MORE = 3
WINDOW_S = 900
MIB = 1024 * 1024
LARGEST = {
    "state": "s" * 3000,
    "nonce": "n" * 512,
    "login_hint": "h" * 512,
    "scope": " ".join(f"scope-{n}" for n in range(100)),
}
"""One that counts once."""
SITES = ("console", "account")
FORMS = {"console": f"{CONSOLE}/users/new", "account": f"{ACCOUNT}/edit"}
COUNTED = 6 * 1024


class Row(NamedTuple):
    """A row of the table: the pattern of its keys, the bytes of one, and of one with a form."""

    keys: str
    bytes: int
    with_form: int


def rows() -> dict[str, Row]:
    section = PAGE.read_text().partition("## What anyone can store in Redis")[2]
    found = re.findall(
        r"^\| `([a-z:*-]+)`[^|]*\|[^|]*\|[^|]*\| ([\d,]+)(?:; ([\d,]+))?[^|]*\|[^|]*\|$", section, re.MULTILINE
    )
    return {
        keys: Row(keys, *(int((figure or one).replace(",", "")) for figure in (one, with_form)))
        for keys, one, with_form in found
    }


ROWS = rows()


def patterns() -> set[str]:
    """Return the keys that either table of the page names."""
    section = PAGE.read_text().partition("## What anyone can store in Redis")[2]
    lines = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {keys for line in lines for keys in re.findall(r"`([^`]+)`", line)}


@pytest.fixture(scope="module")
def world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A tenant of its own, with small limits."""
    stack = RunningStack(
        servers,
        tmp_path_factory.mktemp("stored"),
        Recorder(),
        tenant_id=f"stored-{secrets.token_hex(4)}",
        client_failures_per_address=ATTEMPTS,
        client_failures_per_client=FAILURES,
        environment={
            "PENDING_REQUESTS_PER_ADDRESS": str(PENDING),
            "PASSWORD_ATTEMPTS_PER_ADDRESS": str(ATTEMPTS),
            "TRUSTED_PROXIES": "1",
        },
    )
    try:
        stack.start()
        world = World(stack)
        yield world
        world.close()
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def company(world: World, spa: Client) -> Iterator[Company]:
    with Company(world, spa, domains=[]) as company:
        yield company


@pytest.fixture
def address() -> str:
    """An address from which nothing was sent yet."""
    return f"2001:db8:{secrets.randbelow(2**16):x}:{secrets.randbelow(2**16):x}::1"


def keys_of(world: World, pattern: str = "*") -> set[bytes]:
    return set(world.redis.scan_iter(f"identity:{world.stack.tenant_id}:{pattern}", count=1000))


def memory(world: World, key: bytes) -> int:
    return int(world.redis.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0)


def stored_by(world: World, row: Row, send: Callable[[], None]) -> set[bytes]:
    """Return the keys of a row that these requests add."""
    before = keys_of(world, row.keys)
    send()
    return keys_of(world, row.keys) - before


def assert_bounded(world: World, keys: set[bytes], *, number: int, size: int) -> None:
    assert len(keys) == number
    assert max(memory(world, key) for key in keys) <= size
    assert all(0 < world.redis.ttl(key) <= WINDOW_S for key in keys)


def anybody(world: World, address: str) -> httpx.Client:
    return httpx.Client(
        base_url=world.stack.base_url,
        timeout=30,
        headers={"X-Forwarded-For": address, "Origin": world.stack.base_url},
    )


def signed_out_forms(
    world: World, address: str, cookie: str, *, size: int, count: int = PENDING, site: str = "console"
) -> list[httpx.Response]:
    """Send forms of a site that the cookie's session has not sent; the browser ignores new cookies."""
    with anybody(world, address) as browser:
        answers = []
        for _ in range(count):
            browser.cookies.clear()
            form = {"csrf_token": "x", "name": "n" * size}
            headers = {"Cookie": f"identity-{site}={cookie}"}
            answers.append(browser.post(f"{FORMS[site]}?{secrets.token_hex(4)}", data=form, headers=headers))
        return answers


def expired_cookie(world: World, site: str = "console") -> str:
    """Return the cookie of a session, of a user without any right, that has expired."""
    user = Administrator(world.stack)
    user.opens(f"/{site}")
    user.session_expires(site)
    return user.browser.cookies[f"identity-{site}"]


class TestTheConsole:
    row = ROWS["console-sign-in:*"]

    @pytest.mark.parametrize("site", SITES)
    def test_pages_without_a_session(self, world: World, address: str, site: str) -> None:
        row = ROWS[f"{site}-sign-in:*"]
        browser = anybody(world, address)
        statuses: list[int] = []

        def send() -> None:
            for query in ("", "q" * 1900, "q" * 30_000) * (PENDING // 3 + MORE):
                browser.cookies.clear()
                statuses.append(browser.get(f"{FORMS[site]}?search={query}").status_code)

        assert_bounded(world, stored_by(world, row, send), number=PENDING, size=row.bytes)
        assert statuses == [303] * PENDING + [429] * 3 * MORE

    def test_forms_of_a_browser_that_never_had_a_session(self, world: World, address: str) -> None:
        def send() -> None:
            for cookie in ("", "a.b", "a.b.c", "x" * 4000):
                signed_out_forms(world, address, cookie, size=MIB - 100)

        before = keys_of(world)
        stored = stored_by(world, self.row, send)
        assert sum(memory(world, key) for key in keys_of(world) - before) < (PENDING + 1) * self.row.bytes
        assert_bounded(world, stored, number=PENDING, size=self.row.bytes)

    @pytest.mark.parametrize("site", SITES)
    def test_forms_of_a_browser_that_had_a_session(self, world: World, address: str, site: str) -> None:
        row, cookie = ROWS[f"{site}-sign-in:*"], expired_cookie(world, site)
        statuses: list[int] = []

        def send() -> None:
            for size in (9000, 8100, 7000, 100_000):
                answers = signed_out_forms(world, address, cookie, size=size, site=site)
                statuses.extend(answer.status_code for answer in answers)

        assert_bounded(world, stored_by(world, row, send), number=PENDING, size=row.with_form)
        assert statuses == [413] * PENDING + [303] * PENDING + [429] * PENDING + [413] * PENDING

    def test_beyond_the_limit_what_was_typed_is_shown(self, world: World, address: str) -> None:
        cookie = expired_cookie(world)
        *_, answer = signed_out_forms(world, address, cookie, size=50, count=PENDING + 1)
        assert (answer.status_code, 1 <= int(answer.headers["Retry-After"]) <= WINDOW_S) == (429, True)
        assert f">\n{'n' * 50}</textarea>" in answer.text

    def test_a_browser_that_begins_again_is_still_known(self, world: World, address: str) -> None:
        with anybody(world, address) as browser:
            browser.get(CONSOLE, headers={"Cookie": f"identity-console={expired_cookie(world)}"})
            cookie = browser.cookies["identity-console"]
        keys = stored_by(
            world, self.row, lambda: assert_status(signed_out_forms(world, address, cookie, size=6000, count=1), 303)
        )
        assert max(memory(world, key) for key in keys) > 6000

    def test_a_sign_in_that_is_completed_counts_no_longer(self, world: World, address: str) -> None:
        user = Administrator(world.stack, "all")
        user.browser.headers["X-Forwarded-For"] = address

        def send() -> None:
            for _ in range(PENDING + MORE):
                user.browser.cookies.clear()
                assert user.opens().status_code == 200

        assert stored_by(world, self.row, send) == set()

    def test_a_callback_is_taken_once_and_kept_for_the_right_one(self, world: World, address: str) -> None:
        """A callback makes the console ask token-service as a client, which is recorded: not more than once each."""
        browser = anybody(world, address)
        location = httpx.URL(browser.get(CONSOLE).headers["Location"])
        known = {"state": location.params["state"], "iss": world.stack.issuer}
        for wrong in ({"state": "invented", "code": "c"}, {"code": "c"}, {"state": known["state"], "error": "x"}):
            assert browser.get(f"{CONSOLE}/callback", params=wrong).status_code == 400
            assert len(keys_of(world, f"console-sign-in:{browser.cookies['identity-console'].partition('.')[0]}")) == 1
        assert browser.get(f"{CONSOLE}/callback", params={**known, "code": "c"}).status_code == 400
        again = browser.get(f"{CONSOLE}/callback", params={**known, "code": "c"})
        assert (again.status_code, again.headers["Location"]) == (303, CONSOLE)


def assert_status(answers: list[httpx.Response], status: int) -> None:
    assert {answer.status_code for answer in answers} == {status}


def test_authorization_requests(world: World, spa: Client, address: str) -> None:
    row, person = ROWS["pending-authorization:*"], Person(world)
    person.browser.headers["X-Forwarded-For"] = address

    def send() -> None:
        for _ in range(PENDING + MORE):
            person.authorize(spa, **LARGEST)

    assert_bounded(world, stored_by(world, row, send), number=PENDING, size=row.bytes)


def test_challenges_for_passkeys(world: World, spa: Client, address: str) -> None:
    """A request has one however often its page is shown, and none once it is answered."""
    row, person = ROWS["passkey-challenge:*"], Person(world)
    person.browser.headers["X-Forwarded-For"] = address
    pages = []

    def send() -> None:
        for _ in range(MORE):
            page = person.follow(person.authorize(spa))
            pages.append(person.browser.get(page.url))

    keys = stored_by(world, row, send)
    assert_bounded(world, keys, number=MORE, size=row.bytes)
    for page in pages:
        person.cancel(page)
    assert keys & keys_of(world, row.keys) == set()


def test_wrong_passkeys_are_limited_as_wrong_passwords_are(world: World, spa: Client, address: str) -> None:
    person = Person(world)
    person.browser.headers["X-Forwarded-For"] = address
    page = person.follow(person.authorize(spa))
    form = {**Form(page.text).values, "credential": "{}"}
    answers = [person.browser.post("/sign-in/passkey", data=form) for _ in range(ATTEMPTS + 1)]
    assert [answer.status_code for answer in answers] == [200] * ATTEMPTS + [429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= WINDOW_S
    assert person.sign_in(answers[-1]).status_code == 429


@pytest.mark.parametrize("scopes", [60, 300, 370])
def test_large_authorization_requests(world: World, spa: Client, address: str, scopes: int) -> None:
    """A request counts once for every 6 KiB begun: all of an address together are as small as small ones."""
    row, person = ROWS["pending-authorization:*"], Person(world)
    person.browser.headers["X-Forwarded-For"] = address
    scope = " ".join(f"{number:03}:".ljust(128, "s") for number in range(scopes))

    def send() -> None:
        for _ in range(PENDING + MORE):
            person.post_authorization(spa, scope=scope, state="s" * 8192)

    keys = stored_by(world, row, send)
    weights = [-(-world.redis.strlen(key) // COUNTED) for key in keys]
    assert len(keys) == PENDING // weights[0] > 0
    assert all(memory(world, key) <= weight * row.bytes for key, weight in zip(keys, weights, strict=True))


@pytest.mark.parametrize(("size", "number"), [(5_000, PENDING), (60_000, 1), (70_000, 0)])
def test_forms_that_ask_to_sign_out(world: World, address: str, size: int, number: int) -> None:
    row = ROWS["pending-sign-out:*"]

    def send() -> None:
        for _ in range(PENDING + MORE):
            with anybody(world, address) as browser:
                browser.post("/oidc/session/end", data={"state": "s" * size})

    keys = stored_by(world, row, send)
    assert len(keys) == number
    assert all(memory(world, key) <= -(-size // COUNTED) * row.bytes for key in keys)
    assert all(0 < world.redis.ttl(key) <= 60 for key in keys)


def test_wrong_passwords(world: World, spa: Client, address: str) -> None:
    """The entries of the audit trail are as many; component/audit/test_exchanges.py fills half of the backlog."""
    row, person = ROWS["sign-in-attempts:*"], Person(world)
    person.browser.headers = httpx.Headers([(b"X-Forwarded-For", address.encode()), (b"User-Agent", b"\xe9" * 4000)])
    page = person.follow(person.authorize(spa))

    def send() -> None:
        for _ in range(ATTEMPTS + MORE):
            person.send(page, identifier=f"unknown-{secrets.token_hex(4)}" * 40, password="wrong")

    def recorded() -> list[bytes]:
        entries = world.management.logs.list(application_id=spa.id)
        return [msgspec.json.encode(entry) for entry in entries if entry.address == address]

    assert_bounded(world, stored_by(world, row, send), number=ATTEMPTS, size=row.bytes)
    eventually(lambda: len(recorded()) >= ATTEMPTS + 1)  # the last is the first one beyond the limit
    entries = recorded()
    assert len(entries) == ATTEMPTS + 1
    assert max(map(len, entries)) <= ROWS["audit:exchanges"].bytes


def test_requests_for_links(world: World, address: str) -> None:
    def send() -> None:
        with anybody(world, address) as browser:
            for _ in range(ATTEMPTS + MORE):
                browser.post("/sign-in/forgotten", data={"address": f"unknown-{secrets.token_hex(4)}@id.test"})

    row = ROWS["mails:recipient:*"]
    assert_bounded(world, stored_by(world, row, send), number=ATTEMPTS, size=row.bytes)


def test_visits_to_providers(world: World, spa: Client, company: Company, address: str) -> None:
    row, employee = ROWS["provider-visit:*"], Employee(company)
    employee.browser.headers["X-Forwarded-For"] = address

    def send() -> None:
        for _ in range(PENDING + MORE):
            employee.authorize(spa, direct_sign_in=f"sso:{company.connector}", login_hint="h" * 512)

    assert_bounded(world, stored_by(world, row, send), number=PENDING, size=row.bytes)


@pytest.mark.parametrize("counted", [keys for keys in ROWS if ":address:" in keys or ":client:" in keys])
def test_the_counts_themselves(world: World, spa: Client, company: Company, address: str, counted: str) -> None:
    row, person = ROWS[counted], Person(world)
    person.browser.headers["X-Forwarded-For"] = address

    def send() -> None:
        page = person.follow(person.authorize(spa))
        for _ in range(ATTEMPTS + MORE):
            person.send(page, identifier=f"unknown-{secrets.token_hex(4)}", password="wrong")
            person.browser.post("/sign-in/forgotten", data={"address": "unknown@id.test"})
        for _ in range(PENDING + MORE):
            person.browser.post("/sign-in/provider", data={**Form(page.text).values, "connector": company.connector})
            person.browser.post(f"/sign-in/backchannel-logout/{company.connector}", data={"logout_token": "x"})
            person.authorize(spa)
            person.browser.get(CONSOLE)
            person.browser.get("/account")
        for client_id in (spa.id, "invented"):
            for _ in range(ATTEMPTS + MORE):
                person.browser.post("/oidc/token/revocation", data={"token": "x"}, auth=(client_id, "wrong"))

    assert_bounded(world, stored_by(world, row, send), number=2, size=row.bytes)


def test_no_other_request_without_credentials_stores_anything(world: World, address: str) -> None:
    """Every operation of the API's document and every page, with invented ids, tokens, cookies and forms."""
    browser = anybody(world, address)
    document = browser.get("/api/swagger.json").json()
    before = keys_of(world)
    invented = [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp5"}]
    for path, operations in document["paths"].items():
        target = re.sub(r"\{[^}]+\}", "invented", path)
        for method in operations.keys() & {"get", "post", "put", "patch", "delete"}:
            for headers in invented:
                if target not in {"/oidc/auth", "/oidc/not-valid"}:
                    browser.request(method, target, headers=headers, data={"token": "x", "grant_type": "refresh_token"})
    for path in (
        "/sign-in",
        "/consent",
        "/consent/switch",
        "/sign-in/cancel",
        "/sign-in/recovery",
        "/sign-in/registration",
        "/sign-in/verification",
        "/oidc/session/end",
        f"{CONSOLE}/callback",
    ):
        browser.cookies.clear()
        for cookie in ("identity-console", "identity-session", "identity-browser", "identity-device"):
            browser.cookies.set(cookie, "a.b")
        browser.get(path, params={"request": "x", "code": "x", "state": "x", "id_token_hint": "x"})
        browser.post(path, data={"request": "x", "csrf_token": "x", "identifier": "x", "password": "x"})
    form = {"invitation": "x", "password": "invented twice", "repeated": "invented twice"}
    browser.post(f"{CONSOLE}/invitation", data=form)
    added = keys_of(world) - before
    assert {key for key in added if b":audit:" not in key and b":client-failures:address:" not in key} == set()


def test_every_key_in_redis_is_in_one_of_the_tables(world: World, spa: Client, address: str) -> None:
    """All tests of this module have run on this tenant, and the seed."""
    junk = {"grant_type": "refresh_token", "client_id": spa.id, "refresh_token": "ref_x"}
    for _ in range(2):
        assert anybody(world, address).post("/oidc/token", data=junk).status_code == 400
    eventually(lambda: bool(keys_of(world, "audit:exchanges:counted")))
    prefix = f"identity:{world.stack.tenant_id}:"
    found = {key.decode().removeprefix(prefix) for key in keys_of(world)}
    named = patterns()
    assert {key.partition(":")[0] for key in found} >= {"user", "session", "console-session", "console-sign-in"}
    assert {key for key in found if not any(fnmatchcase(key, pattern) for pattern in named)} == set()
