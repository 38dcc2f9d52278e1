"""What a browser calls itself, in two words. Pure.

Browsers claim to be each other, so the order of the tables decides; nothing depends on the result, which may be forged.
"""

from typing import Final, NamedTuple

_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS", "Firefox"),
    ("CriOS", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


class Program(NamedTuple):
    """A browser and its operating system; each is empty if it is not one of the common ones."""

    browser: str
    system: str


def program(user_agent: str) -> Program:
    """Return what a ``User-Agent`` is."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return Program(browser, system)
