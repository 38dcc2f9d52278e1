"""A token-service that has not loaded everything yet answers 503 and spends nothing."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest_asyncio

from identity_common.version import VERSION
from tests.support.management_api import client_of
from tests.support.processes import free_port
from tests.support.retrying import SOON
from tests.support.waiting import WAIT_S
from tests.support.world import World, error_body
from token_service.app import create_app
from token_service.settings import Settings


@pytest_asyncio.fixture
async def without_database(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a token-service whose database does not answer; its directory is loaded."""
    app = create_app(
        Settings(
            base_url=world.stack.base_url,
            environment="development",
            database_url=f"postgresql+asyncpg://token:nobody@127.0.0.1:{free_port()}/token",
            nats_url=world.stack.addresses.token_nats_url,
            redis_url=world.stack.addresses.token_redis_url,
            key_encryption_keys=(base64.b64encode(os.urandom(32)).decode(),),
            environment_variable_keys=(base64.b64encode(os.urandom(32)).decode(),),
        )
    )
    stop = asyncio.Event()

    async def live() -> None:
        async with app.lifespan():
            await stop.wait()

    life = asyncio.create_task(live())
    try:
        async with client_of(app, None) as client, asyncio.timeout(WAIT_S):
            form = {"grant_type": "x", "client_id": "x"}
            while True:
                answer = await client.post("/oidc/token", data=form)
                if "directory" not in answer.json()["error_description"]:
                    break
                await asyncio.sleep(0.01)  # the app answers without waiting: yield to the reader of the bus
            yield client
    finally:
        stop.set()
        await life


async def test_without_keys_nothing_is_issued_and_nothing_is_spent(
    world: World, without_database: httpx.AsyncClient
) -> None:
    """A dependency that is down is a 503 with Retry-After, before the subject token is taken."""
    subject_token = await asyncio.to_thread(world.subject_token)
    for form in ({"grant_type": "client_credentials"}, world.exchange_form(subject_token), {}):
        answer = await without_database.post("/oidc/token", data={**form, "client_id": world.spa.id})
        assert (answer.status_code, answer.headers["Retry-After"] in SOON) == (503, True)
        assert answer.json() == error_body("temporarily_unavailable", "the signing keys are being loaded")

    assert world.is_usable(subject_token)


async def test_documents_with_keys_are_a_503_with_retry_after(without_database: httpx.AsyncClient) -> None:
    """A store that is down is not a 500."""
    for path in ("/oidc/jwks", "/oidc/.well-known/openid-configuration"):
        answer = await without_database.get(path)
        assert (answer.status_code, answer.headers["Retry-After"] in SOON) == (503, True)
        assert answer.json()["code"] == "temporarily_unavailable"


async def test_it_is_alive_and_not_ready(without_database: httpx.AsyncClient) -> None:
    answers = [await without_database.get(f"/health/{kind}") for kind in ("live", "ready")]

    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (200, {"status": "ok", "version": VERSION}),
        (503, {"status": "starting", "version": VERSION}),
    ]
