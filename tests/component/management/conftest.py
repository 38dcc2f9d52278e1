"""Fixtures that several modules of this directory share."""

from collections.abc import AsyncIterator

import nats
import pytest
import pytest_asyncio

from provision import ServerAddresses
from tests.support.claims_function import ScriptAnswers
from tests.support.issuer import Issuer
from tests.support.mailed_links import Pages
from tests.support.management_api import Management


@pytest_asyncio.fixture(scope="module")
async def own(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Management]:
    """A tenant of its own: there is one function for each kind of token."""
    async with Management(servers, issuer) as own:
        yield own


@pytest_asyncio.fixture
async def pages(management: Management) -> AsyncIterator[Pages]:
    """The pages of links, as token-service serves them."""
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield Pages(management, client)
    await client.close()


@pytest_asyncio.fixture(scope="module")
async def answering(own: Management) -> AsyncIterator[ScriptAnswers]:
    async with ScriptAnswers(own) as answering:
        yield answering


@pytest.fixture
def answers(answering: ScriptAnswers) -> ScriptAnswers:
    answering.forget()
    return answering
