"""The format of subject tokens."""

import re
from collections import Counter

from management_service.subject_tokens.rules import new_subject_token


def test_subject_tokens_have_256_random_bits_of_letters_and_digits() -> None:
    tokens = [new_subject_token() for _ in range(5000)]
    assert len(set(tokens)) == len(tokens)
    assert all(re.fullmatch(r"sub_[0-9A-Za-z]{43}", token) for token in tokens)
    counted = Counter("".join(token.removeprefix("sub_") for token in tokens))
    assert len(counted) == 62
    expected = 5000 * 43 / 62
    # Chi-squared with 61 degrees of freedom: 140 is exceeded once in ten million runs of a fair source.
    assert sum((count - expected) ** 2 / expected for count in counted.values()) < 140
