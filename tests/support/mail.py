"""Mail in a tenant of its own, on the servers of a running Management API: outbox, relay, sender; and a mail server."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTPUTF8
from socket import AF_INET
from typing import Any, Self

import nats
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from prometheus_client import CollectorRegistry

from identity_common.bus.connection import Bus
from identity_common.mail_addresses import sender_of
from identity_common.outbox.mail import MailOutbox
from identity_common.outbox.mail_relay import MailRelay
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.telemetry.metrics import counter
from identity_common.wire.mail import STREAM_MAIL, Mail
from management_service.mail.sender import MailSender
from management_service.mail.texts import Look, MailTexts
from management_service.mail.transports import Transport
from tests.support.management_api import Management
from tests.support.waiting import WAIT_S


class MailTenant:
    """A tenant in which nothing is sent unless a test does it; or that of the service.

    Attributes:
        jetstream: As management-service.
    """

    def __init__(self, management: Management, *, tenant_id: str | None = None) -> None:
        self.settings = management.settings
        self.database = management.database
        self.tenant_id = tenant_id or f"t{secrets.token_hex(6)}"
        self.keys = SealingKeys(management.settings.mail_keys)
        self.engine = create_database_engine(self.settings.database_url, service="tests", pool_size=2)
        self.outbox = MailOutbox(self.keys, tenant_id=self.tenant_id)
        self.bus = Bus(self.settings.nats_url, service="management")
        self.jetstream: JetStreamContext
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        client = await nats.connect(self.settings.nats_url, inbox_prefix="_INBOX_management")
        self._started.push_async_callback(client.close)
        self.jetstream = client.jetstream()
        self._started.push_async_callback(self.engine.dispose)
        self.bus.start()
        self._started.push_async_callback(self.bus.stop)
        relay = MailRelay(self.bus, self.settings.database_url, source="management", tenant_id=self.tenant_id)
        relay.loop.start()
        self._started.push_async_callback(relay.loop.stop)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    async def queue(self, *mails: Mail) -> None:
        """Queue mails, and wait until they are in the stream."""
        async with self.engine.begin() as connection:
            for mail in mails:
                await self.outbox.queue(connection, mail)
        waiting = "SELECT count(*) FROM mail_outbox WHERE tenant_id = $1"
        async with asyncio.timeout(WAIT_S):
            while await self.database.fetchval(waiting, self.tenant_id):  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)

    async def in_stream(self) -> int:
        """Return how many mails wait in the stream."""
        subjects = f"identity-mail.{self.tenant_id}.>"
        info = await self.jetstream.stream_info(STREAM_MAIL, subjects_filter=subjects)
        return sum((info.state.subjects or {}).values())

    @asynccontextmanager
    async def sending(self, transport: Transport, **changed: Any) -> AsyncIterator[CollectorRegistry]:
        """Run a sender meanwhile; yield its metrics."""
        registry = CollectorRegistry()
        options: dict[str, Any] = {
            "keys": self.keys,
            "texts": MailTexts(base_url="https://id.test"),
            "sender": sender_of("Stead <stead@id.test>"),
            "look": Look("Stead", "#0b5d66"),
            "tenant_id": self.tenant_id,
            "timeout_s": 5.0,
            "sent": counter(registry, "mail_sent", "Sent.", "kind"),
            "failed": counter(registry, "mail_failed", "Failed.", "reason"),
            **changed,
        }
        sender = MailSender(self.bus, self.settings.database_url, transport, **options)
        sender.loop.start()
        try:
            yield registry
        finally:
            await sender.loop.stop()

    async def emptied(self, *, but: int = 0) -> None:
        """Wait until the stream has none of the tenant's mails, or only so many."""
        async with asyncio.timeout(WAIT_S):
            while await self.in_stream() > but:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.02)

    async def attempted(self) -> None:
        """Wait until the sender has taken a mail."""
        async with asyncio.timeout(WAIT_S):
            while not await self._deliveries():  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.02)

    async def _deliveries(self) -> int:
        try:
            info = await self.jetstream.consumer_info(STREAM_MAIL, f"mail-sender-{self.tenant_id}")
        except NotFoundError:
            return 0
        return info.delivered.consumer_seq if info.delivered else 0

    async def failures(self) -> list[tuple[str, str, int | None]]:
        """Return recipient, reason and code of the mails that were given up, in order."""
        query = "SELECT recipient, reason, code FROM mail_failures WHERE tenant_id = $1 ORDER BY occurred_at, id"
        return [tuple(row) for row in await self.database.fetch(query, self.tenant_id)]


class MailServer:
    """A real SMTP server on loopback.

    Attributes:
        port: Its port.
        envelopes: What it has accepted, in order.
        hangs_at: It leaves recipients that begin with this without an answer, until ``released``.
        refusals: Its answer to recipients that begin with a text: ``550 5.1.1 no such user``; each time, or as often as
            the list has answers.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        starttls: ssl.SSLContext | None = None,
        login: tuple[str, str] | None = None,
    ) -> None:
        self._tls = tls
        self._starttls = starttls
        self._login = login
        self.envelopes: list[Envelope] = []
        self.refusals: dict[str, list[str]] = {}
        self.hangs_at: str | None = None
        self.released = asyncio.Event()
        self.sessions = 0
        self.logins: list[str] = []
        self._server: asyncio.Server
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "localhost", self.port, ssl=self._tls, family=AF_INET)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._server.close()

    def messages(self) -> list[EmailMessage]:
        """Return the messages, parsed."""
        return [message_from_bytes(each.original_content or b"", policy=SMTPUTF8) for each in self.envelopes]

    def recipients(self) -> list[str]:
        """Return the recipients, in order."""
        return [recipient for each in self.envelopes for recipient in each.rcpt_tos]

    def _protocol(self) -> SMTP:
        self.sessions += 1
        return SMTP(
            self,
            hostname="mail.test",
            loop=asyncio.get_running_loop(),
            tls_context=self._starttls,
            require_starttls=self._starttls is not None,
            enable_SMTPUTF8=True,
            auth_required=self._login is not None,
            auth_require_tls=False,
            authenticator=self._authenticate,
        )

    def _authenticate(self, *arguments: Any) -> AuthResult:
        login = arguments[-1]
        given = (login.login.decode(), login.password.decode())
        self.logins.append(given[0])
        return AuthResult(success=given == self._login, handled=False)

    async def handle_RCPT(  # noqa: N802 - the name that aiosmtpd looks for
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.hangs_at is not None and address.startswith(self.hangs_at):
            await self.released.wait()
        for prefix, answers in self.refusals.items():
            if address.startswith(prefix) and answers:
                return answers[0] if len(answers) == 1 else answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - likewise
        self.envelopes.append(envelope)
        return "250 OK"
