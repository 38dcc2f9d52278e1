"""RFC 9110 section 9.3.2: ``HEAD`` returns the headers of ``GET`` without the body, wherever ``GET`` is safe."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import chain
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.administrator import CONSOLE, Administrator
from tests.support.at_a_browser import Person, application
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.ended_tokens import management_http
from tests.support.world import World

NOT_COMPARED = frozenset({"x-request-id", "date", "set-cookie", "location", "transfer-encoding"})
"""Different in each response; the last one is about the body."""


def paths(world: World) -> list[str]:
    """Return the path of every documented GET, with ids that nothing has."""
    document = world.stack.http.get("/api/swagger.json").json()
    found = [path.replace("{", "").replace("}", "") for path, item in document["paths"].items() if "get" in item]
    return [*found, "/health/live", "/health/ready", "/", "/sign-in/style.css", "/nothing"]


def headers_of(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in NOT_COMPARED}


def test_head_is_as_get_without_a_body_everywhere(world: World) -> None:
    """With the rights of the Management API, or of a reader of the feed."""
    with management_http(world) as management:
        authorization = {"Authorization": management.headers["Authorization"]}
    for path in paths(world):
        options: Any = {"headers": authorization} if path.startswith("/api/") else {"auth": world.traditional.basic}
        head = world.stack.http.head(path, **options)
        with world.stack.http.stream("GET", path, **options) as get:
            assert (head.status_code, head.content) == (get.status_code, b""), path
            assert headers_of(head) == headers_of(get), path


@pytest.mark.parametrize("path", ["/oidc/token", "/oidc/token/introspection", "/api/subject-tokens"])
def test_where_get_is_not_supported_head_is_not_either(world: World, path: str) -> None:
    """Section 15.5.6: Allow lists what is supported."""
    answer = world.stack.http.head(path)

    assert (answer.status_code, answer.content) == (405, b"")
    assert "HEAD" not in answer.headers["Allow"]


def test_head_of_the_stream_of_the_feed_ends_at_once(world: World) -> None:
    answer = world.stack.http.head("/oidc/not-valid/events", auth=world.traditional.basic)

    assert (answer.status_code, answer.headers["Content-Type"], answer.content) == (200, "text/event-stream", b"")


STORED_BY_BROWSERS = (
    *("pending-authorization*", "session:*", "code:*"),
    *("console-session:*", "console-sign-in*", "account-session:*", "account-sign-in*"),
)


def stored(world: World, *, besides: Container[bytes] = ()) -> dict[bytes, bytes | None]:
    """Return what browsers have stored in Redis."""
    kinds = (world.redis.scan_iter(f"identity:*:{kind}", count=1000) for kind in STORED_BY_BROWSERS)
    return {key: world.redis.dump(key) for key in chain.from_iterable(kinds) if key not in besides}


def undocumented_paths(world: World) -> list[str]:
    """Return the path of every GET that is not in the document, with ids that nothing has."""
    return sorted(
        re.sub(r"\{[^}]+\}", "0a0a0a", route.path_format)
        for app in world.stack.apps.values()
        for route in app.routes
        for handler in getattr(route, "route_handlers", [])
        if "GET" in handler.http_methods and not handler.resolve_include_in_schema()
    )


@pytest.mark.heavy
def test_head_changes_nothing_that_the_get_of_a_browser_changes(world: World) -> None:
    """Section 9.2.1: whatever a signed-in browser could get with these parameters, HEAD leaves it to be got."""
    of_others = stored(world).keys()  # they expire
    person, spa = Person(world), application(world, "SPA")
    hint = person.redeem(spa, *person.code(spa))["id_token"]
    arrived = httpx.URL(person.post_authorization(spa).headers["Location"])
    administrator = Administrator(world.stack, "all")
    page = administrator.opens(f"{CONSOLE}/roles/new")
    administrator.sends(page, name=f"Role of {administrator.username}", description="", type="User")
    starting = httpx.Client(base_url=world.stack.base_url)
    callback_state = httpx.URL(starting.get(CONSOLE).headers["Location"]).params["state"]
    sent = {
        "client_id": spa.id,
        "redirect_uri": REDIRECT_URI,
        "response_type": "code",
        "scope": "openid",
        "code_challenge": Verifier().challenge,
        "code_challenge_method": "S256",
        "request": arrived.params["request"],
        "id_token_hint": hint,
        "state": callback_state,
        "code": "c",
        "iss": world.stack.issuer,
    }
    before = stored(world, besides=of_others)
    for path in undocumented_paths(world):
        for browser in (person.browser, administrator.browser, starting):
            assert browser.head(path, params=sent).content == b""
        assert stored(world, besides=of_others) == before, path

    assert person.browser.get("/oidc/auth", params=sent).headers["Location"].startswith(REDIRECT_URI)
    assert "code=" in person.browser.get(arrived).headers["Location"]


@pytest.mark.parametrize(
    "path",
    ["/oidc/auth", "/oidc/auth/continue", "/sign-in", "/consent", "/oidc/session/end", CONSOLE, f"{CONSOLE}/callback"],
)
def test_where_get_is_not_safe_head_is_not_supported(world: World, path: str) -> None:
    """Sections 9.2.1 and 10.2.1: not in ``Allow`` either, whatever was not allowed."""
    for method in ("HEAD", "PUT", "OPTIONS"):
        answer = world.stack.http.request(method, path)
        assert answer.status_code == (204 if method == "OPTIONS" else 405)
        assert "GET" in answer.headers["Allow"]
        assert "HEAD" not in answer.headers["Allow"]
