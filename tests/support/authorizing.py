"""Codes and authorizations as the pages store them after sign-in and consent, created with the code of the stores."""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.authentication import UsedFactor
from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from tests.support.databases import until_waited_for
from token_service.authorizations import Authorization, Authorizations, Code, Codes, Consented, RefreshTokens
from token_service.presented_tokens.revocations import Revocations
from token_service.settings import Settings

R = TypeVar("R")

REDIRECT_URI = "https://app.example.com/callback"


class Stores(msgspec.Struct, frozen=True):
    """The stores of one replica."""

    engine: AsyncEngine
    redis: Redis
    codes: Codes
    authorizations: Authorizations
    refresh_tokens: RefreshTokens
    revocations: Revocations


@asynccontextmanager
async def opened(
    *,
    database_url: str,
    redis_url: str,
    tenant_id: str = "default",
    clock: Callable[[], int] = now_ms,
    grace_s: float = 10,
    redis_replicas: int = 0,
) -> AsyncIterator[Stores]:
    """Open the stores; nothing runs in the background."""
    engine = create_database_engine(database_url, service="tests", pool_size=8)
    redis = connect_redis(redis_url)
    commands = RedisCommands(redis)
    revocations = Revocations(engine, redis, commands, tenant_id=tenant_id, replicas=redis_replicas, clock=clock)
    authorizations = Authorizations(engine, revocations, tenant_id=tenant_id, clock=clock)
    try:
        yield Stores(
            engine,
            redis,
            Codes(commands, tenant_id=tenant_id),
            authorizations,
            RefreshTokens(engine, authorizations, tenant_id=tenant_id, grace_s=grace_s, clock=clock),
            revocations,
        )
    finally:
        await redis.aclose()
        await engine.dispose()


class Verifier:
    """A code verifier of PKCE and its challenge."""

    def __init__(self, secret: str | None = None) -> None:
        self.secret = secret or secrets.token_urlsafe(32)
        digest = hashlib.sha256(self.secret.encode()).digest()
        self.challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def code_for(
    user_id: str,
    application_id: str,
    verifier: Verifier,
    *,
    consented: Consented,
    auth_time: int | None = None,
    session_id: str | None = None,
    nonce: str | None = None,
    redirect_uri: str = REDIRECT_URI,
    revision: int = 0,
    code_challenge: str | None = "",
    factors: tuple[UsedFactor, ...] = (),
) -> Code:
    """Return the content of a code; its challenge is that of the verifier, unless another one or none is given."""
    authorization = Authorization(
        id=new_id(),
        user_id=user_id,
        application_id=application_id,
        session_id=session_id,
        auth_time=now_ms() if auth_time is None else auth_time,
        consented=consented,
        first_party=False,
        factors=factors,
    )
    return Code(
        authorization=authorization,
        redirect_uri=redirect_uri,
        code_challenge=verifier.challenge if code_challenge == "" else code_challenge,
        nonce=nonce,
        revision=revision,
    )


def in_stores(settings: Settings, use: Callable[[Stores], Awaitable[R]]) -> R:
    """Do something with the stores of a running token-service; callable with or without an event loop."""

    async def run() -> R:
        async with opened(
            database_url=settings.database_url, redis_url=settings.redis_url, tenant_id=settings.tenant_id
        ) as stores:
            return await use(stores)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(run())).result()


async def until_a_transaction_waits(connection: AsyncConnection) -> None:
    """Wait until another transaction waits for a lock of this one."""
    await until_waited_for((await connection.get_raw_connection()).driver_connection)


async def begin(stores: Stores, authorization: Authorization) -> None:
    """Begin an authorization with its consent."""
    async with stores.authorizations.agreement(authorization.user_id, authorization.application_id) as agreement:
        await agreement.begin(authorization, implicit=False)


async def issue(stores: Stores, code: Code) -> str:
    """Return a redeemable code: its authorization has begun."""
    await begin(stores, code.authorization)
    return await stores.codes.issue(code)


def issued(settings: Settings, code: Code) -> str:
    """Do the same with the stores of a running token-service."""
    return in_stores(settings, lambda stores: issue(stores, code))
