"""What an unauthenticated client can store by sending authorization requests: bounded in size, time and number."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from provision import ServerAddresses
from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.world import Client, World, own_world

pytestmark = pytest.mark.heavy

PER_ADDRESS = 40
MAX_RECORD_BYTES = 6 * 1024 + 256
"""The request, and what binds it to its browser."""


@pytest.fixture(scope="module")
def world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = {"pending_requests_per_address": PER_ADDRESS, "trusted_proxies": 1}
    with own_world(servers, tmp_path_factory.mktemp("pending"), "pending", **limits) as world:
        yield world


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def person(world: World) -> Person:
    """A person with an address of their own."""
    person = Person(world)
    person.browser.headers["X-Forwarded-For"] = f"2001:db8:{secrets.randbelow(2**16):x}:{secrets.randbelow(2**16):x}::1"
    return person


def stored(world: World) -> dict[bytes, bytes]:
    """Return the pending requests."""
    keys = list(world.redis.scan_iter(f"identity:{world.stack.tenant_id}:pending-authorization:*"))
    return {key: value for key in keys if (value := world.redis.get(key)) is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "s" * 2049},
        {"nonce": "n" * 513},
        {"login_hint": "h" * 513},
        {"scope": " ".join(f"s{n}" for n in range(101))},
        {"resource": [f"https://{n}.example.com" for n in range(21)]},
        {"scope": " ".join("s" * 70 + str(n) for n in range(100))},
        {"resource": [f"https://{n}.example.com/{'r' * 400}" for n in range(20)]},
        {"state": "\u4e16" * 2048},
        {"state": "\x01" * 2048},
    ],
    ids=["state", "nonce", "login_hint", "scopes", "resources", "long scopes", "long resources", "wide", "escaped"],
)
def test_a_request_larger_than_a_client_needs_is_refused_and_not_stored(
    world: World, person: Person, spa: Client, changes: dict[str, Any]
) -> None:
    before = stored(world)
    assert callback(person.authorize(spa, **changes))["error"] == "invalid_request"
    assert stored(world) == before


def test_the_largest_request_is_stored_in_a_bounded_record_for_a_quarter_of_an_hour(
    world: World, person: Person, spa: Client
) -> None:
    before = stored(world)
    everything = {
        "state": "s" * 2048,
        "nonce": "n" * 512,
        "login_hint": "h" * 512,
        "scope": " ".join(f"scope-{n}" for n in range(100)),
    }
    page = person.follow(person.authorize(spa, **everything))
    assert heading(page) == "Sign in"
    ((key, record),) = stored(world).items() - before.items()
    assert 4000 < len(record) <= MAX_RECORD_BYTES
    assert 0 < world.redis.ttl(key) <= 900
    assert callback(person.sign_in(page))["state"] == everything["state"]
    assert key not in stored(world)


def test_a_signed_in_user_has_an_hour_to_decide_about_a_consent(world: World, person: Person) -> None:
    before = stored(world)
    partner = application(world, "SPA", third_party=True)
    for _ in range(2):  # once through the sign-in, once with a session
        answer = person.authorize(partner)
        if "/sign-in" in answer.headers["Location"]:
            answer = person.sign_in(person.follow(answer))
        ((key, _record),) = stored(world).items() - before.items()
        assert 900 < world.redis.ttl(key) <= 3600
        assert callback(person.send(person.follow(answer), decision="deny"))["error"] == "access_denied"


def test_pending_requests_are_limited_per_address(world: World, person: Person, spa: Client) -> None:
    waiting = [person.authorize(spa) for _ in range(PER_ADDRESS)]
    assert all("/sign-in" in answer.headers["Location"] for answer in waiting)
    refused = callback(person.authorize(spa))
    assert (refused["error"], refused["state"], refused["iss"]) == (
        "temporarily_unavailable",
        "s-1",
        world.stack.issuer,
    )
    assert callback(person.authorize(spa, prompt="none"))["error"] == "login_required"
    neighbour = Person(world)
    neighbour.browser.headers["X-Forwarded-For"] = "2001:db8:ffff:1:2::1"
    assert neighbour.code(spa)
    assert callback(person.sign_in(person.follow(waiting[0])))["code"]
    person.browser.cookies.delete("identity-session")
    assert "/sign-in" in person.authorize(spa).headers["Location"], "an answered request waits no longer"
    assert callback(person.authorize(spa))["error"] == "temporarily_unavailable"
