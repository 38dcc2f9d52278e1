"""Origins of web pages that applications have registered. Pure."""

from urllib.parse import urlsplit

from identity_common.wire.events import ApplicationState

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(uri: str) -> str | None:
    """Return the origin of an http(s) URI as a browser writes it; none for other schemes.

    Source:
        RFC 6454 section 6.2 (scheme, host and port; the default port left out).
    """
    parts = urlsplit(uri)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port in {None, _DEFAULT_PORTS[parts.scheme]} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def registered_origins(application: ApplicationState) -> frozenset[str]:
    """Return the origins whose pages may request this application's tokens."""
    redirects = application.redirect_uris if application.type == "SPA" else ()
    origins = {origin_of(uri) for uri in (*redirects, *application.cors_allowed_origins)}
    return frozenset(origin for origin in origins if origin is not None)
