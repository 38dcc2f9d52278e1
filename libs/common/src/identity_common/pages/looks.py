"""Configurable look of pages: a readable colour, and a logo that a page may load. Pure."""

import math
import re
from typing import Final
from urllib.parse import urlsplit

from identity_common.colors import contrast
from identity_common.pages.design import LEGIBLE
from identity_common.uris import is_usable_uri

CARD: Final = "#ffffff"
"""Background of forms, in the light scheme."""
GROUND: Final = "#f7f6f3"
"""Background of cards."""

_COLOR: Final = re.compile(r"#[0-9A-Fa-f]{6}")
# RFC 3986, without the fragment, and without *, which is a wildcard in a content security policy
_URI_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()+,;=%]+")
_DOMAIN: Final = re.compile(r"[a-z0-9.-]+")  # a host that a content security policy can name


def color_problem(color: str, *, ground: str = CARD) -> str | None:
    """Return what is wrong with the colour of buttons and links; None if nothing.

    Args:
        color: Of the buttons, whose text is white, and of links.
        ground: Their background.

    Source:
        WCAG 2.2 success criterion 1.4.3 (4.5:1 between text and background).
    """
    if not _COLOR.fullmatch(color):
        return "must be a colour such as #2450c8"
    ratio = contrast(color, ground)
    if ratio < LEGIBLE:
        shown = "white" if ground == CARD else ground
        return f"has a contrast of {math.floor(ratio * 10) / 10}:1 with {shown}: choose a darker shade, 4.5:1 or more"
    return None


def is_logo_uri(uri: str) -> bool:
    """Return whether this is an acceptable address of a logo; pages allow images from its origin.

    Source:
        Content Security Policy Level 3 section 2.3.1 (a source names a host; it cannot be an IPv6 address).
    """
    if not _URI_CHARACTERS.fullmatch(uri) or not is_usable_uri(uri):
        return False
    parts = urlsplit(uri)
    return parts.scheme == "https" and parts.hostname is not None and _DOMAIN.fullmatch(parts.hostname) is not None
