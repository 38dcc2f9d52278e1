"""Command line of the verifier process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import uvicorn

from identity_common.http.bounded_connection import BoundedConnection
from stead.not_valid import NotValidFeed
from stead.verifiers import AsyncAccessTokenVerifier
from verifier.app import VerifierApplication
from verifier.settings import InvalidSettings, Settings, read_settings

_KEEP_ALIVE_S: Final = 75  # longer than a proxy keeps idle connections, so that the proxy closes them
_GRACEFUL_SHUTDOWN_S: Final = 10


def application(settings: Settings) -> VerifierApplication:
    """Return the application of these settings.

    Raises:
        ValueError: An address is invalid.
    """
    feed = None
    if settings.feed_url is not None:
        feed = NotValidFeed.over_http(
            settings.feed_url,
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            issuer=settings.issuer,
            clock_leeway_s=settings.clock_leeway_s,
            stale_after_s=settings.stale_after_s,
            when_stale=settings.when_stale,
            when_stale_impersonated=settings.when_stale_impersonated,
        )
    verifier = AsyncAccessTokenVerifier(
        issuer=settings.issuer,
        audience=settings.audience,
        jwks_url=settings.jwks_url,
        leeway_s=settings.leeway_s,
        feed=feed,
        reject_stale_permissions=settings.reject_stale_permissions,
    )
    return VerifierApplication(verifier, feed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal stops it; return the exit status."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments, os.environ)
        app = application(settings)
    except (InvalidSettings, ValueError) as error:
        print(f"verifier: invalid settings\n{error}", file=sys.stderr)
        return 2
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=BoundedConnection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACEFUL_SHUTDOWN_S,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
