"""Descriptions of schemas, taken from the docstrings of their structs.

The first paragraph describes the struct, the section ``Attributes`` each of its members, also those that a subclass
inherits, and the tag of a struct. Nothing else describes members: a docstring serves the reader of the code and the
client alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from docstring_parser import DocstringStyle, parse
from msgspec.inspect import StructType, Type, multi_type_info


def describe_schemas(schemas: Mapping[str, dict[str, Any]], types: Sequence[Any]) -> None:
    """Set the description of each schema and of each of its properties.

    Args:
        schemas: Schemas by the name of their struct; modified in place.
        types: The types that they are made of.
    """
    structs: dict[type, StructType] = {}
    for kind in multi_type_info(types):
        structs.update((each.cls, each) for each in _structs(kind, structs))
    for struct in structs.values():
        schema = schemas[struct.cls.__name__]
        if "description" in schema:
            schema["description"] = _one_line(schema["description"].partition("\n\n")[0])
        texts = attribute_descriptions(struct.cls)
        named = {field.encode_name: field.name for field in struct.fields}
        for name, member in schema.get("properties", {}).items():
            text = texts.get(named.get(name, name))
            if text is not None:
                member["description"] = text


def attribute_descriptions(struct: type) -> dict[str, str]:
    """Return the description of each attribute of a struct, by its name in Python."""
    found: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if issubclass(kind, msgspec.Struct) and "__doc__" in vars(kind):
            docstring = parse(kind.__doc__ or "", style=DocstringStyle.GOOGLE)
            found |= {each.arg_name: _one_line(each.description or "") for each in docstring.params}
    return found


def _structs(kind: Type, seen: Mapping[type, StructType]) -> Iterator[StructType]:
    """Yield the structs that a type is made of, outermost first."""
    if isinstance(kind, StructType):
        if kind.cls in seen:
            return
        yield kind
        inner: Sequence[object] = [field.type for field in kind.fields]
    else:
        inner = [getattr(kind, name) for name in kind.__struct_fields__]
    for part in inner:
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, Type):
                yield from _structs(each, seen)


def _one_line(text: str) -> str:
    return " ".join(text.split())
