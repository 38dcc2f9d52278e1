"""RFC 9110 section 9.3.2: ``HEAD`` returns the headers of ``GET`` without the body, wherever ``GET`` is supported."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from tests.support.ended_tokens import management_http
from tests.support.world import World

NOT_COMPARED = frozenset({"x-request-id", "date", "set-cookie", "location", "transfer-encoding"})
"""Different in each response; the last one is about the body."""


def paths(world: World) -> list[str]:
    """Return the path of every documented GET, with ids that nothing has."""
    document = world.stack.http.get("/api/swagger.json").json()
    found = [path.replace("{", "").replace("}", "") for path, item in document["paths"].items() if "get" in item]
    return [*found, "/health/live", "/health/ready", "/", "/sign-in", "/consent", "/console", "/nothing"]


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
