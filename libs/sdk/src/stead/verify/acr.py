"""Authentication context classes: how strongly a user has signed in, as ``acr`` says it. Pure.

Source:
    OpenID Connect Core 1.0 section 2 (``acr``); OpenID Connect Extended Authentication Profile ACR Values 1.0 section 2
    (``phr``).
"""

import re
from typing import Final, Literal

Level = Literal["password", "mfa", "phr"]
"""A password or what replaces it, a second factor besides, or a passkey, which cannot be phished; weakest first."""

_ORDER: Final[tuple[Level, ...]] = ("password", "mfa", "phr")
_KNOWN: Final = re.compile(r"urn:([A-Za-z0-9-]+):acr:(?:password|mfa)|phr")


def acr_of(level: Level, *, urn_namespace: str) -> str:
    """Return the value of ``acr`` for a level: ``urn:identity:acr:mfa``, or ``phr``."""
    return level if level == "phr" else f"urn:{urn_namespace}:acr:{level}"


def level_of(acr: str, *, urn_namespace: str) -> Level | None:
    """Return the level of a value of ``acr``; None for one that is not of this system."""
    return next((level for level in _ORDER if acr_of(level, urn_namespace=urn_namespace) == acr), None)


def satisfies(level: Level | None, wanted: Level | None) -> bool:
    """Return whether a sign-in of one level is strong enough for another; nothing wanted is always satisfied."""
    if wanted is None:
        return True
    return level is not None and _ORDER.index(level) >= _ORDER.index(wanted)


def strongest(*levels: Level | None) -> Level | None:
    """Return the strongest of several levels; None if all are None."""
    return max((level for level in levels if level is not None), key=_ORDER.index, default=None)


def is_known(acr: object) -> bool:
    """Return whether a value of ``acr`` names a level, in any namespace."""
    return isinstance(acr, str) and _KNOWN.fullmatch(acr) is not None


def meets(acr: str | None, wanted: str) -> bool:
    """Return whether a value of ``acr`` is as strong as another; one without a level meets itself only."""
    known = _KNOWN.fullmatch(wanted)
    if acr is None or known is None:
        return acr == wanted
    urn_namespace = known[1] or ""
    return satisfies(level_of(acr, urn_namespace=urn_namespace), level_of(wanted, urn_namespace=urn_namespace))
