"""Settings of management-service: read once, in ``asgi.py``, and passed on as narrow values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from identity_common.pages.looks import GROUND, color_problem, is_logo_uri
from identity_common.settings import Secret, ServiceSettings

_LABEL: Final = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")  # RFC 1123 section 2.1

_MAX_CONSOLE_NAME: Final = 64
_NAMES: Final = ("bootstrap_require_context", "bootstrap_excluded_roles")
_SECRET_NAMES: Final = (
    "bootstrap_secret_name",
    "bootstrap_console_secret_name",
    "bootstrap_administrator_secret_name",
)


class Settings(ServiceSettings, frozen=True, kw_only=True):
    """The settings of management-service.

    Attributes:
        redis_url: ``redis://user:password@host:port/0``; holds subject tokens, counts of sign-in attempts and console
            sessions.
        redis_replicas: How many replicas of Redis must acknowledge the end of an impersonation; 0 if none can be
            promoted. As for token-service.
        environment_variable_keys: Base64 of 32 bytes each, newest first: the first encrypts the environment variables
            of the custom-claims function, all decrypt them. Shared with token-service.
        audit_head_keys: Likewise, for the keys that sign heads of the audit trail. No other service has them, so none
            may be among ``environment_variable_keys``. Keys derived from them sign the console's cookies.
        subject_token_ttl_s: Lifetime of subject tokens; 1 to 3600.
        database_connections: Size of the PostgreSQL pool; look-ups, searches and background work use a few more.
        bootstrap_secret_name: The Kubernetes Secret, in the namespace of the pod, that ``bootstrap`` writes the
            credentials to; empty for none.
        bootstrap_file: The file that ``bootstrap`` writes them to instead, as JSON. Without either, they are printed.
        bootstrap_console_secret_name: The Secret that ``bootstrap`` writes the credentials of the console's client to,
            with the file names of ``console_credentials``; empty for no console.
        bootstrap_administrator_secret_name: The Secret that ``bootstrap`` writes the user name and invitation of the
            first administrator to, if there is none yet; needs ``bootstrap_console_secret_name``.
        bootstrap_require_actor: Whether ``bootstrap`` turns on ``requireActor`` of ``/api/configs/impersonation``. This
            and the next two have no effect on a tenant whose policy was set before, or that is older than the policy.
        bootstrap_require_context: Names for ``requireContext`` there, such as ``reason,ticketId``.
        bootstrap_excluded_roles: Names of existing API roles for ``excludedRoles`` there, such as ``Administrator``.
        password_hashing_threads: Passwords hashed concurrently; each occupies a core and 19 MiB. As many requests wait
            for a thread as can be answered in time; the others get 503.
        pending_requests_per_address: Limit per 15 minutes of sign-ins to the console from one IPv4 address or IPv6 /64
            that have begun and are not completed.
        password_window_s: Length of the window in which password attempts are counted.
        password_attempts_per_account: Limit per window for one account, and for each browser known to it.
        audit_retention_days: Age in days at which entries of the audit trail are dropped, a month at a time.
        console_credentials: Directory with the files ``console_client_id`` and ``console_client_secret``, which are
            read at each use; empty for no console.
        console_name: Product name in the header and title of every page of the console.
        console_color: Colour of its buttons and links, ``#rrggbb``; empty for Stead's colour.
        console_logo_uri: https URL of an image beside the name; empty for Stead's logo.
        management_url: URL at which the console reaches this service, if not ``base_url``.
        token_url: URL at which it reaches token-service, if not ``base_url``.
        template_url: URL at which it reaches template-service, if not ``base_url``.
        audit_backlog: How many entries about subject tokens may wait in Redis for the bus; then minting gets 503.
    """

    redis_url: Secret
    environment_variable_keys: tuple[Secret, ...]
    audit_head_keys: tuple[Secret, ...]
    redis_replicas: int = 0
    subject_token_ttl_s: int = 600
    database_connections: int = 10
    bootstrap_secret_name: str = ""
    bootstrap_file: str = ""
    bootstrap_console_secret_name: str = ""
    bootstrap_administrator_secret_name: str = ""
    bootstrap_require_actor: bool = False
    bootstrap_require_context: tuple[str, ...] = ()
    bootstrap_excluded_roles: tuple[str, ...] = ()
    password_hashing_threads: int = 2
    pending_requests_per_address: int = 1000
    password_window_s: int = 900
    password_attempts_per_account: int = 10
    audit_retention_days: int = 400
    audit_backlog: int = 100_000
    console_credentials: str = ""
    console_name: str = "Stead"
    console_color: str = ""
    console_logo_uri: str = ""
    management_url: str | None = None
    token_url: str | None = None
    template_url: str | None = None

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of this service."""
        found = super().problems(values) + cls.wrong_scheme(values, "redis_url", "redis://", "rediss://")
        if not 1 <= values.get("subject_token_ttl_s", 1) <= 3600:
            found.append("SUBJECT_TOKEN_TTL_S: must be between 1 and 3600")
        found += [
            f"{name.upper()}: must be names with commas between them"
            for name in _NAMES
            if not all(values.get(name, ()))
        ]
        found += [
            f"{name.upper()}: must be the name of a Secret: a-z, 0-9, '-' and '.', 253 at most"
            for name in _SECRET_NAMES
            if values.get(name) and not _is_name(values[name])
        ]
        found += _look_problems(values)
        found += cls.wrong_keys(values, "environment_variable_keys") + cls.wrong_keys(values, "audit_head_keys")
        if not set(values.get("audit_head_keys", ())).isdisjoint(values.get("environment_variable_keys", ())):
            found.append("AUDIT_HEAD_KEYS: must have no key of ENVIRONMENT_VARIABLE_KEYS, which token-service knows")
        return found + cls.too_small(
            values,
            database_connections=1,
            password_hashing_threads=1,
            pending_requests_per_address=1,
            password_window_s=1,
            password_attempts_per_account=1,
            audit_retention_days=1,
            audit_backlog=1,
            redis_replicas=0,
        )


def _look_problems(values: Mapping[str, Any]) -> Iterator[str]:
    if len(values.get("console_name", "")) > _MAX_CONSOLE_NAME:
        yield f"CONSOLE_NAME: must be {_MAX_CONSOLE_NAME} characters at most"
    color, logo_uri = values.get("console_color"), values.get("console_logo_uri")
    if color and (problem := color_problem(color, ground=GROUND)):
        yield f"CONSOLE_COLOR: {problem}"
    if logo_uri and not is_logo_uri(logo_uri):
        yield "CONSOLE_LOGO_URI: must be https, with a domain name as its host, without a fragment"


def _is_name(text: str) -> bool:
    return len(text) <= 253 and _NAME.fullmatch(text) is not None
