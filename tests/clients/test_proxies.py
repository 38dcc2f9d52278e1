"""The verifier process behind nginx, Caddy, Traefik and Envoy, each with its configuration of deploy/verifier."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2 as httpx
import jwt
import msgspec
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from stead import CallerUnknown, ProxiedCaller, proxied_caller
from stead.verify.proxied import HEADERS
from stead.verify.signed_tokens import MAX_TOKEN_CHARS
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from tests.support.world import World
from tests.unit.sdk.http_server import Answer, HttpServer, Received

pytestmark = pytest.mark.clients

DEPLOY = Path(__file__).parents[2] / "deploy" / "verifier"
NOBODY_HAS = "a%2Fb:50%25"
"""The scope ``a/b:50%`` as it stands in the path of a check: every proxy but Caddy passes it on as it is."""

SPOOFED = dict.fromkeys(
    (
        "X-Auth-Subject",
        "X_Auth_Subject",
        "X-Auth_Actor",
        "x_auth-scope",
        "X-Auth-Organization",
        "X-Auth-Acr",
        "X-Auth-Actor-Acr",
        "X_AUTH_ACTOR",
    ),
    "spoofed",
)
HOP_BY_HOP: dict[str, Sequence[str]] = {
    **{f"only {name}": (f"Connection: {name}",) for name in HEADERS},
    "all": (f"Connection: {', '.join(HEADERS)}",),
    "in capitals, with tabs and empty members": (f"CONNECTION: close,\t,{' ,'.join(HEADERS).upper()},",),
    "several headers": ("Connection: keep-alive", *(f"Connection: {name.title()}" for name in HEADERS)),
    "folded": ("Connection: close,\r\n X-Auth-Actor",),
    "Proxy-Connection": (f"Proxy-Connection: {', '.join(HEADERS)}",),
    "Keep-Alive": ("Keep-Alive: X-Auth-Actor", "Connection: Keep-Alive, X-Auth-Actor"),
    "TE": ("TE: trailers, X-Auth-Actor", "Connection: TE, X-Auth-Actor"),
    "WebSocket": ("Upgrade: websocket", f"Connection: Upgrade, {', '.join(HEADERS)}"),
    "h2c": ("Upgrade: h2c", "HTTP2-Settings: AAMAAABk", "Connection: Upgrade, HTTP2-Settings, X-Auth-Actor"),
    "the token": ("Connection: Authorization",),
    "the address": ("Connection: X-Forwarded-For",),
    "the length": ("Connection: Content-Length, Transfer-Encoding, Host",),
    "repeated": ("X-Auth-Actor: -", "X-Auth-Actor: -"),
    "repeated and listed": ("X-Auth-Actor: -", "Connection: X-Auth-Actor"),
    "with underscores": ("X_Auth_Actor: -", "x-auth_actor: -", "Connection: X-Auth-Actor, X_Auth_Actor"),
    "a blank before the colon": ("X-Auth-Actor : -",),
    "a trailer": ("Transfer-Encoding: chunked", "Trailer: X-Auth-Actor", "", "0", "X-Auth-Actor: -"),
}
"""Header lines by which a client could make a proxy remove, replace or repeat headers of the verifier."""
PASS_WEBSOCKETS = {"caddy", "traefik"}


class Behind:
    """A proxy with the verifier and an API behind it: ``/`` requires ``read:things``."""

    def __init__(self, name: str, address: str, api: HttpServer, scope: str) -> None:
        self.name = name
        self.address = urlsplit(address)
        self.scope = scope
        self.http = httpx.Client(base_url=address, timeout=30)
        self.api = api

    def get(self, token: str | None, path: str = "/orders", headers: Mapping[str, str] | None = None) -> httpx.Response:
        bearing = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.http.get(path, headers={**bearing, **(headers or {})})

    def status(self, token: str | None) -> int:
        return self.get(token).status_code

    def sent(self, token: str, lines: Sequence[str]) -> tuple[int, list[ProxiedCaller]]:
        """Send a GET with these header lines as they are; return the status, and whom the API saw if it did."""
        before = len(self.api.received)
        head = ("GET /orders HTTP/1.1", "Host: orders", f"Authorization: Bearer {token}", *lines)
        with socket.create_connection((self.address.hostname, self.address.port or 80), timeout=30) as connection:
            connection.sendall("\r\n".join((*head, "", "")).encode())
            answer = HTTPResponse(connection)
            answer.begin()
            answer.read()
        return answer.status, [proxied_caller(each.fields) for each in self.api.received[before:]]


def command(name: str, directory: Path, binaries: Path) -> list[str | Path]:
    if name == "nginx":
        (directory / "main.conf").write_text(
            f"daemon off; pid {directory}/nginx.pid; error_log stderr; events {{}}"
            f" http {{ access_log off; include {directory}/nginx.conf; }}"
        )
        nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
        assert nginx is not None, "this test needs nginx: apt-get install nginx-light"
        return [nginx, "-p", directory, "-c", directory / "main.conf"]
    if name == "caddy":
        return [binaries / "caddy", "run", "--config", directory / "Caddyfile", "--adapter", "caddyfile"]
    if name == "traefik":
        return [binaries / "traefik", f"--configFile={directory / 'traefik.yml'}"]
    return [binaries / "envoy", "-c", directory / "envoy.yaml", "--use-dynamic-base-id", "-l", "error"]


@contextmanager
def proxy(name: str, directory: Path, binaries: Path, *, verifier: str, api: str, scope: str) -> Iterator[str]:
    """Run a proxy with its configuration of deploy/verifier; only addresses and the scope are replaced."""
    port = free_port()
    own = {
        "verifier:8000": verifier,
        "orders:8080": api,
        "address: verifier, port_value: 8000": socket_address(verifier),
        "address: orders, port_value: 8080": socket_address(api),
        "port_value: 8080": f"port_value: {port}",
        "listen 8080": f"listen {port}",
        '":8080"': f'":{port}"',
        "\n:8080 {": f"\n:{port} {{",
        "/etc/traefik/": f"{directory}/",
        "read:orders": scope,
    }
    for file in DEPLOY.iterdir():
        text = file.read_text()
        for theirs, ours in own.items():
            text = text.replace(theirs, ours)
        (directory / file.name).write_text(text)
    environment = {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory), "XDG_DATA_HOME": str(directory)}
    with serving(command(name, directory, binaries), port, directory, **environment) as address:
        eventually(lambda: httpx.get(f"{address}/orders").status_code == 401)  # routes come after the port
        yield address


def socket_address(address: str) -> str:
    host, _, port = address.partition(":")
    return f"address: {host}, port_value: {port}"


def orders(request: Received) -> Answer:
    """Answer as an API behind the verifier: with the caller, 403 without one, 101 to a WebSocket of a caller."""
    try:
        caller = proxied_caller(request.fields)
    except CallerUnknown:
        return Answer(403)
    if request.headers.get("connection", "").lower() == "upgrade" and request.headers.get("upgrade") == "websocket":
        return Answer(101, b"", {"Connection": "Upgrade", "Upgrade": "websocket"})
    return Answer(200, msgspec.json.encode(caller))


@pytest.fixture(scope="module")
def api() -> Iterator[HttpServer]:
    with HttpServer(orders) as api:
        yield api


@pytest.fixture(scope="module")
async def feed(world: World) -> AsyncIterator[TcpProxy]:
    """What stands between the verifier and the not-valid feed."""
    async with TcpProxy(world.stack.base_url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
async def verifier(world: World, feed: TcpProxy) -> AsyncIterator[str]:
    """The host and port of a verifier process that follows the feed."""
    await asyncio.to_thread(world.caught_up)
    port = free_port()
    client_id, secret = world.machine.basic
    arguments = ["--issuer", world.stack.issuer, "--audience", world.resource, "--feed-url", feed.url]
    command = [sys.executable, "-m", "verifier", *arguments, "--port", str(port)]
    with ExitStack() as running:
        started = serving(command, port, CLIENT_ID=client_id, CLIENT_SECRET=secret)
        address = await asyncio.to_thread(running.enter_context, started)  # the feed's proxy runs in this event loop
        await asyncio.to_thread(
            eventually, lambda: "stead_verifier_feed_fresh 1.0" in httpx.get(f"{address}/metrics").text
        )
        yield address.removeprefix("http://")


@pytest.fixture(scope="module", params=["nginx", "caddy", "traefik", "envoy"])
async def behind(
    request: pytest.FixtureRequest,
    verifier: str,
    api: HttpServer,
    pypi_python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Behind, Behind]]:
    """One of the proxies twice: requiring a scope that tokens have, and one that they have not."""
    with ExitStack() as running:
        both = []
        for scope in ("read:things", "a~b:50" if request.param == "caddy" else NOBODY_HAS):
            started = proxy(
                request.param,
                tmp_path_factory.mktemp(request.param),
                pypi_python.parent,
                verifier=verifier,
                api=api.url.removeprefix("http://"),
                scope=scope,
            )
            both.append(
                Behind(request.param, await asyncio.to_thread(running.enter_context, started), api, unquote(scope))
            )
        yield both[0], both[1]


def exchanged(world: World, user: str | None = None) -> str:
    """Return an access token with an actor."""
    answer = world.exchange(
        world.subject_token(user), actor_token=world.userinfo_token(), actor_token_type=TOKEN_TYPE_ACCESS_TOKEN
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def agent_of(world: World, token: str) -> ProxiedCaller:
    """Return the caller of an ``exchanged`` token."""
    signed_in = jwt.decode(token, options={"verify_signature": False})["actor_authentication"]
    return ProxiedCaller(
        subject=world.customer,
        actor=world.agent,
        scopes=frozenset({"read:things"}),
        organization_id=None,
        actor_acr=signed_in["acr"],
        actor_auth_time=int(signed_in["auth_time"]),
    )


@pytest.fixture(scope="module")
async def impersonation(world: World) -> str:
    """An access token with an actor, for tests that end nothing."""
    return await asyncio.to_thread(exchanged, world)


async def test_the_api_sees_who_the_verifier_names_and_nothing_that_a_client_says(
    world: World, behind: tuple[Behind, Behind]
) -> None:
    token = await asyncio.to_thread(exchanged, world)
    target = "/orders/a%20b;c/?q=%2F&q=1"
    agent = agent_of(world, token)
    answer = await asyncio.to_thread(behind[0].get, token, target, SPOOFED)
    assert (answer.status_code, answer.json()) == (200, msgspec.to_builtins(agent))
    received = behind[0].api.received[-1]
    assert received.target == target
    assert {name: received.headers.get(name, "") for name in HEADERS} == {
        "x-auth-subject": world.customer,
        "x-auth-actor": world.agent,
        "x-auth-scope": "read:things",
        "x-auth-organization": "-",
        "x-auth-acr": "-",
        "x-auth-time": "-",
        "x-auth-actor-acr": agent.actor_acr,
        "x-auth-actor-time": str(agent.actor_auth_time),
    }
    assert {name for name in received.headers if name.replace("_", "-").startswith("x-auth-")} <= set(HEADERS)
    assert "spoofed" not in received.headers.values()


async def test_the_longest_token_is_accepted(world: World, behind: tuple[Behind, Behind]) -> None:
    claims = {"sub": world.customer, "aud": world.resource, "client_id": world.traditional.id, "scope": "read:things"}
    room = (MAX_TOKEN_CHARS - len(world.forger.access_token(**claims, plan=""))) * 3 // 4
    token = world.forger.access_token(**claims, plan="x" * (room - 2))
    assert MAX_TOKEN_CHARS - 8 < len(token) <= MAX_TOKEN_CHARS

    assert await asyncio.to_thread(behind[0].status, token) == 200


@pytest.mark.parametrize("lines", HOP_BY_HOP.values(), ids=HOP_BY_HOP)
async def test_no_header_line_of_a_client_hides_who_calls(
    world: World, impersonation: str, behind: tuple[Behind, Behind], lines: Sequence[str]
) -> None:
    status, callers = await asyncio.to_thread(behind[0].sent, impersonation, lines)
    assert callers == ([agent_of(world, impersonation)] if status in {200, 101} else []), status
    assert status in {200, 101, 400, 401, 403}


async def test_a_websocket_has_its_caller_where_the_proxy_passes_it(
    world: World, impersonation: str, behind: tuple[Behind, Behind]
) -> None:
    lines = ("Upgrade: websocket", "Connection: Upgrade")
    status, callers = await asyncio.to_thread(behind[0].sent, impersonation, lines)
    assert (status == 101) == (behind[0].name in PASS_WEBSOCKETS)
    assert callers == ([agent_of(world, impersonation)] if status in {101, 200} else [])


async def test_what_has_no_acceptable_token_never_reaches_the_api(world: World, behind: tuple[Behind, Behind]) -> None:
    accepting, refusing = behind
    token = await asyncio.to_thread(exchanged, world)
    seen = len(accepting.api.received)
    without = await asyncio.to_thread(accepting.get, None, headers=SPOOFED)
    forged = await asyncio.to_thread(accepting.get, f"{token[:-8]}AAAAAAAA")
    lacking = await asyncio.to_thread(refusing.get, token, "/../-/check/-?scope=-")
    assert [(each.status_code, each.headers.get("WWW-Authenticate")) for each in (without, forged, lacking)] == [
        (401, "Bearer"),
        (401, 'Bearer error="invalid_token"'),
        (403, f'Bearer error="insufficient_scope", scope="{refusing.scope}"'),
    ]
    assert len(accepting.api.received) == seen


async def test_an_ended_impersonation_is_refused_and_without_the_feed_every_one(
    world: World, behind: tuple[Behind, Behind], feed: TcpProxy
) -> None:
    def end_one(user: str) -> tuple[str, str]:
        other, ended = exchanged(world), exchanged(world, user)
        assert [behind[0].status(each) for each in (other, ended)] == [200, 200]
        world.management.impersonations.end_all(user_id=user)
        eventually(lambda: behind[0].status(ended) == 401)
        assert behind[0].status(other) == 200
        return other, ended

    user = await asyncio.to_thread(world.user, world.keeper_role)
    other, ended = await asyncio.to_thread(end_one, user)
    await feed.cut()
    await asyncio.to_thread(eventually, lambda: behind[0].status(other) == 503)
    assert await asyncio.to_thread(behind[0].status, ended) == 401
    await feed.mend()
    await asyncio.to_thread(eventually, lambda: behind[0].status(other) == 200)
