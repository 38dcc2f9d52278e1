"""Limits of password attempts, requests and mailed links count an address that no client chooses (CVE-2023-36456)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from provision import ServerAddresses
from tests.support.at_a_browser import Person, application, callback
from tests.support.world import World, own_world

pytestmark = pytest.mark.heavy

LIMIT = 3
ATTEMPTS = 5
PENDING = 12


def refused(world: World, forwarded_for: list[str]) -> int:
    """Return how many attempts, each at another account and with such a header, find the limit reached.

    The accounts do not exist, which counts like those that do (``test_password_throttle``).
    """
    spa, person = application(world, "SPA"), Person(world)
    answers = []
    for header in forwarded_for:
        person.browser = person.new_browser()
        person.browser.headers["X-Forwarded-For"] = header
        page, unknown = person.follow(person.authorize(spa)), f"unknown-{secrets.token_hex(4)}"
        answers.append(person.send(page, identifier=unknown, password="wrong").status_code)
    return answers.count(429)


@pytest.fixture(scope="module")
def behind_a_proxy(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = {"password_attempts_per_address": LIMIT, "pending_requests_per_address": PENDING}
    with own_world(servers, tmp_path_factory.mktemp("proxy"), "proxy", trusted_proxies=1, **limits) as world:
        yield world


@pytest.fixture(scope="module")
def without_a_proxy(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("address")
    with own_world(servers, directory, "address", trusted_proxies=0, password_attempts_per_address=LIMIT) as world:
        yield world


@pytest.mark.parametrize(
    ("forwarded_for", "expected"),
    [
        ([f"198.51.100.{n}" for n in range(ATTEMPTS)], 0),
        ([f"198.51.100.{n}, 203.0.113.7" for n in range(ATTEMPTS)], ATTEMPTS - LIMIT),
        ([f"2001:db8:0:7:{n}::1" for n in range(ATTEMPTS)], ATTEMPTS - LIMIT),
        ([f"2001:db8:1:{n}::1" for n in range(ATTEMPTS)], 0),
    ],
    ids=[
        "its entry counts",
        "earlier entries do not",
        "IPv6: a /64 is one address",
        "IPv6: another /64 is another address",
    ],
)
def test_behind_a_trusted_proxy_its_entry_says_where_a_request_comes_from(
    behind_a_proxy: World, forwarded_for: list[str], expected: int
) -> None:
    assert refused(behind_a_proxy, forwarded_for) == expected


def test_pending_requests_are_limited_per_address(behind_a_proxy: World) -> None:
    person, spa = Person(behind_a_proxy), application(behind_a_proxy, "SPA")
    person.browser.headers["X-Forwarded-For"] = "2001:db8:ffff:1:1::1"
    waiting = [person.authorize(spa) for _ in range(PENDING)]
    assert all("/sign-in" in answer.headers["Location"] for answer in waiting)
    refused = callback(person.authorize(spa))
    assert (refused["error"], refused["state"], refused["iss"]) == (
        "temporarily_unavailable",
        "s-1",
        behind_a_proxy.stack.issuer,
    )
    assert callback(person.authorize(spa, prompt="none"))["error"] == "login_required"
    neighbour = Person(behind_a_proxy)
    neighbour.browser.headers["X-Forwarded-For"] = "2001:db8:ffff:2:1::1"
    assert neighbour.code(spa)
    assert callback(person.sign_in(person.follow(waiting[0])))["code"]
    person.browser.cookies.delete("identity-session")
    assert "/sign-in" in person.authorize(spa).headers["Location"], "an answered request waits no longer"
    assert callback(person.authorize(spa))["error"] == "temporarily_unavailable"


def test_mails_with_links_are_limited_per_address(behind_a_proxy: World) -> None:
    """Requests for a new password and for an account count together, each for another recipient."""
    behind_a_proxy.management.sign_in_policy.update(registration="open")
    behind_a_proxy.caught_up()
    browser = Person(behind_a_proxy).browser

    def ask(path: str, source: str) -> httpx.Response:
        recipient = f"victim-{secrets.token_hex(4)}@id.test"
        return browser.post(path, data={"address": recipient}, headers={"X-Forwarded-For": source})

    paths = ["/sign-in/forgotten", "/sign-in/register"] * LIMIT
    answers = [ask(path, "2001:db8:ffff:3:1::1") for path in paths]
    assert [answer.status_code for answer in answers] == [200] * LIMIT + [429] * LIMIT
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers[LIMIT:])
    assert [ask(path, "2001:db8:ffff:4:1::1").status_code for path in paths[:2]] == [200, 200]


def test_without_a_trusted_proxy_the_header_is_ignored(without_a_proxy: World) -> None:
    assert refused(without_a_proxy, [f"198.51.100.{n}" for n in range(ATTEMPTS)]) == ATTEMPTS - LIMIT


def test_addresses_that_a_proxy_hides_are_reported_once(without_a_proxy: World, logs: Path) -> None:
    person, spa = Person(without_a_proxy), application(without_a_proxy, "SPA")
    person.browser.headers["X-Forwarded-For"] = "198.51.100.7"
    page = person.follow(person.authorize(spa))

    def reports_after(attempts: int) -> int:
        for _ in range(attempts):
            person.sign_in(page, password="wrong")
        return logs.read_text().count("sign-in.addresses-hidden")

    before = reports_after(0)
    assert [reports_after(20), reports_after(20)] == [before + 1] * 2
