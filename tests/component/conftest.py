"""One running Management API and template-service for all tests of this directory, in their own tenant."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import httpx2 as httpx
import pytest
import pytest_asyncio
from sqlalchemy import Connection, Engine, event

from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management
from tests.support.template_api import RequestedFanOuts, Template
from tests.support.template_tables import TemplateTables
from tests.support.waiting import WAIT_S

_running: list[Template] = []
_WRITES = re.compile(r"\b(?:INSERT INTO|DELETE FROM|UPDATE (?:ONLY )?\w+ (?:AS \w+ )?SET)\b", re.IGNORECASE)


@pytest.fixture(scope="session", autouse=True)
def reads_only_in_autocommit_mode() -> Iterator[None]:
    """Let a write outside a transaction fail: a cancellation would commit it on the primary alone (decision 51)."""

    def refuse_writes(connection: Connection, _: object, statement: str, *__: object) -> None:
        is_autocommit = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        assert not (is_autocommit and _WRITES.search(statement)), statement

    event.listen(Engine, "before_cursor_execute", refuse_writes)
    yield
    event.remove(Engine, "before_cursor_execute", refuse_writes)


@pytest_asyncio.fixture(scope="module", autouse=True)
async def caught_up() -> None:
    """Wait until template-service follows the bus: the module before may have blocked the event loop for seconds."""
    for template in _running:
        user = (await template.management.created("users"))["id"]
        async with asyncio.timeout(WAIT_S):
            while (await template.client.get(f"/api/users/{user}/organizations")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


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
        _running.append(template)
        yield template
        _running.remove(template)


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
