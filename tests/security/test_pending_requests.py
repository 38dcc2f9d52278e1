"""What an unauthenticated client can store by sending authorization requests: bounded in size, time and number."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.world import Client, World

pytestmark = pytest.mark.heavy

MAX_RECORD_BYTES = 64 * 1024 + 256
"""The request, and what binds it to its browser."""


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def person(world: World) -> Person:
    return Person(world)


def stored(world: World) -> set[bytes]:
    """Return the keys of the pending requests, some of which may expire at any time."""
    return set(world.redis.scan_iter(f"identity:{world.stack.tenant_id}:pending-authorization:*"))


LARGEST = {
    "state": "s" * 8192,
    "nonce": "n" * 512,
    "login_hint": "h" * 512,
    "scope": " ".join(["openid", *(f"{number:03}:".ljust(128, "s") for number in range(300))]),
}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"state": "s" * 8193}, "invalid_request"),
        ({"scope": " ".join(f"s{n}" for n in range(501))}, "invalid_scope"),
        ({"resource": [f"https://{n}.example.com" for n in range(21)]}, "invalid_request"),
        ({"state": "\u4e16" * 3000}, "invalid_request"),
        ({"state": "\x01" * 8192, "scope": LARGEST["scope"]}, "invalid_request"),
    ],
    ids=["state", "scopes", "resources", "wide", "escaped"],
)
def test_a_request_larger_than_a_client_needs_is_refused_and_not_stored(
    world: World, person: Person, spa: Client, changes: dict[str, Any], error: str
) -> None:
    before = stored(world)
    answer = callback(person.post_authorization(spa, **changes))
    assert answer["error"] == error
    assert answer.get("state") == (
        changes.get("state", "s-1") if len(changes.get("state", "").encode()) <= 8192 else None
    ), "if it is not too long"
    assert stored(world) <= before


def test_the_largest_request_is_stored_in_a_bounded_record_for_a_quarter_of_an_hour(
    world: World, person: Person, spa: Client
) -> None:
    before = stored(world)
    arrived = person.post_authorization(spa, **LARGEST)
    (key,) = stored(world) - before
    assert 0 < world.redis.ttl(key) <= 60
    page = person.follow(person.follow(arrived))
    assert heading(page) == "Sign in"
    assert heading(person.follow(arrived)) == "Start again"
    assert key not in stored(world)
    (key,) = stored(world) - before
    assert 48_000 < world.redis.strlen(key) <= MAX_RECORD_BYTES
    assert 0 < world.redis.ttl(key) <= 900
    assert callback(person.sign_in(page))["state"] == LARGEST["state"]
    assert key not in stored(world)


def test_a_signed_in_user_has_an_hour_to_decide_about_a_consent(world: World, person: Person) -> None:
    before = stored(world)
    partner = application(world, "SPA", third_party=True)
    for _ in range(2):  # once through the sign-in, once with a session
        answer = person.authorize(partner)
        if "/sign-in" in answer.headers["Location"]:
            answer = person.sign_in(person.follow(answer))
        (key,) = stored(world) - before
        assert 900 < world.redis.ttl(key) <= 3600
        assert callback(person.send(person.follow(answer), decision="deny"))["error"] == "access_denied"
