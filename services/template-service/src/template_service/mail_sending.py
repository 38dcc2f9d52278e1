"""Asks management-service, which sends all mail, whether it sends any, by request on the bus."""

from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import Conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.mail_sending import MAIL_SENDING_TIMEOUT_S, MailSending, mail_sending_subject

_log = get_logger(__name__)

_decode: Final = msgspec.json.Decoder(MailSending).decode


class MailSender:
    """The sender of mail."""

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self._bus = bus
        self._subject = mail_sending_subject(tenant_id)

    async def require_configured(self) -> None:
        """Refuse what needs mail where none is sent; not within a transaction.

        Without an answer nothing is refused: mail is queued, and waits for its sender anyway.

        Raises:
            Conflict: No mail is sent here.
        """
        if not self._bus.is_connected:
            return
        try:
            reply = await ask(self._bus, self._subject, b"{}", name="mail-sending", timeout_s=MAIL_SENDING_TIMEOUT_S)
            is_configured = _decode(reply).is_configured
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("mail-sending.unavailable", error=type(error).__name__)
            return
        if not is_configured:
            raise Conflict("mail.not_configured", "No mail is sent here: an operator has to set SMTP_URL.")
