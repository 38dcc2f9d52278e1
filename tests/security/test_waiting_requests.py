"""Requests wait for a revision, and anyone can send them with the id of a public client: none takes all places."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import application
from tests.support.world import World

pytestmark = pytest.mark.heavy

PLACES = 200
UNREACHABLE = {"Identity-Revision": "management:999999999"}
KEYWORD = {"Identity_Revision": UNREACHABLE["Identity-Revision"]}
LATE = "the awaited revision has not arrived yet"
TOO_MANY = "too many requests of this client are waiting for a change"


async def test_the_requests_of_one_client_that_may_wait_are_limited(world: World) -> None:
    public = application(world, "SPA")
    forms = {
        "/oidc/token": {"grant_type": "refresh_token", "client_id": public.id, "refresh_token": "ref_unknown"},
        "/oidc/token/introspection": {"token": "unknown"},
    }
    credentials = {"/oidc/token": None, "/oidc/token/introspection": world.traditional.basic}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=world.stack.base_url, limits=limits, timeout=30) as client:

        async def outcome(path: str) -> tuple[int, str]:
            answer = await client.post(path, data=forms[path], auth=credentials[path], headers=UNREACHABLE)
            return answer.status_code, answer.json()["error_description"]

        for path in forms:
            another = asyncio.create_task(asyncio.to_thread(world.client_credentials, headers=KEYWORD))
            found = Counter(await asyncio.gather(*(outcome(path) for _ in range(2 * PLACES))))
            assert found.keys() == {(503, LATE), (503, TOO_MANY)}
            answer = await another
            assert (answer.status_code, answer.json()["error_description"]) == (503, LATE)
        assert (await outcome("/oidc/token")) == (503, LATE)  # the places are free again
