"""The app of management-service in this process, over real servers, with its own tenant and issuer."""

import asyncio
import base64
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import asyncpg
import httpx2 as httpx
import nats
import redis
import redis.asyncio
from litestar import Litestar

from identity_common.wire.events import STREAM_INTERNAL
from identity_common.wire.revocations import CopyPosition, position_key
from management_service.app import create_app, migrate
from management_service.bootstrap.first_client import Credentials
from management_service.commands import bootstrap
from management_service.settings import Settings
from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.service_in_a_tenant import ServiceInATenant
from tests.support.waiting import WAIT_S

AUDIENCE = "https://default.service.internal/api"
_AT_ONCE = 5


def settings_for(addresses: ServerAddresses, issuer: Issuer, **changed: Any) -> Settings:
    """Return settings with a new tenant, in which nothing exists and nothing was ever revoked."""
    settings = Settings(
        **{
            "base_url": issuer.base_url,
            "environment": "development",
            "tenant_id": f"t{secrets.token_hex(6)}",
            "database_url": addresses.management_database_url,
            "redis_url": addresses.management_redis_url,
            "nats_url": addresses.management_nats_url,
            "environment_variable_keys": (base64.b64encode(os.urandom(32)).decode(),),
            "audit_head_keys": (base64.b64encode(os.urandom(32)).decode(),),
            "mail_keys": (base64.b64encode(os.urandom(32)).decode(),),
            "smtp_url": "smtp://127.0.0.1:1",  # which nothing answers: mails stay in the stream, for tests to read
            "mail_from": "stead@example.com",
            "outgoing_networks": ("127.0.0.0/8",),  # of providers in tests
            **changed,
        }
    )
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:  # as token-service does when it starts
        administrator.set(position_key(settings.tenant_id), CopyPosition(is_whole=True).format(), nx=True)
    return settings


def client_of(app: Litestar, token: str | None) -> httpx.AsyncClient:
    """Return a client bound to an app, with or without a token."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),  # type: ignore[arg-type]
        base_url="http://management.test",
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=30,
    )


@asynccontextmanager
async def running(app: Litestar) -> AsyncIterator[None]:
    """Run the lifespan of an app in a separate task, as a server does; the body runs once the app is ready."""
    stop = asyncio.Event()

    async def live() -> None:
        async with app.lifespan():
            await stop.wait()

    life = asyncio.create_task(live())
    try:
        async with client_of(app, None) as client, asyncio.timeout(WAIT_S):
            while (await client.get("/health/ready")).status_code != 200:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.02)
        yield
    finally:
        stop.set()
        await life


class Management(ServiceInATenant):
    """A running Management API, with access to its database, Redis and events.

    Attributes:
        client: Holds a valid token with the scope ``all``.
        credentials: Those of the application that the token was issued to.
    """

    stream = STREAM_INTERNAL
    subjects = "identity-internal"

    def __init__(self, addresses: ServerAddresses, issuer: Issuer, **settings: Any) -> None:
        self.addresses = addresses
        self.issuer = issuer
        self.settings = settings_for(addresses, issuer, **settings)
        self.tenant_id = self.settings.tenant_id
        self.app: Litestar
        self.credentials: Credentials
        self.redis: redis.asyncio.Redis
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(migrate, self.settings)
        # Not to_thread, which would copy the context: an earlier request of this test would be recorded as its author.
        self.credentials = await asyncio.get_running_loop().run_in_executor(None, bootstrap, self.settings)
        self.app = create_app(self.settings)
        await self._started.enter_async_context(running(self.app))
        self.client = await self._started.enter_async_context(client_of(self.app, self.token()))
        url = self.settings.database_url.replace("+asyncpg", "")
        self.database = await asyncpg.connect(url)
        self._started.push_async_callback(self.database.close)
        self.redis = redis.asyncio.Redis.from_url(self.addresses.admin_redis_url)
        self._started.push_async_callback(self.redis.aclose)
        bus = await nats.connect(self.settings.nats_url, inbox_prefix="_INBOX_management")
        self._started.push_async_callback(bus.close)
        self._jetstream = bus.jetstream()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    def token(self, **changed: Any) -> str:
        """Return an access token, valid for every operation unless something is changed."""
        claims = {"client_id": self.credentials.client_id, "audience": AUDIENCE, "scope": "all", **changed}
        return self.issuer.access_token(**claims)

    def own_token(self, user_id: str, **changed: Any) -> str:
        """Return a userinfo token of a user's own sign-in just now, with the scope ``account``."""
        of_sign_in = {"subject": user_id, "scope": "openid account", "auth_time": int(time.time())}
        return self.token(**{**of_sign_in, "audience": f"{self.issuer.issuer}/me", **changed})

    def client_with(self, token: str | None) -> httpx.AsyncClient:
        """Return another client of the same app."""
        return client_of(self.app, token)

    async def machine(self) -> str:
        """Create a machine-to-machine application and return its id."""
        return str((await self.created("applications", name="Machine", type="MachineToMachine"))["id"])


async def at_once(*requests: Awaitable[httpx.Response]) -> list[httpx.Response]:
    """Send requests concurrently, but no more than half as many as the service may have connections to its database.

    A request that gets no connection within two seconds is answered 503. On a busy machine that would happen to a
    crowd of requests, and also to fewer of them where each must open its connection first.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def carry_out(request: Awaitable[httpx.Response]) -> httpx.Response:
        async with turn:
            return await request

    return await asyncio.gather(*map(carry_out, requests))


def unique(prefix: str) -> str:
    """Return a unique name."""
    return f"{prefix}-{secrets.token_hex(6)}"


def revision_of(answer: httpx.Response, source: str = "management") -> int:
    """Return the revision in the answer to a write."""
    found, _, revision = answer.headers["Identity-Revision"].partition(":")
    assert found == source
    return int(revision)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    body = answer.json()
    assert body["message"]
    assert body.keys() <= {"code", "message", "data", "details"}
    return answer.status_code, body["code"]


def issues(answer: httpx.Response) -> set[str]:
    """Return the paths that a refusal names."""
    assert refusal(answer) == (400, "guard.invalid_input"), answer.text
    return {issue["path"] for issue in answer.json()["data"]["issues"]}


__all__ = [
    "AUDIENCE",
    "Management",
    "at_once",
    "client_of",
    "issues",
    "refusal",
    "revision_of",
    "running",
    "settings_for",
    "unique",
]
