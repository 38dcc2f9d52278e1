"""Command line of the verifier process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from identity_common.http.server import GRACEFUL_SHUTDOWN_S, SERVER_OPTIONS
from identity_common.settings import InvalidSettingsError
from stead import AsyncAccessTokenVerifier, NotValidFeed
from verifier.app import VerifierApplication
from verifier.settings import Settings, read_settings


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
    except (InvalidSettingsError, ValueError) as error:
        print(f"verifier: invalid settings\n{error}", file=sys.stderr)
        return 2
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        **{**SERVER_OPTIONS, "log_config": LOGGING_CONFIG},  # plain text: it logs only what uvicorn does
        log_level="warning",
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
