"""The member that requests organization tokens."""

from __future__ import annotations

import pytest

from tests.support.organization_tokens import Caller
from tests.support.world import World


@pytest.fixture(params=["exchange", "client credentials"])
def caller(world: World, request: pytest.FixtureRequest) -> Caller:
    return Caller(world, request.param)
