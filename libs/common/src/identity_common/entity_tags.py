"""Entity tags of ``If-Match`` and ``If-None-Match`` (RFC 9110 section 8.8.3). Pure.

Owns their syntax and their comparison. Does not own which tag a response has (``http/layers/conditional_get.py``).
"""

import re
from typing import Final

_ENTITY_TAG: Final = re.compile(rb'(?:W/)?"[\x21\x23-\x7E\x80-\xFF]*"')
_LIST_SYNTAX: Final = re.compile(
    rb'[ \t,]*(?:W/)?"[\x21\x23-\x7E\x80-\xFF]*"(?:[ \t]*,(?:[ \t]*(?:W/)?"[\x21\x23-\x7E\x80-\xFF]*")?)*[ \t]*'
)


def read_entity_tags(condition: bytes) -> list[bytes] | None:
    """Return the entity tags of ``If-Match`` or ``If-None-Match``, weak ones with ``W/``; None if it is malformed."""
    return _ENTITY_TAG.findall(condition) if _LIST_SYNTAX.fullmatch(condition) else None


def is_known(etag: bytes, condition: bytes) -> bool:
    """Return whether ``If-None-Match`` contains this entity tag or ``*``; a malformed condition never matches.

    Source:
        RFC 9110 sections 13.1.2 and 8.8.3.2 (weak comparison: ``W/`` is ignored).
    """
    if condition.strip(b" \t") == b"*":
        return True
    tags = read_entity_tags(condition) or ()
    return etag.removeprefix(b"W/") in {tag.removeprefix(b"W/") for tag in tags}
