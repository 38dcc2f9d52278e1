"""URIs that clients can use, by the generic syntax. Pure."""

import re
from typing import Final
from urllib.parse import urlsplit

_UNIT: Final = r"[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2}"
_URI: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+\-.]*:"
    rf"(?://(?:\[[0-9A-Fa-f:.]+\]|(?:{_UNIT})*)(?::[0-9]*)?(?![^/?#])|(?!//))"
    rf"(?:{_UNIT}|[:@/?])*(?:#(?:{_UNIT}|[:@/?])*)?"
)


def is_usable_uri(text: str) -> bool:
    """Return whether this is an absolute URI that parsers of all clients accept, and agree about.

    It has no user information, complete escapes, brackets around an IPv6 address only, and a port that exists.

    Source:
        RFC 3986 section 3 (the syntax), section 3.2.1 (user information; with a password it is deprecated).
    """
    if not _URI.fullmatch(text):
        return False
    try:
        return urlsplit(text).port != 0  # raises if it is above 65535, or if the brackets hold no address
    except ValueError:
        return False


def is_resource_indicator(indicator: str, *, urn_namespace: str, issuer: str) -> bool:
    """Return whether this is an acceptable indicator: a usable URI without fragment, outside of our own namespaces.

    Source:
        RFC 8707 section 2.
    """
    if "#" in indicator or not is_usable_uri(indicator):
        return False
    parts = urlsplit(indicator)
    return (
        bool(parts.netloc or parts.path)
        and not (parts.scheme in {"http", "https"} and not parts.hostname)
        and not _is_below(indicator.lower(), issuer.lower())
        and not indicator.lower().startswith(f"urn:{urn_namespace}:".lower())
    )


def _is_below(indicator: str, issuer: str) -> bool:
    return indicator == issuer or indicator.startswith((f"{issuer}/", f"{issuer}?"))
