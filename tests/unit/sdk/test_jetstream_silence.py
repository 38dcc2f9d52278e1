"""Whether JetStream can work, as far as an answer to ``STREAM.INFO`` tells: what leads may have lost the others."""

import json
import math

import pytest

from stead.jetstream_silence import quorum_age_s

SECOND = 1_000_000_000
NEVER = 0


def info(*heard_ago: int, leader: str = "n0") -> bytes:
    """Return the answer of a leader that heard from the others so many nanoseconds ago."""
    replicas = [{"name": f"n{n}", "current": True, "active": each} for n, each in enumerate(heard_ago, 1)]
    return json.dumps({"config": {}, "cluster": {"leader": leader, "replicas": replicas}}).encode()


@pytest.mark.parametrize(
    ("answer", "age_s"),
    [
        (info(), 0),
        (info(SECOND), 1),
        (info(SECOND, 600 * SECOND), 1),
        (info(7 * SECOND, 600 * SECOND), 7),
        (info(NEVER, SECOND), 1),
        (info(NEVER, 7 * SECOND), 7),
        (info(NEVER, NEVER), math.inf),
        (info(SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND), 2),
        (info(SECOND, SECOND, leader=""), math.inf),
        (b'{"config": {}}', 0),
        (b'{"error": {"code": 404, "err_code": 10059}}', 0),
        (b'{"error": {"code": 503, "err_code": 10008}}', math.inf),
        (b"", math.inf),
    ],
    ids=[
        "one replica",
        "two replicas",
        "a follower is lost",
        "both followers are lost",
        "one follower has not been heard from yet",
        "and then the other one is lost",
        "no follower has been heard from yet",
        "five replicas",
        "no leader",
        "a single server",
        "no stream",
        "unavailable",
        "no responders",
    ],
)
def test_a_leader_counts_while_it_hears_from_most_replicas(answer: bytes, age_s: float) -> None:
    assert quorum_age_s(answer) == age_s
