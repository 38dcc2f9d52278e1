"""``Identity-Revision``: how far a client has seen each source of changes.

A source (``management``, ``template``) numbers its changes without gaps. A write returns its revision; a request that
carries a revision is answered from a state that includes it.
"""

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Literal, get_args

Source = Literal["management", "template"]
SOURCES: Final[frozenset[str]] = frozenset(get_args(Source))
HEADER: Final = "Identity-Revision"

_ITEM: Final = re.compile(r"([a-z]+):(0|[1-9][0-9]{0,17})")


_NOTED: Final[ContextVar[dict[str, int] | None]] = ContextVar("noted_revisions", default=None)


class MalformedRevisionError(ValueError):
    """The header does not have the form ``management:97`` or ``management:97, template:184``."""


def format_revisions(revisions: Mapping[str, int]) -> str:
    """Return the header's value, sources in alphabetical order: ``management:97, template:184``."""
    return ", ".join(f"{source}:{revision}" for source, revision in sorted(revisions.items()))


def parse_revisions(values: Sequence[str]) -> dict[str, int]:
    """Return the highest revision in the header's lines for each source; empty without a line.

    Raises:
        MalformedRevisionError: A line is malformed or names an unknown source.
    """
    found: dict[str, int] = {}
    for item in ",".join(values).split(",") if values else ():
        match = _ITEM.fullmatch(item.strip(" \t"))
        if match is None or match[1] not in SOURCES:
            raise MalformedRevisionError
        found[match[1]] = max(found.get(match[1], 0), int(match[2]))
    return found


def begin_noting() -> Mapping[str, int]:
    """Begin to note the revisions that the current request writes; return them, empty as yet."""
    noted: dict[str, int] = {}
    _NOTED.set(noted)
    return noted


def note_revision(source: Source, revision: int) -> None:
    """Note a revision that was committed, for the response of the current request; background work has none."""
    noted = _NOTED.get()
    if noted is not None:
        noted[source] = max(noted.get(source, 0), revision)
