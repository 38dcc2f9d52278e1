"""A tenant for each module of this directory, because a document replaces the whole template."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management
from tests.support.template_api import Template
from tests.support.template_documents import EMPTY, held, put


@pytest_asyncio.fixture(scope="module")
async def management(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Management]:
    """A tenant of its own."""
    async with Management(servers, issuer) as management:
        yield management


@pytest_asyncio.fixture(scope="module")
async def template(management: Management) -> AsyncIterator[Template]:
    async with Template(management) as template:
        yield template


@pytest_asyncio.fixture(autouse=True)
async def emptied(template: Template) -> None:
    """Empty the template and wait for the fan-out, so that a test counts only its own changes."""
    await put(template, EMPTY)
    await held(template)


@pytest_asyncio.fixture(scope="module")
async def resource(template: Template) -> Any:
    """A resource with three scopes."""
    return await template.resource("orders:delete", "orders:read", "orders:write")
