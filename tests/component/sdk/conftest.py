"""A source of public events, the bus that brings them to an application, and a stand-in for the Management API."""

from collections.abc import AsyncIterator, Iterator

import pytest

from provision import ServerAddresses
from stead.events import EventBus
from tests.support.template_source import TemplateSource
from tests.unit.sdk.service import Service


@pytest.fixture
async def source(servers: ServerAddresses) -> AsyncIterator[TemplateSource]:
    async with TemplateSource(servers) as source:
        yield source


@pytest.fixture
async def bus(servers: ServerAddresses, source: TemplateSource) -> AsyncIterator[EventBus]:
    async with EventBus(servers.subscriber_nats_url, tenant_id=source.tenant_id) as bus:
        yield bus


@pytest.fixture
def service() -> Iterator[Service]:
    """A stand-in for the Management API."""
    with Service() as serving:
        yield serving
