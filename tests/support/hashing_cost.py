"""The cost of Argon2id in this process: next to none, as it took an eighth of the CPU time of the tests of pages.

Services that run as processes hash at the real cost, and so does what stands in ``real_hashing_cost``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from management_service.passwords import hashing

_REAL: Final = (hashing.MEMORY_KIB, hashing.ITERATIONS)
_CHEAP: Final = (64, 1)


@contextmanager
def _hashing_cost(memory_kib: int, iterations: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "MEMORY_KIB", memory_kib)
        patch.setattr(hashing, "ITERATIONS", iterations)
        yield


@contextmanager
def cheap_hashing_cost() -> Iterator[None]:
    """Make the hashing of services that are created in the body cheap."""
    with _hashing_cost(*_CHEAP):
        yield


@contextmanager
def real_hashing_cost() -> Iterator[None]:
    """Give services that are created in the body the real cost."""
    with _hashing_cost(*_REAL):
        yield


def has_current_cost(digest: str) -> bool:
    """Return whether a digest was made by this process."""
    return digest.startswith(f"$argon2id$v=19$m={hashing.MEMORY_KIB},t={hashing.ITERATIONS},p=1$")
