"""Addresses of tickets in the operator's own system. Pure."""

from typing import Final
from urllib.parse import quote, urlsplit

from identity_common.uris import is_usable_uri

_PLACE: Final = "{ticket}"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def ticket_url_problem(template: str) -> str | None:
    """Return what is wrong with a template; None if nothing."""
    if template.count(_PLACE) != 1 or not is_usable_uri(template.replace(_PLACE, "1")):
        return f"must be a URL with {_PLACE} once, such as https://tickets.example.com/{_PLACE}"
    parts = urlsplit(template.replace(_PLACE, "1"))
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return "must be https, or http on loopback"
    if not parts.hostname or _PLACE in urlsplit(template).netloc:
        return f"must have {_PLACE} after the host"
    return None


def ticket_address(template: str, ticket: str) -> str:
    """Return the address of a ticket; empty without a template, or for a dot segment, which names another path.

    Source:
        RFC 3986 section 3.3.
    """
    return template.replace(_PLACE, quote(ticket, safe="")) if template and ticket not in {".", ".."} else ""
