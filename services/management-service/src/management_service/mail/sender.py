"""Sends the mail of the stream: one active replica, one mail at a time while the mail server answers (decision 44)."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from email.headerregistry import Address
from email.message import EmailMessage
from functools import partial
from typing import Final

import asyncpg
import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from prometheus_client import Counter

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.bus.streams import MAIL_STREAM, ensure_stream
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.mail_addresses import MalformedAddressError, address_of
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from identity_common.wire.mail import LIFETIME_S, MAIL_PREFIX, STREAM_MAIL, Mail, SealedMail, sealing_name
from management_service.mail import store
from management_service.mail.message import message_of
from management_service.mail.rules import MailFailureReason
from management_service.mail.texts import Look, MailTexts, UnusableMailError
from management_service.mail.transports import Deferred, NotConfigured, Refused, Session, Transport, Unreachable

_log = get_logger(__name__)

_LOCK: Final = "identity-mail-sender"
_NO_NOTIFICATIONS: Final = "mail-sender"  # messages of the stream wake it, not those of the database
_RETRY_S: Final = 0.25
_IDLE_S: Final = 2.0
"""How long a connection to the mail server outlives the last mail, and one turn waits for the next mail."""
_MOST_MAILS: Final = 100
"""After so many, a new connection: servers limit the mails of one."""
_ACKNOWLEDGING_S: Final = 10.0
_FIRST_DELAY_S: Final = 60.0
_LONGEST_DELAY_S: Final = 3600.0
_LONGEST_PAUSE_S: Final = 30.0
_TIDYING_S: Final = 60.0
_MARGIN_S: Final = 15.0
"""Beyond two connections and the mail, before the stream takes the sender for dead."""
_PATIENCE_S: Final = 2.0
"""How long others wait for a mail that the server does not answer; then they take another connection."""
_LITTLE_PATIENCE_S: Final = 0.25
"""The same while the server already leaves others without an answer."""
_MOST_SLOW: Final = 30
"""Connections beside the one that mail is sent over; servers limit those of one client."""
_MALFORMED: Final = "malformed"


class Attempt(msgspec.Struct, frozen=True, eq=False):
    """A mail that is being sent.

    Attributes:
        sending: Ends with what the mail server answers.
        sitting: Ends the connection, once the mail has it for itself.
    """

    message: Msg
    sealed: SealedMail
    mail: Mail
    sending: asyncio.Task[None]
    sitting: AsyncExitStack


class MailSender:
    """Sends mail in one replica at a time.

    Args:
        bus: The bus.
        database_url: ``postgresql+asyncpg://…``.
        transport: Where mail goes; ``Nowhere`` without a mail server.
        keys: The keys of ``MAIL_KEYS``.
        texts: Makes the texts.
        sender: The author of every mail.
        look: In whose name mails without an application are sent.
        tenant_id: The tenant.
        timeout_s: Seconds that a connection or a mail may take.
        sent: Counts the mails that were accepted.
        failed: Counts those that were given up, by reason.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        bus: Bus,
        database_url: str,
        transport: Transport,
        *,
        keys: SealingKeys,
        texts: MailTexts,
        sender: Address,
        look: Look,
        tenant_id: str,
        timeout_s: float,
        sent: Counter,
        failed: Counter,
        clock: Clock = now_ms,
    ) -> None:
        self._bus = bus
        self._transport = transport
        self._keys = keys
        self._texts = texts
        self._sender = sender
        self._look = look
        self._tenant_id = tenant_id
        self._timeout_s = timeout_s
        self._sent = sent
        self._failed = failed
        self._clock = clock
        self._accepted: set[str] = set()
        self._slow: list[Attempt] = []
        self._pause_s = _RETRY_S
        self._worker = ActiveWorker(
            self._work, database_url, lock=_LOCK, channel=_NO_NOTIFICATIONS, tenant_id=tenant_id, poll_s=0
        )
        self.loop = BackgroundLoop(
            self._run,
            name="mail-sender",
            pause_s=lambda: self._pause_s,
            log=_log,
            failed="mail.sender-failed",
            interrupted="mail.sender-interrupted",
            expected=(
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                NatsError,
                TimeoutError,
                StoreUnavailable,
            ),
        )

    async def _run(self) -> None:
        await self._bus.connected()
        await self._worker.run()

    async def _work(self, holder: LockHolder) -> None:
        bus_connection = self._bus.connections
        consumer = f"mail-sender-{self._tenant_id}"
        await self._tidy(holder.connection, consumer)
        subscription = await self._bus.jetstream().pull_subscribe_bind(consumer, STREAM_MAIL)
        tidied_at = time.monotonic()
        try:
            while bus_connection == self._bus.connections:
                await holder.turn(partial(self._send_some, subscription, holder.connection))
                if time.monotonic() - tidied_at >= _TIDYING_S:
                    await self._tidy(holder.connection, consumer)
                    tidied_at = time.monotonic()
        finally:
            await self._abandon_slow()
            with suppress(NatsError, OSError):  # the connection is gone, and the subscription with it
                await subscription.unsubscribe()

    async def _tidy(self, connection: asyncpg.Connection, consumer: str) -> None:
        """Create the stream and the consumer if they are missing, and forget addresses that are not needed any more."""
        await ensure_stream(self._bus, MAIL_STREAM)
        config = ConsumerConfig(
            name=consumer,
            durable_name=consumer,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=3 * self._timeout_s + _MARGIN_S,
            filter_subjects=[f"{MAIL_PREFIX}.{self._tenant_id}.>"],
            max_ack_pending=-1,  # those that a server defers must not hold up the others
        )
        await self._bus.jetstream().add_consumer(STREAM_MAIL, config)
        await store.forget_old_addresses(connection, self._tenant_id, now=self._clock())

    async def _send_some(self, subscription: JetStreamContext.PullSubscription, connection: asyncpg.Connection) -> bool:
        """Send what is there, over one connection while the mail server answers; return whether there was any."""
        async with AsyncExitStack() as sitting:
            session: Session | None = None
            for number in range(_MOST_MAILS):
                await self._conclude_slow(connection)
                message = await _next(subscription)
                if message is None:
                    return number > 0
                mail = await self._due(connection, message)
                if mail is None:
                    continue
                try:
                    if session is None:
                        session = await sitting.enter_async_context(self._transport.session())
                    if not await self._send(connection, session, sitting, message, *mail):
                        session = None
                except Unreachable:
                    # The stream delivers a mail that came back first: one that ends connections must let others pass.
                    await message.nak(delay=None if session is None else self._delay_s(mail[0]))
                    self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
                    raise
        return True

    async def _due(self, connection: asyncpg.Connection, message: Msg) -> tuple[SealedMail, Mail] | None:
        """Return the mail of a message; None if nothing is to be sent, after settling the message."""
        try:
            sealed = msgspec.json.decode(message.data, type=SealedMail)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            _log.error("mail.malformed", subject=message.subject)
            self._failed.labels(_MALFORMED).inc()
            await message.term()
            return None
        try:
            opened = self._keys.open(sealed.sealed, name=sealing_name(sealed.id))
            mail = msgspec.json.decode(opened, type=Mail)
        except (NoFittingKeyError, msgspec.MsgspecError) as error:
            # A key that is configured later opens it, and a newer release may know its kind.
            _log.error("mail.unreadable", mail_id=sealed.id, error=type(error).__name__)
            await message.nak(delay=_FIRST_DELAY_S)
            return None
        if await self._is_wanted(connection, sealed, mail):
            return sealed, mail
        await self._settle(message, sealed)
        return None

    async def _is_wanted(self, connection: asyncpg.Connection, sealed: SealedMail, mail: Mail) -> bool:
        """Return whether a mail is to be sent; store the failure of one whose time is over."""
        if not mail.recipient or sealed.id in self._accepted:
            return False
        if mail.user_id is not None and not await store.user_exists(connection, self._tenant_id, mail.user_id):
            return False
        until = sealed.queued_at + int(LIFETIME_S * 1000)
        if self._clock() >= min(until, mail.expires_at or until):
            await self._give_up(connection, sealed, mail, "expired")
            return False
        return True

    async def _send(
        self,
        connection: asyncpg.Connection,
        session: Session,
        sitting: AsyncExitStack,
        message: Msg,
        sealed: SealedMail,
        mail: Mail,
    ) -> bool:
        """Send a mail, and settle its message; return False if the server is slow, and the mail keeps the session.

        Anyone can name recipients at whose mail servers ours waits: these must not hold up the others.

        Raises:
            Unreachable: The connection broke, perhaps at this very mail.
        """
        try:
            text = await self._message(connection, sealed, mail)
        except (MalformedAddressError, UnusableMailError) as error:
            await self._give_up(connection, sealed, mail, "unusable", answer=str(error))
            await self._settle(message, sealed)
            return True
        attempt = Attempt(message, sealed, mail, asyncio.create_task(session.send(text)), AsyncExitStack())
        self._slow.append(attempt)
        await asyncio.wait([attempt.sending], timeout=_LITTLE_PATIENCE_S if len(self._slow) > 1 else _PATIENCE_S)
        if not attempt.sending.done():
            _log.info("mail.slow", mail_id=sealed.id)
            attempt.sitting.push_async_exit(sitting.pop_all())
            return False
        self._slow.remove(attempt)
        await self._conclude(connection, attempt)
        return True

    async def _conclude_slow(self, connection: asyncpg.Connection) -> None:
        """Settle the mails that the server has answered meanwhile; wait for one if there are too many."""
        if len(self._slow) >= _MOST_SLOW:
            await asyncio.wait([each.sending for each in self._slow], return_when=asyncio.FIRST_COMPLETED)
        for attempt in [each for each in self._slow if each.sending.done()]:
            self._slow.remove(attempt)
            await attempt.sitting.aclose()
            try:
                await self._conclude(connection, attempt)
            except Unreachable:
                await attempt.message.nak(delay=self._delay_s(attempt.sealed))

    async def _abandon_slow(self) -> None:
        """Stop sending, as if this process had been killed: the stream delivers the mails again."""
        abandoned, self._slow = self._slow, []
        for attempt in abandoned:
            attempt.sending.cancel()
        await asyncio.gather(*(attempt.sending for attempt in abandoned), return_exceptions=True)
        for attempt in abandoned:
            await attempt.sitting.aclose()

    async def _conclude(self, connection: asyncpg.Connection, attempt: Attempt) -> None:
        """Settle the message of a mail by the answer of the mail server.

        Raises:
            Unreachable: There was none.
        """
        message, sealed, mail = attempt.message, attempt.sealed, attempt.mail
        try:
            attempt.sending.result()
        except NotConfigured:
            await self._give_up(connection, sealed, mail, "not-configured")
        except Deferred as deferred:
            _log.info("mail.deferred", mail_id=sealed.id, status=deferred.code)
            await message.nak(delay=self._delay_s(sealed))
            return
        except Refused as refused:
            await self._give_up(connection, sealed, mail, "refused", code=refused.code, answer=refused.answer)
        else:
            self._accepted.add(sealed.id)
            self._sent.labels(mail.kind).inc()
            _log.info("mail.sent", mail_id=sealed.id, kind=mail.kind)
        self._pause_s = _RETRY_S
        await self._settle(message, sealed)

    async def _message(self, connection: asyncpg.Connection, sealed: SealedMail, mail: Mail) -> EmailMessage:
        look = self._look
        if mail.application_id is not None:
            look = await store.look_of(connection, self._tenant_id, mail.application_id, look)
        return message_of(
            self._texts.text(mail, look),
            sender=self._sender,
            recipient=address_of(mail.recipient),
            mail_id=sealed.id,
            queued_at=sealed.queued_at,
        )

    def _delay_s(self, sealed: SealedMail) -> float:
        """Return how long a deferred mail waits: as long again as it has waited so far, within bounds."""
        age_s = (self._clock() - sealed.queued_at) / 1000
        return min(max(age_s, _FIRST_DELAY_S), _LONGEST_DELAY_S)

    async def _give_up(
        self,
        connection: asyncpg.Connection,
        sealed: SealedMail,
        mail: Mail,
        reason: MailFailureReason,
        *,
        code: int | None = None,
        answer: str = "",
    ) -> None:
        _log.warning("mail.given-up", mail_id=sealed.id, kind=mail.kind, reason=reason, status=code)
        self._failed.labels(reason).inc()
        await store.add_failure(
            connection,
            self._tenant_id,
            sealed.id,
            mail,
            reason=reason,
            code=code,
            answer=answer,
            now=self._clock(),
        )

    async def _settle(self, message: Msg, sealed: SealedMail) -> None:
        """Acknowledge a message, which removes it; without an answer it comes again, and is not sent again."""
        await message.ack_sync(timeout=_ACKNOWLEDGING_S)
        self._accepted.discard(sealed.id)


async def _next(subscription: JetStreamContext.PullSubscription) -> Msg | None:
    try:
        (message,) = await subscription.fetch(1, timeout=_IDLE_S)
    except NatsTimeoutError:
        return None
    return message
