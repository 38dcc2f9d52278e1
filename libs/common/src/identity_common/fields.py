"""Types of members that several bodies share, and the limits of what is free in form. Pure."""

from typing import Annotated, Any, Final

import msgspec

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Description = Annotated[str, msgspec.Meta(max_length=1024)]
FreeForm = dict[str, Any]
"""An object whose members are the caller's own."""

FreeFormAnswer = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""The same in an answer: JSON, as it is stored."""

MAX_FREE_FORM_BYTES: Final = 64 * 1024
MAX_RELATED: Final = 10_000
"""Permissions of a role, roles of a holder: an event that names them all stays far below the limit of the bus."""

_encode = msgspec.json.Encoder().encode


class Body(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request body: members in camel case, unknown ones refused."""


class Answer(msgspec.Struct, kw_only=True, rename="camel"):
    """A response body: members in camel case."""


def free_form_text(value: FreeForm | None) -> str:
    """Return a free-form object as it is stored: JSON without white space; none is the empty object."""
    return _encode(value or {}).decode()


def merged(text: str, members: FreeForm) -> FreeForm:
    """Return a stored free-form object with these members: null removes one, whatever is not named stays."""
    stored: FreeForm = msgspec.json.decode(text)
    return {name: value for name, value in (stored | members).items() if name not in members or value is not None}


def is_too_large(text: str, *, max_bytes: int = MAX_FREE_FORM_BYTES) -> bool:
    """Whether JSON exceeds the limit of a free-form object."""
    return len(text) > max_bytes or len(text.encode()) > max_bytes
