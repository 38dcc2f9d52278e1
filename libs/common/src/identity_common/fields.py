"""Types of members that several bodies share, and limits of free-form members. Pure."""

from typing import Annotated, Any, Final

import msgspec

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Description = Annotated[str, msgspec.Meta(max_length=1024)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
"""An id that need not exist: the audit trail keeps it."""
Ids = tuple[Annotated[str, msgspec.Meta(max_length=256)], ...]
"""Ids of what the request relates to."""

AddedIds = Annotated[Ids, msgspec.Meta(min_length=1)]
FreeForm = dict[str, Any]
"""An object with arbitrary members, defined by the client."""

FreeFormAnswer = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""The same in a response: JSON as it is stored."""

MAX_FREE_FORM_BYTES: Final = 64 * 1024
MAX_RELATED: Final = 10_000
"""Permissions of a role, or roles of a holder: keeps their event far below the message limit of the bus."""

_encode = msgspec.json.Encoder().encode


class Body(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request body: camel-case members; unknown ones are refused."""


class Answer(msgspec.Struct, kw_only=True, rename="camel"):
    """A response body: camel-case members."""


def free_form_text(value: FreeForm | None) -> str:
    """Return a free-form object as it is stored: compact JSON; None becomes the empty object."""
    return _encode(value or {}).decode()


def merged(text: str, members: FreeForm) -> FreeForm:
    """Return a stored free-form object with these members merged into it; null removes a member."""
    stored: FreeForm = msgspec.json.decode(text)
    return {name: value for name, value in (stored | members).items() if name not in members or value is not None}


def each_once(ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return ids in their order, without repetitions."""
    return tuple(dict.fromkeys(ids))


def is_too_large(text: str, *, max_bytes: int = MAX_FREE_FORM_BYTES) -> bool:
    """Whether JSON exceeds the limit of a free-form object."""
    return len(text) > max_bytes or len(text.encode()) > max_bytes
