"""Headers of a request; repeated ones stay repeated."""

from litestar.types import Scope


def header_values(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a header, by its lower-case name."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]
