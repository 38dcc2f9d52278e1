"""What the dispatcher of all-in-one answers by itself."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2 as httpx
import pytest
from litestar import Litestar

from all_in_one.dispatcher import Dispatcher


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", 200),
        ("/metrics/else", 404),
        ("/", 200),
        ("/schema/openapi.json", 404),
        ("/health/else", 404),
        ("/health/ready", 200),
    ],
)
async def test_every_answer_has_a_request_id(path: str, status: int) -> None:
    transport = httpx.ASGITransport(Dispatcher({}))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answers = [
            await client.get(path, headers=headers)
            for headers in ({}, {"X-Request-Id": "mine-1"}, {"X-Request-Id": "not mine"})
        ]
    assert {answer.status_code for answer in answers} == {status}
    made, kept, refused = (answer.headers["X-Request-Id"] for answer in answers)
    assert kept == "mine-1"
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in (made, refused))
    assert made != refused


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.1", {}, 404),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.1"}, 404),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.1"}, 404),
    ],
)
async def test_metrics_are_for_this_machine_alone(client: str, headers: dict[str, str], status: int) -> None:
    transport = httpx.ASGITransport(Dispatcher({}), client=(client, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get("/metrics", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("host", "method", "mode", "moves"),
    [
        ("127.0.0.1:3000", "GET", "navigate", True),
        ("[::1]:3000", "GET", "navigate", True),
        ("localhost:3000", "GET", "navigate", False),
        ("127.0.0.1:3001", "GET", "navigate", False),
        ("localhost.example.com:3000", "GET", "navigate", False),
        ("127.0.0.1:3000", "POST", "navigate", False),
        ("127.0.0.1:3000", "GET", "cors", False),
        ("127.0.0.1:3000", "GET", None, False),
    ],
)
async def test_a_browser_that_opens_a_page_by_an_ip_address_is_sent_to_the_name(
    host: str, method: str, mode: str | None, moves: bool
) -> None:
    transport = httpx.ASGITransport(Dispatcher({}, base_url="http://localhost:3000"))
    headers = {"Host": host, **({"Sec-Fetch-Mode": mode} if mode else {})}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as http:
        answer = await http.request(method, "/health//else/%0d%0a?a=%26&b", headers=headers)
    location = "http://localhost:3000/health//else/%0d%0a?a=%26&b"
    assert (answer.status_code, answer.headers.get("Location")) == ((307, location) if moves else (404, None))


async def test_an_app_that_fails_to_stop_does_not_keep_another_from_stopping() -> None:
    stopped: list[str] = []

    answers = await lifespan_answers(
        management=Litestar(on_shutdown=[fail]), template=Litestar(on_shutdown=[stop_later(stopped, "template")])
    )

    assert stopped == ["template"]
    assert [answer["type"] for answer in answers] == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
    assert "the store is away" in answers[1]["message"]


async def test_an_app_that_fails_to_start_stops_those_that_started() -> None:
    stopped: list[str] = []

    answers = await lifespan_answers(
        management=Litestar(on_startup=[fail]), template=Litestar(on_shutdown=[stop_later(stopped, "template")])
    )

    assert stopped == ["template"]
    assert [answer["type"] for answer in answers] == ["lifespan.startup.failed"]
    assert "the store is away" in answers[0]["message"]


async def fail() -> None:
    raise RuntimeError("the store is away")


def stop_later(stopped: list[str], name: str) -> Callable[[], Awaitable[None]]:
    async def stop() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        stopped.append(name)

    return stop


async def lifespan_answers(**apps: Litestar) -> list[Any]:
    """Start and stop the apps; return what the dispatcher sends."""
    requests = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    answers: list[Any] = []

    async def receive() -> dict[str, str]:
        return next(requests)

    async def send(message: Any) -> None:
        answers.append(message)

    await Dispatcher(apps)({"type": "lifespan"}, receive, send)  # type: ignore[arg-type]
    return answers
