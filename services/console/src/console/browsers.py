"""Browsers and systems by their ``User-Agent``, for people who look for a session that they do not know. Pure.

Only what people call by name is recognized; the header may be anything, and proves nothing.
"""

import re
from typing import Final, NamedTuple

_BROWSERS: Final = (
    ("Edge", re.compile(r"\bEdg(?:e|A|iOS)?/")),
    ("Opera", re.compile(r"\bOPR/")),
    ("Samsung Internet", re.compile(r"\bSamsungBrowser/")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/")),
    ("Chrome", re.compile(r"\b(?:Chrome|CriOS)/")),
    ("Safari", re.compile(r"\bVersion/[\d.]+ .*\bSafari/")),
)
"""The first that matches counts: browsers also claim to be those that they descend from."""
_SYSTEMS: Final = (
    ("Android", re.compile(r"\bAndroid\b")),
    ("iPhone", re.compile(r"\biPhone\b")),
    ("iPad", re.compile(r"\biPad\b")),
    ("Windows", re.compile(r"\bWindows\b")),
    ("ChromeOS", re.compile(r"\bCrOS\b")),
    ("macOS", re.compile(r"\bMacintosh\b")),
    ("Linux", re.compile(r"\bLinux\b")),
)
_SHOWN_CHARACTERS: Final = 60


class Browser(NamedTuple):
    """How a page names a browser.

    Attributes:
        name: Its name, or the beginning of the header if that is not known; empty without one.
        system: Where it runs; empty if that is not known, or the name is not.
    """

    name: str
    system: str


def browser_of(user_agent: str) -> Browser:
    """Return how a page names the browser that sent this header."""
    name, system = _first(_BROWSERS, user_agent), _first(_SYSTEMS, user_agent)
    return Browser(name, system) if name else Browser(user_agent[:_SHOWN_CHARACTERS], "")


def _first(known: tuple[tuple[str, re.Pattern[str]], ...], user_agent: str) -> str:
    return next((name for name, pattern in known if pattern.search(user_agent)), "")
