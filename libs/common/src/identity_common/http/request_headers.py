"""Headers of a request as they came: what is repeated stays repeated."""

from litestar.types import Scope


def header_values(scope: Scope, name: bytes) -> list[str]:
    """Return every value of a header; its name in lower case."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]
