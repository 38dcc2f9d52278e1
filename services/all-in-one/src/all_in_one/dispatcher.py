"""The apps of the services at one address: plain ASGI with one routing table.

The lifespan of a mounted app would not run, so the dispatcher drives the lifespans itself.
"""

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from all_in_one.home import HOME_HEADERS
from all_in_one.metrics import CONTENT_TYPE, merged
from identity_common.http.layers.routed_path import routed_path
from identity_common.http.routing import Service, service_for
from identity_common.telemetry.observation import HEADER, request_id_of
from identity_common.version import VERSION

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOOPBACK: Final = ("127.0.0.1", "[::1]")
_JSON: Final[Mapping[str, str]] = {"content-type": "application/json"}
_NOT_FOUND: Final = b'{"code":"entity.not_found","message":"Nothing exists at this path."}'


class Dispatcher:
    """Routes each request to its service; answers ``/health/*`` and ``/metrics`` for all of them.

    Args:
        apps: The services.
        home: The page at ``/``.
        base_url: Browsers that open a page by an IP address of the same server are sent there: cookies and passkeys
            belong to a name. Programs are answered at each address.
    """

    def __init__(self, apps: Mapping[Service, AsgiApp], *, home: bytes = b"", base_url: str = "") -> None:
        self._apps = apps
        self._home = home
        self._base_url = base_url
        address = urlsplit(base_url)
        self._other_hosts = {f"{each}:{address.port}".encode() for each in _LOOPBACK} - {address.netloc.encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self._is_opened_by_address(scope):
            await _answer(scope, send, 307, b"", {"location": self._base_url + _target(scope)})
            return
        path = routed_path(scope)
        service = service_for(path)
        if path == "/" and scope.get("method") in {"GET", "HEAD"}:
            await _answer(scope, send, 200, self._home, HOME_HEADERS)
        elif service is not None:
            await self._apps[service](scope, receive, send)
        elif path in {"/health/live", "/health/ready"}:
            await self._health(scope, send)
        elif path == "/metrics" and _is_local(scope):
            answers = await asyncio.gather(*(_call(app, scope) for app in self._apps.values()))
            text = {service: body.decode() for service, (_, body) in zip(self._apps, answers, strict=True)}
            await _answer(scope, send, 200, merged(text), {"content-type": CONTENT_TYPE})
        else:
            await _answer(scope, send, 404, _NOT_FOUND)

    def _is_opened_by_address(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        is_opened = scope["method"] == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
        return is_opened and headers.get(b"host") in self._other_hosts

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start the apps together; stop those that started together, even if one fails to start or to stop."""
        lifespans = [_Lifespan(app) for app in self._apps.values()]
        await receive()
        results = await asyncio.gather(*(lifespan.startup() for lifespan in lifespans), return_exceptions=True)
        started = [lifespan for lifespan, result in zip(lifespans, results, strict=True) if result is None]
        if failures := _failures(results):
            await asyncio.gather(*(lifespan.shutdown() for lifespan in started), return_exceptions=True)
            await send({"type": "lifespan.startup.failed", "message": failures})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        results = await asyncio.gather(*(lifespan.shutdown() for lifespan in started), return_exceptions=True)
        if failures := _failures(results):
            await send({"type": "lifespan.shutdown.failed", "message": failures})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    async def _health(self, scope: Scope, send: Send) -> None:
        """Answer 200 if every service does."""
        answers = await asyncio.gather(*(_call(app, scope) for app in self._apps.values()))
        healthy = all(status == 200 for status, _ in answers)
        body = json.dumps({"status": "ok" if healthy else "starting", "version": VERSION}, separators=(",", ":"))
        await _answer(scope, send, 200 if healthy else 503, body.encode())


class LifespanFailed(Exception):  # noqa: N818 - named for what happened
    """An app failed to start or to stop."""


class _Lifespan:
    """Drives the lifespan protocol of one app."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(), name="lifespan")

    async def startup(self) -> None:
        await self._step("startup")

    async def shutdown(self) -> None:
        await self._step("shutdown")
        await self._task

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def _step(self, name: str) -> None:
        await self._to_app.put({"type": f"lifespan.{name}"})
        answer = await self._from_app.get()
        if answer["type"] != f"lifespan.{name}.complete":
            await asyncio.wait((self._task,))
            raise LifespanFailed(str(answer.get("message") or name)) from self._task.exception()


def _failures(results: Iterable[BaseException | None]) -> str:
    return "\n".join(str(result) for result in results if result is not None)


async def _call(app: AsgiApp, scope: Scope) -> tuple[int, bytes]:
    """Call an app in this process and return the status and the body of its response."""
    status, body = 0, b""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await app({**scope, "method": "GET", "state": {}}, receive, send)
    return status, body


def _target(scope: Scope) -> str:
    """Return the path and the query as they were sent."""
    path, query = scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii")
    return f"{path}?{query}" if query else path


def _is_local(scope: Scope) -> bool:
    """Whether the client is on this machine, and is not a proxy that forwards a request of another one."""
    client = scope.get("client")
    forwarded = any(name.lower() in {b"forwarded", b"x-forwarded-for"} for name, _ in scope["headers"])
    return client is not None and not forwarded and ipaddress.ip_address(client[0]).is_loopback


async def _answer(scope: Scope, send: Send, status: int, body: bytes, headers: Mapping[str, str] = _JSON) -> None:
    fields = [
        *((name.encode(), value.encode()) for name, value in headers.items()),
        (b"content-length", str(len(body)).encode()),
        (HEADER, request_id_of(scope["headers"])),
    ]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
