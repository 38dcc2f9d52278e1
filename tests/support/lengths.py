"""The length of tests: short by default, in full with ``TEST_LENGTH=long``."""

import os
from typing import Final

IS_LONG: Final = {"short": False, "long": True}[os.environ.get("TEST_LENGTH", "short")]


def length(*, short: int, long: int) -> int:
    """Return how many rounds, writes or seconds a test takes in this run."""
    return long if IS_LONG else short
