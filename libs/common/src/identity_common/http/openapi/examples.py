"""Examples of bodies, built from the schemas and one table of values."""

from collections.abc import Mapping, Sequence
from typing import Any

from identity_common.http.openapi.declarations import Content, Json
from identity_common.http.openapi.texts import EXAMPLES, EXAMPLES_IN


class Schemas:
    """The schemas of all types, and examples of them."""

    def __init__(self, of_type: Json, components: Json) -> None:
        self._of_type = of_type
        self._components = components

    def content(self, content: Content) -> Json:
        """Return the ``content`` of a body, with its examples."""
        schema: Json = {"type": "object"} if content.kind is bytes else self._of_type[str(content.kind)]
        described: Json = {"schema": _of_body(schema, content.narrowed)}
        if content.examples:
            described["examples"] = {name: {"value": value} for name, value in content.examples.items()}
        elif content.example is not None:
            described["example"] = content.example
        else:
            described["example"] = self.example(schema) or EXAMPLES["customData"]
        return {content.media_type: described}

    def example(self, schema: Json, name: str = "", of: str = "") -> Any:
        """Return a value that the schema allows; realistic for a member with this name in this struct."""
        if "$ref" in schema:
            struct = schema["$ref"].rpartition("/")[2]
            return self.example(self._components[struct], name, name if struct.startswith("Named") else struct)
        known = _known_examples(of)
        if name in known and schema.get("type") != "object":
            return known[name]
        if "enum" in schema:
            return schema["enum"][0]
        if name in EXAMPLES and "properties" not in schema:
            return EXAMPLES[name]
        if "anyOf" in schema:
            return self.example(next(option for option in schema["anyOf"] if option.get("type") != "null"), name, of)
        return self._plain_example(schema, name, of)

    def _plain_example(self, schema: Json, name: str, of: str) -> Any:
        kind = schema.get("type")
        if kind == "object":
            members = schema.get("properties", {})
            return {member: self.example(members[member], member, of) for member in members}
        if kind == "array":
            item = schema.get("items") or {}
            return [self.example(item, name.removesuffix("s") if name.endswith("Ids") else name, of)]
        return {"integer": 1, "boolean": False, "string": "text"}.get(str(kind), {})


def _of_body(schema: Json, narrowed: Mapping[str, Sequence[str]]) -> Json:
    """Return the schema of a body: with fewer values of some members; of a union, with the type that its tag names."""
    if narrowed:
        return {"allOf": [schema, {"properties": {name: {"enum": [*values]} for name, values in narrowed.items()}}]}
    if "discriminator" in schema:
        return {"oneOf": schema["anyOf"], "discriminator": schema["discriminator"]}
    return schema


def _known_examples(of: str) -> Mapping[str, Any]:
    """Return the examples of a struct's members that differ from those of members with the same name elsewhere."""
    prefixes = [prefix for prefix in EXAMPLES_IN if of.startswith(prefix)]
    return EXAMPLES_IN[max(prefixes, key=len)] if prefixes else {}
