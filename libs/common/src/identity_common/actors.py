"""The ``act`` claim (RFC 8693 section 4.1). Pure."""

from collections.abc import Mapping
from typing import Any


def actors_of(actor: Mapping[str, Any] | None) -> list[str] | None:
    """Return the user ids in an ``act`` claim, the current actor first; None if the claim is malformed."""
    subjects = []
    while actor is not None:
        subject, nested = actor.get("sub"), actor.get("act")
        if not isinstance(subject, str) or not isinstance(nested, dict | None):
            return None
        subjects.append(subject)
        actor = nested
    return subjects
