"""Identifiers and secrets: their formats, and that no two are alike."""

import os
import string
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

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


@KINDS
def test_a_forked_process_never_gets_the_same_one(make: Callable[[], str], alphabet: str, length: int) -> None:
    make()  # some are drawn with others
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, make().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as made:
        assert made.read() not in {make() for _ in range(200)}
