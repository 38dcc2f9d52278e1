"""Matching redirect URIs, and building redirects to them. Pure."""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlencode, urlsplit

from identity_common.wire.events import ApplicationState

_LOOPBACK: Final = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\])):([0-9]{1,5})(/.*)?", re.DOTALL)


def is_registered(redirect_uri: str, registered: Collection[str], *, is_native: bool) -> bool:
    """Return whether the URI is registered, compared character by character (RFC 9700 section 2.1).

    A native application may use any port of a registered loopback address.

    Source:
        RFC 8252 section 7.3 (any port at the time of the request for loopback IP redirect URIs).
    """
    if redirect_uri in registered:
        return True
    wanted = _without_port(redirect_uri) if is_native else None
    return wanted is not None and any(_without_port(known) == wanted for known in registered)


def _without_port(uri: str) -> tuple[str, str] | None:
    """Return host and path of a loopback address; None for other addresses and for an invalid port."""
    match = _LOOPBACK.fullmatch(uri)
    if match is None:
        plain = re.fullmatch(r"(http://(?:127\.0\.0\.1|\[::1\]))(/.*)?", uri, re.DOTALL)
        return (plain[1], plain[2] or "") if plain else None
    return (match[1], match[3] or "") if int(match[2]) <= 65535 else None


def with_parameters(redirect_uri: str, parameters: dict[str, str]) -> str:
    """Return the URI with parameters appended to its query (RFC 6749 section 4.1.2)."""
    if not parameters:
        return redirect_uri
    separator = "&" if urlsplit(redirect_uri).query else "" if redirect_uri.endswith("?") else "?"
    return f"{redirect_uri}{separator}{urlencode(parameters)}"


def home_of(application: ApplicationState) -> str | None:
    """Return the first page of a web application, as far as its addresses tell.

    It is the address for signed-out users that its first redirect URI (on https if it has one) lies below, such as
    ``https://example.com/shop`` of ``https://example.com/shop/callback``; else the origin of that redirect URI. None
    for a native application, and for one without a redirect URI.
    """
    if application.type not in {"SPA", "Traditional"}:
        return None
    by_scheme = {urlsplit(uri).scheme: uri for uri in reversed(application.redirect_uris)}
    uri = by_scheme.get("https") or by_scheme.get("http")
    if uri is None:
        return None
    above = (each for each in application.post_logout_redirect_uris if uri.startswith(f"{each.rstrip('/')}/"))
    return min(above, key=len, default=f"{urlsplit(uri).scheme}://{urlsplit(uri).netloc}/")


def destination(redirect_uri: str, *, is_native: bool) -> str | None:
    """Return the host and port that a redirect leads to; None if it leads to an application on the user's device."""
    parts = urlsplit(redirect_uri)
    is_web = parts.scheme == "https" or (parts.scheme == "http" and not is_native)
    return parts.netloc if is_web else None
