"""The limit on password attempts counts addresses that a client cannot choose (CVE-2023-36456)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provision import ServerAddresses
from tests.support.at_a_browser import Person, application
from tests.support.world import World, own_world

pytestmark = pytest.mark.heavy

LIMIT = 5
ATTEMPTS = 8


def refused(world: World, forwarded_for: list[str]) -> int:
    """Return how many attempts, each at another account and with such a header, find the limit reached."""
    spa = application(world, "SPA")
    answers = []
    for header in forwarded_for:
        person = Person(world)
        person.browser.headers["X-Forwarded-For"] = header
        answers.append(person.sign_in(person.follow(person.authorize(spa)), password="wrong").status_code)
    return answers.count(429)


@pytest.fixture(scope="module")
def behind_a_proxy(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("proxy")
    with own_world(servers, directory, "proxy", trusted_proxies=1, password_attempts_per_address=LIMIT) as world:
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


def test_without_a_trusted_proxy_the_header_is_ignored(servers: ServerAddresses, tmp_path: Path) -> None:
    with own_world(servers, tmp_path, "address", trusted_proxies=0, password_attempts_per_address=LIMIT) as world:
        assert refused(world, [f"198.51.100.{n}" for n in range(ATTEMPTS)]) == ATTEMPTS - LIMIT


def test_addresses_that_a_proxy_hides_are_reported_once(servers: ServerAddresses, tmp_path: Path, logs: Path) -> None:
    def reports() -> int:
        return logs.read_text().count("sign-in.addresses-hidden")

    before = reports()
    with own_world(servers, tmp_path, "address", trusted_proxies=0, password_attempts_per_address=LIMIT) as world:
        person, spa = Person(world), application(world, "SPA")
        person.browser.headers["X-Forwarded-For"] = "198.51.100.7"
        page = person.follow(person.authorize(spa))
        for _ in range(19):
            person.sign_in(page, password="wrong")
        assert reports() == before
        for _ in range(21):
            person.sign_in(page, password="wrong")
        assert reports() == before + 1
