"""A service stops when told to, at any moment of its start and whatever it waits for."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable

import pytest
from litestar import Litestar

import management_service.app
import token_service.app
from management_service.settings import Settings as ManagementSettings
from provision import ServerAddresses
from tests.support.lengths import length
from tests.support.running_stack import RunningStack
from tests.support.waiting import WAIT_S
from token_service.settings import Settings as TokenSettings

MOMENTS = range(0, 40, length(short=6, long=1))
"""Square roots of the ticks after which a service is stopped."""
_KEY, _OTHER_KEY, _THIRD_KEY = (base64.b64encode(os.urandom(32)).decode() for _ in range(3))


def management(addresses: ServerAddresses) -> Litestar:
    return management_service.app.create_app(
        ManagementSettings(
            base_url="http://127.0.0.1:9",
            environment="development",
            tenant_id="stopping",
            database_url=addresses.management_database_url,
            redis_url=addresses.management_redis_url,
            nats_url=addresses.management_nats_url,
            environment_variable_keys=(_KEY,),
            audit_head_keys=(_OTHER_KEY,),
            mail_keys=(_THIRD_KEY,),
        )
    )


def token(addresses: ServerAddresses) -> Litestar:
    return token_service.app.create_app(
        TokenSettings(
            base_url="http://127.0.0.1:9",
            environment="development",
            tenant_id="stopping",
            database_url=addresses.token_database_url,
            redis_url=addresses.token_redis_url,
            nats_url=addresses.token_nats_url,
            key_encryption_keys=(_KEY,),
            environment_variable_keys=(_KEY,),
        )
    )


@pytest.mark.heavy
@pytest.mark.parametrize("create", [management, token])
async def test_it_stops_at_any_moment_of_its_start(
    stack: RunningStack, create: Callable[[ServerAddresses], Litestar]
) -> None:
    """Python 3.11 and libraries may lose a cancellation in the same tick of the loop as an answer.

    A service that waits for such a task would hang until it is killed. Here it is stopped after 0, 1, 4, 9, … ticks, in
    the short form after every sixth of these numbers.
    """
    for root in MOMENTS:
        async with asyncio.timeout(WAIT_S):
            async with create(stack.addresses).lifespan():
                for _ in range(root * root):
                    await asyncio.sleep(0)
