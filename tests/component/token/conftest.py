"""Workers of the custom-claims function, for the modules about them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import eventually_here
from token_service.claims_function.sandbox import ClaimsWorkers, Limits


@pytest.fixture(scope="module")
async def workers() -> AsyncIterator[ClaimsWorkers]:
    """Two workers, for tests that return them."""
    async with ClaimsWorkers(Limits(time_ms=5000), 2) as pool:
        yield pool


@pytest.fixture
async def all_workers_are_back(workers: ClaimsWorkers) -> AsyncIterator[None]:
    """Wait after the test until no worker is reserved or being replaced."""
    yield
    await eventually_here(lambda: workers.free == 2)
