"""Imports of libraries without an optional dependency that they load wherever it is installed."""

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Generator[None]:
    """Hide a module from what the body imports, as if it were not installed; a no-op if it is loaded already."""
    if module in sys.modules:
        yield
        return
    # How the import system marks what must not be found.
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
