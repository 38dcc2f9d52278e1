"""Create, then use: many rounds in which nothing is refused, and no header is sent."""

import pytest

from tests.support.lengths import length
from tests.support.world import World, create_then_use

pytestmark = pytest.mark.slow

ROUNDS = length(short=100, long=1_000)


def test_what_was_created_is_used_in_the_very_next_request_again_and_again(world: World) -> None:
    """A user, an application, a secret, a scope, an assignment, an actor: each in the request after its creation."""
    for number in range(ROUNDS):
        assert create_then_use(world) == {}, f"in round {number}"
