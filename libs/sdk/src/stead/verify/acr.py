"""Authentication context classes: how strongly a user has signed in, as ``acr`` says it. Pure.

Source:
    OpenID Connect Core 1.0 section 2 (``acr``); OpenID Connect Extended Authentication Profile ACR Values 1.0 section 2
    (``phr``).
"""

from typing import Final, Literal

Level = Literal["password", "mfa", "phr"]
"""A password or what replaces it, a second factor besides, or a passkey, which cannot be phished; weakest first."""

_ORDER: Final[tuple[Level, ...]] = ("password", "mfa", "phr")


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
