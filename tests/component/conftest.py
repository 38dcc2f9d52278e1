"""One running Management API and template-service for all tests of this directory, in their own tenant."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from all_in_one.provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management
from tests.support.template_api import RequestedFanOuts, Template
from tests.support.template_tables import TemplateTables

BLOCKED_S = 3
CATCH_UP_S = 2


@pytest_asyncio.fixture(scope="session")
async def last_run() -> AsyncIterator[list[float]]:
    """The time at which the event loop ran last."""
    ran = [time.monotonic()]

    async def keep_time() -> None:
        while True:
            ran[0] = time.monotonic()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(keep_time())
    yield ran
    task.cancel()


@pytest_asyncio.fixture(scope="module", autouse=True)
async def caught_up(last_run: list[float]) -> None:
    """Let the services of this process catch up with the bus after a module whose tests blocked their event loop."""
    if time.monotonic() - last_run[0] > BLOCKED_S:
        await asyncio.sleep(CATCH_UP_S)


@pytest.fixture(scope="session")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest_asyncio.fixture(scope="session")
async def management(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Management]:
    """The running service and its database, Redis and bus."""
    async with Management(servers, issuer) as management:
        yield management


@pytest.fixture
def management_api(management: Management) -> httpx.AsyncClient:
    """A client of the running service with a valid token."""
    return management.client


@pytest_asyncio.fixture(scope="session")
async def template(management: Management) -> AsyncIterator[Template]:
    """The running template-service of the same tenant."""
    async with Template(management) as template:
        yield template


@pytest.fixture
def template_api(template: Template) -> httpx.AsyncClient:
    """A client of the running template-service with a valid token."""
    return template.client


@pytest_asyncio.fixture
async def fan_outs(template: Template) -> AsyncIterator[RequestedFanOuts]:
    """The fan-outs that are requested during the test."""
    async with RequestedFanOuts(template) as fan_outs:
        yield fan_outs


@pytest_asyncio.fixture(scope="session")
async def tables(template: Template) -> AsyncIterator[TemplateTables]:
    """The tables of template-service, and its public events."""
    settings, addresses = template.settings, template.management.addresses
    async with TemplateTables(settings.database_url, addresses.subscriber_nats_url, template.tenant_id) as tables:
        yield tables
