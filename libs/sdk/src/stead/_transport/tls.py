"""The default TLS configuration of the library's own HTTP clients."""

from __future__ import annotations

import functools
import ssl

import httpx2 as httpx


@functools.cache
def default_ssl_context() -> ssl.SSLContext:
    """Return an SSL context with the HTTP library's trusted certificates, created once per process.

    Loading them blocks for about 20 ms, longer than most requests take.
    """
    return httpx.create_ssl_context()
