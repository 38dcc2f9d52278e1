"""Addresses of mail servers: ``smtps://user:password@host:465``, ``smtp://user:password@host:587``. Pure."""

from typing import Final, Self
from urllib.parse import unquote, urlsplit

import msgspec

_PORTS: Final = {"smtps": 465, "smtp": 587}


class MalformedSmtpAddressError(ValueError):
    """The text is not an address of a mail server; the message does not contain it."""


class SmtpAddress(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a mail server.

    Attributes:
        host: Its name, which its certificate must have.
        port: Its port.
        is_tls: Whether the connection begins with TLS; otherwise STARTTLS follows.
        user: For the login; None for none.
        password: For the login.
    """

    host: str
    port: int
    is_tls: bool
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"SmtpAddress({self.host!r}, {self.port})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address.

        Raises:
            MalformedSmtpAddressError: It is something else.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise MalformedSmtpAddressError("must be an address with a numeric port") from None
        if parts.scheme not in _PORTS:
            raise MalformedSmtpAddressError("must begin with smtps:// or smtp://")
        if not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise MalformedSmtpAddressError("must have a host, and nothing after the port")
        if (parts.username is None) != (parts.password is None):
            raise MalformedSmtpAddressError("must have both user and password, or neither")
        return cls(
            host=parts.hostname,
            port=port or _PORTS[parts.scheme],
            is_tls=parts.scheme == "smtps",
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )
