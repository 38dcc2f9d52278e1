"""Replies to template-service, which asks on the bus whether mail is sent here."""

from typing import Final

import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.telemetry.logs import get_logger
from identity_common.wire.mail_sending import MailSending, mail_sending_subject

_log = get_logger(__name__)

_AT_ONCE: Final = 64


def mail_sending_responder(bus: Bus, *, is_configured: bool, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""
    answer = msgspec.json.encode(MailSending(is_configured))

    async def reply(_: bytes, __: float) -> bytes:
        return answer

    return Responder(
        bus,
        mail_sending_subject(tenant_id),
        reply,
        unavailable=lambda _: answer,
        name="mail-sending",
        log=_log,
        failed="mail-sending.unavailable",
        expected=(),
        at_once=_AT_ONCE,
    )
