"""The ``Identity-Revision`` header: a service that receives it answers from a state at least as new."""

from __future__ import annotations

import re
import threading
from typing import Final

HEADER: Final = "Identity-Revision"

# Unknown sources are not sent: a service that does not know one either refuses the request.
_ITEM: Final = re.compile(r"(management|template):([0-9]{1,18})")


class HighestRevisions:
    """The highest revision seen per source. Safe for threads."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._lock = threading.Lock()

    def observe(self, header: str | None) -> None:
        """Record the header of a response; unknown items are ignored."""
        for item in (header or "").split(","):
            match = _ITEM.fullmatch(item.strip(" \t"))
            if match is None:
                continue
            with self._lock:
                self._highest[match[1]] = max(int(match[2]), self._highest.get(match[1], 0))

    @property
    def header(self) -> str | None:
        """The header to send, ``management:97, template:184``; None before any was seen."""
        with self._lock:
            seen = sorted(self._highest.items())
        return ", ".join(f"{source}:{revision}" for source, revision in seen) or None


def checked_revision(revision: str) -> str:
    """Return a valid header value unchanged.

    Raises:
        ValueError: It is not of the form ``management:97`` or ``management:97, template:184``.
    """
    if not all(_ITEM.fullmatch(item.strip(" \t")) for item in revision.split(",")):
        raise ValueError("revision must be of the form 'management:97' or 'management:97, template:184'")
    return revision
