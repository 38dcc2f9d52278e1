"""Sending mail over SMTP (RFC 5321), with TLS unless a setting says otherwise."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage

from aiosmtplib import (
    SMTP,
    SMTPException,
    SMTPNotSupported,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)

from identity_common.smtp_address import SmtpAddress
from management_service.mail.transports import Deferred, Refused, Unreachable

_PERMANENT = range(500, 600)
_CLOSING = 421
"""The server ends the connection, whatever the command was (RFC 5321 section 3.8)."""


class SmtpServer:
    """A mail server.

    Args:
        address: Its address.
        local_hostname: The name that this client gives itself; looking one up could block.
        requires_tls: Whether ``smtp://`` needs STARTTLS; otherwise none is tried.
        timeout_s: Seconds that a connection or a mail may take.
        trusted: What the server's certificate must be signed by; None for what the system trusts.
    """

    def __init__(
        self,
        address: SmtpAddress,
        *,
        local_hostname: str,
        requires_tls: bool,
        timeout_s: float,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._local_hostname = local_hostname
        self._requires_tls = requires_tls
        self._timeout_s = timeout_s
        self._tls = trusted or ssl.create_default_context()

    @asynccontextmanager
    async def session(self) -> AsyncGenerator["SmtpSession", None]:
        """Yield a session.

        Raises:
            Unreachable: There is no connection, no TLS or no login.
        """
        address = self._address
        client = SMTP(
            hostname=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            local_hostname=self._local_hostname,
            timeout=self._timeout_s,
            use_tls=address.is_tls,
            start_tls=not address.is_tls and self._requires_tls,
            tls_context=self._tls,
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                await client.connect()
        except (SMTPException, OSError, TimeoutError) as error:
            client.close()
            raise Unreachable(_why(error)) from None
        try:
            yield SmtpSession(client, timeout_s=self._timeout_s)
        finally:
            await _leave(client)


class SmtpSession:
    """A connection to a mail server.

    Args:
        client: Connected.
        timeout_s: Seconds that one mail may take.
    """

    def __init__(self, client: SMTP, *, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def send(self, message: EmailMessage) -> None:
        """Send a message to its recipient.

        Raises:
            Refused: An answer of 5xx to the recipient or the text, or the server lacks an extension that it needs.
            Deferred: An answer of 4xx.
            Unreachable: The connection broke, or the server refuses the sender.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.send_message(message)
        except SMTPRecipientsRefused as refused:
            (recipient,) = refused.recipients
            raise _refusal(recipient) from None
        except SMTPSenderRefused as refused:  # it says nothing about this mail: no other has another sender
            raise Unreachable(_why(refused)) from None
        except SMTPNotSupported:
            raise Refused(None, "the mail server does not support SMTPUTF8, which the address needs") from None
        except SMTPResponseException as refused:
            raise _refusal(refused) from None
        except (SMTPException, OSError, TimeoutError) as error:
            self._client.close()
            raise Unreachable(_why(error)) from None


def _refusal(refused: SMTPResponseException) -> Exception:
    if refused.code == _CLOSING or refused.code < 0:
        return Unreachable(_why(refused))
    kind = Refused if refused.code in _PERMANENT else Deferred
    return kind(refused.code, refused.message)


def _why(error: Exception) -> str:
    """Return what is wrong, without anything that a server says about an account or a recipient."""
    name = type(error).__name__
    return f"{name} {error.code}" if isinstance(error, SMTPResponseException) else name


async def _leave(client: SMTP) -> None:
    try:
        async with asyncio.timeout(1):
            await client.quit()
    except (SMTPException, OSError, TimeoutError):
        client.close()
