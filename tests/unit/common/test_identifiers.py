"""Identifiers and secrets: what they look like, and that nobody makes the same one twice."""

import string
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from identity_common import identifiers
from identity_common.identifiers import new_id, new_secret, new_short_id, new_token_id

LOWER = string.digits + string.ascii_lowercase
KINDS = pytest.mark.parametrize(
    ("make", "alphabet", "length"),
    [
        (new_id, LOWER, 21),
        (new_short_id, LOWER, 12),
        (new_token_id, string.digits + "abcdef", 32),
        (new_secret, LOWER + string.ascii_uppercase, 43),
    ],
)


@KINDS
def test_every_character_of_the_alphabet_is_as_likely_as_any_other(
    make: Callable[[], str], alphabet: str, length: int
) -> None:
    made = [make() for _ in range(5_000)]

    assert {len(text) for text in made} == {length}
    seen = Counter("".join(made))
    assert set(seen) == set(alphabet)
    expected = 5_000 * length / len(alphabet)
    assert all(abs(count - expected) < 8 * expected**0.5 for count in seen.values())  # eight standard deviations


@KINDS
def test_threads_never_get_the_same_one(make: Callable[[], str], alphabet: str, length: int) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = [text for texts in threads.map(lambda _: [make() for _ in range(1_000)], range(8)) for text in texts]

    assert len(set(made)) == len(made)


FORKED: Final = """
import os, sys
from identity_common.identifiers import new_id, new_secret, new_short_id, new_token_id

makers = (new_id, new_short_id, new_token_id, new_secret)
stocked = [make() for make in makers]
child = os.fork()
made = [make() for make in makers for _ in range(100)]
if child:
    os.waitpid(child, 0)
print(*made)
"""


def test_a_forked_process_does_not_make_the_same_ones() -> None:
    finished = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)

    made = finished.stdout.split()
    assert len(made) == 2 * 4 * 100
    assert len(set(made)) == len(made)


def test_a_secret_is_not_made_before_it_is_asked_for() -> None:
    """What lies in memory can be read there; ids are no secrets."""
    for _ in range(200):
        new_secret()
        assert not identifiers._secret._stock
