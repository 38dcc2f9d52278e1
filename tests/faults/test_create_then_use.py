"""Create, then use: nothing is refused in many rounds, without ``Identity-Revision``."""

import pytest

from tests.support.lengths import length
from tests.support.world import World, create_then_use

pytestmark = pytest.mark.slow

ROUNDS = length(short=3, long=1_000)


def test_everything_created_is_usable_in_the_next_request(world: World) -> None:
    """A user, an application, a secret, a scope, an assignment, an actor: each in the request after its creation."""
    for number in range(ROUNDS):
        assert create_then_use(world) == {}, f"in round {number}"
