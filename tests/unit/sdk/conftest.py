from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from stead import AsyncManagementClient, ManagementClient
from tests.unit.sdk.issuer import Clock
from tests.unit.sdk.service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as serving:
        yield serving


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(service: Service, clock: Clock) -> Iterator[ManagementClient]:
    with service.client(clock) as management:
        yield management


@pytest_asyncio.fixture
async def async_client(service: Service, clock: Clock) -> AsyncIterator[AsyncManagementClient]:
    async with service.async_client(clock) as management:
        yield management
