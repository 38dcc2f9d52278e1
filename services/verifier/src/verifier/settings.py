"""Settings of the verifier process, from options and environment variables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

import msgspec

from identity_common.settings import InvalidSettingsError, text_of
from identity_common.version import VERSION

WhenStale = Literal["closed", "open"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one process.

    Attributes:
        issuer: ``iss`` of the tokens, byte for byte.
        audience: The resource indicator of the API behind the proxy.
        jwks_url: Address of the issuer's keys; None for ``{issuer}/jwks``.
        feed_url: Base address of the service, for the not-valid feed; None to do without the feed.
        client_id: Of a first-party application with a secret, to read the feed; None if the feed is public.
        client_secret: Its secret.
        leeway_s: Tolerated clock difference in seconds when ``exp`` and ``nbf`` are judged.
        reject_stale_permissions: Whether tokens with permissions that were lost after they were issued are refused.
        clock_leeway_s: Tolerated clock difference in seconds when the feed's heartbeats are judged.
        stale_after_s: Seconds after the last heartbeat from which the feed is stale.
        when_stale: Whether tokens are refused (``closed``) or accepted (``open``) while the feed is stale.
        when_stale_impersonated: The same for tokens with ``act`` or ``gty``.
        host: Address to listen on.
        port: Port to listen on.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    feed_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    leeway_s: float = 60.0
    reject_stale_permissions: bool = False
    clock_leeway_s: float = 5.0
    stale_after_s: float = 4.0
    when_stale: WhenStale = "open"
    when_stale_impersonated: WhenStale = "closed"
    host: str = "127.0.0.1"
    port: int = 8000

    def __repr__(self) -> str:
        """Hide the values: they include a secret."""
        return "Settings(…)"


_VARIABLES: Final = {
    "issuer": "iss of the tokens (required)",
    "audience": "resource indicator of the API behind the proxy (required)",
    "jwks_url": "address of the issuer's keys, if not ISSUER/jwks",
    "feed_url": "base address of the service, to follow its not-valid feed; without it, no feed",
    "client_id": "application that may read the feed; its secret is in CLIENT_SECRET or CLIENT_SECRET_FILE",
    "leeway_s": "tolerated clock difference, 60",
    "reject_stale_permissions": "true or false: whether tokens whose permissions were lost since are refused, false",
    "clock_leeway_s": "tolerated clock difference to the feed's heartbeats, 5",
    "stale_after_s": "seconds without a heartbeat until the feed is stale, 4",
    "when_stale": "closed or open: what happens to tokens while the feed is stale, open",
    "when_stale_impersonated": "the same for tokens with act or gty, closed",
}
"""Option and environment variable (in capitals) of each setting that has both."""


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the options, and the environment for those that are not given. An empty variable counts as absent.

    Raises:
        InvalidSettingsError: One line for every setting that is missing or invalid.
        SystemExit: An option is unknown, or ``--help`` or ``--version`` was given and has been printed.
    """
    parser = argparse.ArgumentParser(
        prog="python -m verifier",
        description="Verify access tokens for a reverse proxy. --issuer may be ISSUER in the environment, and so on.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    for name, text in _VARIABLES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=environment.get(name.upper()), help=text)
    parser.add_argument("--host", help="address to listen on, 127.0.0.1")
    parser.add_argument("--port", help="port to listen on, 8000")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value}
    problems: list[str] = []
    secret = text_of(environment, "CLIENT_SECRET", problems)
    values: dict[str, object] = {} if secret == "" else {"client_secret": secret}
    for field in msgspec.structs.fields(Settings):
        if field.name not in given:
            if field.required:
                problems.append(f"--{field.name} or {field.name.upper()}: must be set")
            continue
        try:
            values[field.name] = msgspec.convert(given[field.name], field.type, strict=False)
        except msgspec.ValidationError:
            problems.append(f"{field.name.upper()}: not acceptable")
    problems += _contradictions(values)
    if problems:
        raise InvalidSettingsError("\n".join(problems))
    return msgspec.convert(values, Settings)


def _contradictions(values: Mapping[str, object]) -> list[str]:
    found = []
    if ("client_id" in values) != ("client_secret" in values):
        found.append("CLIENT_ID and CLIENT_SECRET: set both or neither")
    if "client_id" in values and "feed_url" not in values:
        found.append("CLIENT_ID: of use only with FEED_URL")
    if values.get("reject_stale_permissions") and "feed_url" not in values:
        found.append("REJECT_STALE_PERMISSIONS: of use only with FEED_URL")
    found += [
        f"{name.upper()}: must be a number of seconds, 0 or more"
        for name in ("leeway_s", "clock_leeway_s")
        if not 0 <= cast("float", values.get(name, 0.0)) < float("inf")
    ]
    if not 0 < cast("float", values.get("stale_after_s", 1.0)) < float("inf"):
        found.append("STALE_AFTER_S: must be a positive number of seconds")
    if not 0 <= cast("int", values.get("port", 0)) <= 65_535:
        found.append("PORT: not a port")
    return found
