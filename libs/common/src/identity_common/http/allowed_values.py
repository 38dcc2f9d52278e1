"""The allowed values of a member of a body, for the error that refuses any other value."""

import functools
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.inspect import CollectionType, DictType, LiteralType, Metadata, StructType, Type, UnionType

_STEP: Final = re.compile(r"\.(?P<member>\w+)|\[")


@functools.cache
def allowed_values(kind: Any, where: str) -> tuple[str, ...]:
    """Return the allowed values at a path inside a type, if they are enumerated; otherwise none.

    Args:
        kind: The type.
        where: As msgspec writes it, relative to the type: ``.scopes[0].resource``; empty for the type itself.
    """
    kinds = [msgspec.inspect.type_info(kind)]
    for step in _STEP.finditer(where):
        kinds = [inner for outer in _options(kinds) for inner in _inside(outer, step["member"])]
    return tuple(str(value) for kind in _options(kinds) if isinstance(kind, LiteralType) for value in kind.values)


def _options(kinds: list[Type]) -> Iterator[Type]:
    for kind in kinds:
        if isinstance(kind, UnionType):
            yield from _options(list(kind.types))
        elif isinstance(kind, Metadata):
            yield from _options([kind.type])
        else:
            yield kind


def _inside(kind: Type, member: str | None) -> Iterator[Type]:
    if isinstance(kind, StructType):
        yield from (field.type for field in kind.fields if field.encode_name == member)
    elif isinstance(kind, CollectionType):
        yield kind.item_type
    elif isinstance(kind, DictType):
        yield kind.value_type
