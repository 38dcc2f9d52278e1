"""Whom to trust on the other side of a connection, unless a client of one's own says otherwise."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def default_ssl_context() -> ssl.SSLContext:
    """Return the certificates that the HTTP library trusts, read once a process.

    Reading them takes about 20 ms, on the event loop too: longer than most requests that they are read for.
    """
    return httpx.create_ssl_context()
