"""The three apps behind one address: plain ASGI, one routing table, their three lifespans driven from here.

A mounted app's lifespan would not run, so nothing is mounted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from identity_common.http.encoded_slashes import routed_path
from identity_common.http.routing import Service, service_for
from identity_common.telemetry.observation import HEADER, request_id_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOT_FOUND: Final = b'{"code":"entity.not_found","message":"Nothing exists at this path."}'


class Dispatcher:
    """Sends each request to the service that the routing table names; answers ``/health/*`` for the three together."""

    def __init__(self, apps: Mapping[Service, AsgiApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        path = routed_path(scope)
        service = service_for(path)
        if service is not None:
            await self._apps[service](scope, receive, send)
        elif path in {"/health/live", "/health/ready"}:
            await self._health(scope, send)
        else:
            await _answer(scope, send, 404, _NOT_FOUND)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start the three apps together; stop them together."""
        lifespans = [_Lifespan(app) for app in self._apps.values()]
        await receive()
        try:
            await asyncio.gather(*(lifespan.startup() for lifespan in lifespans))
        except LifespanFailed as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.gather(*(lifespan.shutdown() for lifespan in lifespans))
        await send({"type": "lifespan.shutdown.complete"})

    async def _health(self, scope: Scope, send: Send) -> None:
        """Answer 200 when every service does."""
        statuses = await asyncio.gather(*(_status(app, scope) for app in self._apps.values()))
        healthy = all(status == 200 for status in statuses)
        await _answer(scope, send, 200 if healthy else 503, b'{"status":"ok"}' if healthy else b'{"status":"starting"}')


class LifespanFailed(Exception):  # noqa: N818 - what happened
    """An app could not start."""


class _Lifespan:
    """Drives the lifespan protocol of one app."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        self._task = asyncio.create_task(self._run(), name="lifespan")
        await self._step("startup")

    async def shutdown(self) -> None:
        await self._step("shutdown")
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def _step(self, name: str) -> None:
        await self._to_app.put({"type": f"lifespan.{name}"})
        answer = await self._from_app.get()
        if answer["type"] != f"lifespan.{name}.complete":
            raise LifespanFailed(str(answer.get("message") or name))


async def _status(app: AsgiApp, scope: Scope) -> int:
    """Ask an app in this process and return the status of its answer."""
    status = 0

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await app({**scope, "method": "GET", "state": {}}, receive, send)
    return status


async def _answer(scope: Scope, send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (HEADER, request_id_of(scope["headers"])),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
