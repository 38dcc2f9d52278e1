"""Settings of management-service: read once, in ``asgi.py``, and passed on as narrow values."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from identity_common.mail_addresses import MalformedAddressError, sender_of
from identity_common.names import name_problem
from identity_common.outgoing import network_problem
from identity_common.pages.looks import color_problem
from identity_common.relying_party import relying_party, rp_id_problem
from identity_common.settings import AfterLostWrites, ApiSettings, Secret
from identity_common.smtp_address import MalformedSmtpAddressError, SmtpAddress
from identity_common.uris import is_usable_uri

_LABEL: Final = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")  # RFC 1123 section 2.1
_AAGUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

_NAMES: Final = ("bootstrap_require_context", "bootstrap_excluded_roles")
_KEY_RINGS: Final = ("environment_variable_keys", "audit_head_keys", "mail_keys")
_SECRET_NAMES: Final = (
    "bootstrap_secret_name",
    "bootstrap_console_secret_name",
    "bootstrap_administrator_secret_name",
)


class Settings(ApiSettings, frozen=True, kw_only=True):
    """The settings of management-service.

    Attributes:
        redis_url: ``redis://user:password@host:port/0``, or by sentinels (``redis+sentinel://``); holds subject tokens
            and counts of sign-in attempts.
        smtp_url: Address of the mail server: ``smtps://user:password@host:465`` (TLS), or ``smtp://…@host:587``
            (STARTTLS). Without it, and without ``mail_folder``, no mail is sent, and what needs mail is off.
        smtp_require_tls: Whether ``smtp://`` requires STARTTLS; if not, mails and links are sent in clear text.
        smtp_timeout_s: How long the mail server may take for a connection, and for a mail.
        mail_from: Sender of all mail, needed with ``smtp_url``: ``stead@example.com`` or ``Stead <stead@example.com>``.
        mail_name: Name in mails that no application wants.
        mail_color: Colour of their buttons; at least 4.5:1 in contrast with white.
        mail_language: Language of mails to users without one: a tag such as ``de``.
        mail_folder: Directory that keeps mails where there is no ``smtp_url``, shown at ``/mail`` to clients on this
            machine; for development.
        redis_replicas: How many replicas of Redis must acknowledge the end of an impersonation; 0 if none can be
            promoted. As for token-service, which with any refuses subject tokens that were stored with 0.
        outgoing_networks: Networks in which identity providers may be called, besides public addresses:
            ``10.20.0.0/16,fd00:1::/64``. With those of loopback, ``127.0.0.0/8,::1/128``, also over http; for
            development.
        environment_variable_keys: Base64 of 32 bytes each, newest first: the first encrypts the environment variables
            of the custom-claims function, all decrypt them. Shared with token-service.
        audit_head_keys: Likewise, for the keys that sign heads of the audit trail, and for the secrets of authenticator
            apps. No other service has them, so none may be among ``environment_variable_keys``.
        mail_keys: Likewise, for mail on its way to its sender. Shared with template-service, so none may be among the
            other two.
        subject_token_ttl_s: Lifetime of subject tokens; 1 to 3600.
        allow_http_loopback_redirects: Whether Traditional and SPA applications may have redirect URIs with ``http`` on
            loopback, as Native ones may (RFC 9700 section 2.6); for development. Stored ones stay valid in any case.
        after_lost_writes: What follows when the database lacks changes that were published, as after the promotion of a
            standby that had not received them: ``repair`` signs everyone out and publishes the whole state; ``refuse``
            answers writes with 503 until ``restored`` was run.
        database_connections: Size of the PostgreSQL pool; look-ups, searches and background work use a few more.
        bootstrap_secret_name: The Kubernetes Secret, in the namespace of the pod, that ``bootstrap`` writes the
            credentials to; empty for none.
        bootstrap_file: The file that ``bootstrap`` writes them to instead, as JSON. Without either, they are printed.
        bootstrap_console_secret_name: The Secret that ``bootstrap`` writes the credentials of the console's client and
            the account page's to, under the names of their files, ``console_client_id``, ``console_client_secret``,
            ``account_client_id`` and ``account_client_secret``; empty for no console.
        bootstrap_administrator_secret_name: The Secret that ``bootstrap`` writes the user name and invitation of the
            first administrator to, if there is none yet; or a code with which one sets up the second factor that the
            console demands, if none has one. Needs ``bootstrap_console_secret_name``.
        bootstrap_console_minimum_acr: How strongly users must have signed in to the console that ``bootstrap`` creates,
            ``minimumAcr`` of its application: ``mfa``, with a second factor or a passkey; ``phr``, with a passkey. It
            does not change an existing one.
        bootstrap_require_actor: Whether ``bootstrap`` turns on ``requireActor`` of ``/api/configs/impersonation``. This
            and the next two have no effect on a tenant whose policy was set before, or that is older than the policy.
        bootstrap_require_context: Names for ``requireContext`` there, such as ``reason,ticketId``.
        bootstrap_excluded_roles: Names of existing API roles for ``excludedRoles`` there, such as ``Administrator``.
        password_hashing_threads: Passwords hashed concurrently; each occupies a core and 19 MiB. As many requests wait
            for a thread as can be answered in time; the others get 503.
        password_window_s: Length of the window in which password attempts are counted.
        password_attempts_per_account: Limit per window for one account, and for each browser known to it; likewise, in
            six hours, of codes of authenticator apps.
        webauthn_rp_id: Domain of passkeys, if not the host of ``base_url``: one that the host belongs to. As for
            token-service. Passkeys work for the domain that they were created for alone, so do not change it later.
        webauthn_aaguids: Makes of passkeys that are accepted, by their AAGUIDs; empty for all. Browsers say it without
            proof, and some hide it.
        audit_retention_days: Age in days at which entries of the audit trail are dropped, a month at a time.
        audit_backlog: How many entries about subject tokens may wait in Redis for the bus; then minting gets 503.
    """

    redis_url: Secret
    environment_variable_keys: tuple[Secret, ...]
    audit_head_keys: tuple[Secret, ...]
    mail_keys: tuple[Secret, ...]
    smtp_url: Secret = ""
    smtp_require_tls: bool = True
    smtp_timeout_s: float = 60.0
    mail_from: str = ""
    mail_name: str = "Stead"
    mail_color: str = "#0b5d66"
    mail_language: Literal["en", "de"] = "en"
    mail_folder: str = ""
    redis_replicas: int = 0
    outgoing_networks: tuple[str, ...] = ()
    subject_token_ttl_s: int = 600
    allow_http_loopback_redirects: bool = False
    after_lost_writes: AfterLostWrites = "repair"
    database_connections: int = 10
    bootstrap_secret_name: str = ""
    bootstrap_file: str = ""
    bootstrap_console_secret_name: str = ""
    bootstrap_administrator_secret_name: str = ""
    bootstrap_console_minimum_acr: Literal["none", "mfa", "phr"] = "none"
    bootstrap_require_actor: bool = False
    bootstrap_require_context: tuple[str, ...] = ()
    bootstrap_excluded_roles: tuple[str, ...] = ()
    password_hashing_threads: int = 2
    password_window_s: int = 900
    password_attempts_per_account: int = 10
    webauthn_rp_id: str = ""
    webauthn_aaguids: tuple[str, ...] = ()
    audit_retention_days: int = 400
    audit_backlog: int = 100_000

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of this service."""
        found = super().problems(values) + cls.wrong_redis(values) + cls.wrong_replicas(values)
        if not 1 <= values.get("subject_token_ttl_s", 1) <= 3600:
            found.append("SUBJECT_TOKEN_TTL_S: must be between 1 and 3600")
        found += [
            f"OUTGOING_NETWORKS: {problem}"
            for each in values.get("outgoing_networks", ())
            if (problem := network_problem(each))
        ]
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
        found += cls._wrong_key_rings(values) + cls._wrong_mail(values) + cls._wrong_passkeys(values)
        return found + cls.too_small(
            values,
            database_connections=1,
            password_hashing_threads=1,
            password_window_s=1,
            password_attempts_per_account=1,
            audit_retention_days=1,
            audit_backlog=1,
            redis_replicas=0,
            smtp_timeout_s=1,
        )

    @property
    def offers_passkeys(self) -> bool:
        """Whether passkeys can be used here: they belong to a domain."""
        return relying_party(self.base_url, self.webauthn_rp_id) is not None

    @property
    def sends_mail(self) -> bool:
        """Whether mail is sent, if only into a folder; otherwise what needs mail is off."""
        return bool(self.smtp_url or self.mail_folder)

    @classmethod
    def _wrong_key_rings(cls, values: Mapping[str, Any]) -> list[str]:
        found = [line for name in _KEY_RINGS for line in cls.wrong_keys(values, name)]
        shared, own, mail = (set(values.get(name, ())) for name in _KEY_RINGS)
        if not own.isdisjoint(shared):
            found.append("AUDIT_HEAD_KEYS: must have no key of ENVIRONMENT_VARIABLE_KEYS, which token-service knows")
        if not mail.isdisjoint(shared | own):
            found.append("MAIL_KEYS: must have no key of ENVIRONMENT_VARIABLE_KEYS or AUDIT_HEAD_KEYS")
        return found

    @staticmethod
    def _wrong_passkeys(values: Mapping[str, Any]) -> list[str]:
        found = []
        rp_id = values.get("webauthn_rp_id", "")
        if is_usable_uri(values.get("base_url", "")) and (problem := rp_id_problem(values["base_url"], rp_id)):
            found.append(f"WEBAUTHN_RP_ID: {problem}")
        if not all(_AAGUID.fullmatch(each) for each in values.get("webauthn_aaguids", ())):
            found.append("WEBAUTHN_AAGUIDS: must be UUIDs with commas between them")
        return found

    @staticmethod
    def _wrong_mail(values: Mapping[str, Any]) -> list[str]:
        found = []
        if smtp_url := values.get("smtp_url"):
            try:
                has_login = SmtpAddress.parse(smtp_url).user is not None
            except MalformedSmtpAddressError as error:
                found.append(f"SMTP_URL: {error}")
            else:
                if has_login and smtp_url.startswith("smtp:") and not values.get("smtp_require_tls", True):
                    found.append("SMTP_REQUIRE_TLS: must not be false, since SMTP_URL has a password")
            if not values.get("mail_from"):
                found.append("MAIL_FROM: must be set with SMTP_URL")
        try:
            sender_of(values.get("mail_from") or "stead@localhost")
        except MalformedAddressError as error:
            found.append(f"MAIL_FROM: {error}")
        if values.get("mail_folder") and values.get("environment") != "development":
            found.append("MAIL_FOLDER: is for development: its mails sign in")
        if problem := color_problem(values.get("mail_color", "#000000")):
            found.append(f"MAIL_COLOR: {problem}")
        if name_problem(values.get("mail_name", "Stead")):
            found.append("MAIL_NAME: must be a name of 1 to 128 visible characters")
        return found


def _is_name(text: str) -> bool:
    return len(text) <= 253 and _NAME.fullmatch(text) is not None
