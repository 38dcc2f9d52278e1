"""The verifier process behind nginx, Caddy, Traefik and Envoy, each with its configuration of deploy/verifier."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import unquote

import httpx2 as httpx
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from stead.verification import MAX_TOKEN_CHARS
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from tests.support.world import World
from tests.unit.sdk.http_server import Answer, HttpServer

pytestmark = pytest.mark.clients

DEPLOY = Path(__file__).parents[2] / "deploy" / "verifier"
HEADERS = ("x-auth-subject", "x-auth-actor", "x-auth-scope", "x-auth-organization")
NOBODY_HAS = "a%2Fb:50%25"
"""The scope ``a/b:50%`` as it stands in the path of a check: every proxy but Caddy passes it on as it is."""

SPOOFED = dict.fromkeys(
    ("X-Auth-Subject", "X_Auth_Subject", "X-Auth_Actor", "x_auth-scope", "X-Auth-Organization", "X_AUTH_ACTOR"),
    "spoofed",
)


class Behind:
    """A proxy with the verifier and an API behind it: ``/`` requires ``read:things``."""

    def __init__(self, address: str, api: HttpServer, scope: str) -> None:
        self.scope = scope
        self.http = httpx.Client(base_url=address, timeout=30)
        self.api = api

    def get(self, token: str | None, path: str = "/orders", headers: Mapping[str, str] | None = None) -> httpx.Response:
        bearing = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.http.get(path, headers={**bearing, **(headers or {})})

    def status(self, token: str | None) -> int:
        return self.get(token).status_code


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


@pytest.fixture(scope="module")
def api() -> Iterator[HttpServer]:
    with HttpServer(lambda _: Answer(200, b"orders")) as api:
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
    command = [sys.executable, "-m", "stead.verifier", *arguments, "--port", str(port)]
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
            both.append(Behind(await asyncio.to_thread(running.enter_context, started), api, unquote(scope)))
        yield both[0], both[1]


def exchanged(world: World, user: str | None = None) -> str:
    """Return an access token with an actor."""
    answer = world.exchange(
        world.subject_token(user), actor_token=world.userinfo_token(), actor_token_type=TOKEN_TYPE_ACCESS_TOKEN
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


async def test_the_api_sees_who_the_verifier_names_and_nothing_that_a_client_says(
    world: World, behind: tuple[Behind, Behind]
) -> None:
    token = await asyncio.to_thread(exchanged, world)
    target = "/orders/a%20b;c/?q=%2F&q=1"
    answer = await asyncio.to_thread(behind[0].get, token, target, SPOOFED)
    assert (answer.status_code, answer.text) == (200, "orders")
    received = behind[0].api.received[-1]
    assert received.target == target
    assert {name: received.headers.get(name, "") for name in HEADERS} == {
        "x-auth-subject": world.customer,
        "x-auth-actor": world.agent,
        "x-auth-scope": "read:things",
        "x-auth-organization": "",
    }
    assert {name for name in received.headers if name.replace("_", "-").startswith("x-auth-")} <= set(HEADERS)
    assert "spoofed" not in received.headers.values()


async def test_the_longest_token_is_accepted(world: World, behind: tuple[Behind, Behind]) -> None:
    claims = {"sub": world.customer, "aud": world.resource, "client_id": world.traditional.id, "scope": "read:things"}
    room = (MAX_TOKEN_CHARS - len(world.forger.access_token(**claims, plan=""))) * 3 // 4
    token = world.forger.access_token(**claims, plan="x" * (room - 2))
    assert MAX_TOKEN_CHARS - 8 < len(token) <= MAX_TOKEN_CHARS

    assert await asyncio.to_thread(behind[0].status, token) == 200


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
