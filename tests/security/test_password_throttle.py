"""Guessing passwords at the sign-in page: what is counted, and which attempts are locked out."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

import httpx2 as httpx
import pytest

from provision import ServerAddresses
from stead import NotFound
from tests.support.at_a_browser import PASSWORD, Person, application, callback, plant
from tests.support.hashing_cost import real_hashing_cost
from tests.support.lengths import length
from tests.support.world import Client, World, own_world
from token_service.sign_in.pages.cookies import DEVICE, SESSION

pytestmark = pytest.mark.heavy

LIMIT = 10
ATTEMPTS = length(short=300, long=450)


@pytest.fixture(scope="module")
def world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world of its own: the limit of the one address that all tests share is out of reach."""
    directory = tmp_path_factory.mktemp("throttle")
    with own_world(servers, directory, "throttle", password_attempts_per_address=10_000) as world:
        yield world


@pytest.fixture
def costly_world(servers: ServerAddresses, tmp_path: Path) -> Iterator[World]:
    with (
        real_hashing_cost(),
        own_world(servers, tmp_path, "costly", password_attempts_per_address=10_000) as world,
    ):
        yield world


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def person(world: World) -> Person:
    return Person(world)


class Attacker:
    """A browser without any cookie of the person, which sends the form of one page again and again."""

    def __init__(self, person: Person, client: Client) -> None:
        self._at_browser = copy(person)
        self._at_browser.browser = person.new_browser()
        self._page = self._at_browser.follow(self._at_browser.authorize(client))

    def attempt(self, identifier: str | None = None, password: str = "wrong") -> httpx.Response:
        identifier = identifier or self._at_browser.username
        return self._at_browser.send(self._page, identifier=identifier, password=password)

    def exhaust(self, identifier: str | None = None) -> None:
        """Guess until the limit is reached."""
        assert [self.attempt(identifier).status_code for _ in range(LIMIT)] == [200] * LIMIT
        assert self.attempt(identifier).status_code == 429


def sign_in_again(person: Person, client: Client, password: str = PASSWORD) -> httpx.Response:
    """Sign in with the person's own browser, which has no session but every other cookie."""
    person.browser.cookies.delete(SESSION)
    return person.sign_in(person.follow(person.authorize(client)), password=password)


@pytest.mark.heavy
def test_an_account_has_one_count_however_it_is_named(world: World, spa: Client) -> None:
    person = Person(world)
    email, phone = f"{person.username}@example.com", f"+49151{secrets.randbelow(10**8):08}"
    world.management.users.update(person.user_id, primary_email=email, primary_phone=phone)
    spellings = [person.username, email.upper(), phone, phone.removeprefix("+"), person.username.upper()]
    attacker = Attacker(person, spa)
    answers = [attacker.attempt(spelling).status_code for spelling in spellings * 3]
    assert answers == [200] * LIMIT + [429] * 5


def test_an_unknown_name_is_throttled_like_a_known_one(person: Person, spa: Client) -> None:
    unknown, attacker = f"nobody-{secrets.token_hex(4)}", Attacker(person, spa)
    attacker.exhaust()
    attacker.exhaust(unknown)
    known, other = attacker.attempt(), attacker.attempt(unknown.upper())
    assert known.status_code == other.status_code == 429
    assert 0 < int(known.headers["Retry-After"]) <= 900
    assert 0 < int(other.headers["Retry-After"]) <= 900
    assert "Too many attempts. Try again in 15 minutes." in known.text
    assert "Too many attempts. Try again in 15 minutes." in other.text


def test_wrong_passwords_from_elsewhere_do_not_lock_the_right_person_out(person: Person, spa: Client) -> None:
    person.code(spa)
    attacker = Attacker(person, spa)
    attacker.exhaust()
    assert callback(sign_in_again(person, spa))["code"]
    assert attacker.attempt().status_code == 429, "a sign-in of the right person gives the attacker no more attempts"


def test_a_known_browser_has_ten_attempts_too(person: Person, spa: Client) -> None:
    person.code(spa)
    assert [sign_in_again(person, spa, "wrong").status_code for _ in range(LIMIT)] == [200] * LIMIT
    assert sign_in_again(person, spa).status_code == 429


@pytest.mark.heavy
def test_two_people_at_one_browser_are_both_known(world: World, person: Person, spa: Client) -> None:
    other = Person(world)
    other.browser = person.browser
    person.code(spa)
    person.browser.cookies.delete(SESSION)
    other.code(spa)
    for each in (person, other):
        Attacker(each, spa).exhaust()
        assert callback(sign_in_again(each, spa))["code"]


def test_a_known_browser_of_one_person_is_unknown_to_the_account_of_another(
    world: World, person: Person, spa: Client
) -> None:
    thief = Person(world)
    thief.code(spa)
    Attacker(person, spa).exhaust()
    thief.browser.cookies.delete(SESSION)
    page = thief.follow(thief.authorize(spa))
    assert thief.send(page, identifier=person.username, password="wrong").status_code == 429


@pytest.fixture(scope="module")
def under_attack(world: World, spa: Client) -> tuple[Person, str]:
    """A person whose account is locked for unknown browsers, and the genuine device cookie."""
    person = Person(world)
    person.code(spa)
    genuine = str(person.browser.cookies.get(DEVICE))
    Attacker(person, spa).exhaust()
    return person, genuine


@pytest.mark.heavy
@pytest.mark.parametrize("change", ["cut", "changed", "without a signature", "empty"])
def test_a_forged_device_cookie_is_ignored(under_attack: tuple[Person, str], spa: Client, change: str) -> None:
    person, genuine = under_attack
    payload, _, signature = genuine.partition(".")
    forged = {
        "cut": genuine[:-1],
        "changed": f"{payload[:-2]}AA.{signature}",
        "without a signature": payload,
        "empty": ".",
    }[change]
    plant(person.browser, DEVICE, forged)
    assert sign_in_again(person, spa).status_code == 429


def test_a_new_password_lifts_the_limit_and_voids_known_browsers(world: World, person: Person, spa: Client) -> None:
    person.code(spa)
    attacker = Attacker(person, spa)
    attacker.exhaust()
    world.management.users.set_password(person.user_id, "another good passphrase")
    assert callback(Attacker(person, spa).attempt(password="another good passphrase"))["code"]
    attacker.exhaust()
    assert sign_in_again(person, spa, "another good passphrase").status_code == 429


def test_an_administrator_clears_the_attempts_of_an_account(world: World, person: Person, spa: Client) -> None:
    person.code(spa)
    attacker = Attacker(person, spa)
    attacker.exhaust()
    assert [sign_in_again(person, spa, "wrong").status_code for _ in range(LIMIT + 1)][-1] == 429
    world.management.users.clear_sign_in_attempts(person.user_id)
    assert callback(sign_in_again(person, spa))["code"]
    attacker.exhaust()
    with pytest.raises(NotFound):
        world.management.users.clear_sign_in_attempts("nobody")


@pytest.mark.heavy
def test_under_load_attempts_are_answered_in_time_or_refused_with_retry_after(costly_world: World) -> None:
    """Nine of ten were refused while the service went on hashing the passwords of requests that had timed out."""
    world, spa = costly_world, application(costly_world, "SPA")
    person = Person(world)
    no_limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    person.browser = httpx.Client(base_url=world.stack.base_url, timeout=60, limits=no_limits)
    page = person.follow(person.authorize(spa))

    def attempt(number: int) -> httpx.Response:
        return person.send(page, identifier=f"nobody-{number}", password="wrong")

    with ThreadPoolExecutor(150) as crowd:
        answers = list(crowd.map(attempt, range(ATTEMPTS)))
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers if answer.status_code == 503)
    assert [answer.status_code for answer in answers].count(200) > ATTEMPTS / 10
    assert callback(person.sign_in(page))["code"], "nothing stale is left in the queue"
