"""Asks template-service, which owns organizations, which of them have a name, by request on the bus."""

import asyncio
from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.organization_names import (
    NAMES_TIMEOUT_S,
    OrganizationsAnswer,
    OrganizationsQuestion,
    organization_names_subject,
)

_log = get_logger(__name__)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(OrganizationsAnswer).decode


def _unknown_for_now() -> TemporarilyUnavailable:
    why = "template-service, which knows the names of organizations, does not answer"
    return TemporarilyUnavailable(f"It cannot be told whether an organization has this name: {why}.", why=why)


class OrganizationNames:
    """The organizations that have a name."""

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self._bus = bus
        self._subject = organization_names_subject(tenant_id)

    async def ids(self, text: str) -> tuple[str, ...]:
        """Return the organization with this id, or else those with this name, at most ``MOST_ALIKE``.

        Raises:
            TemporarilyUnavailable: template-service does not answer; an organization may have this name.
        """
        question = _encode(OrganizationsQuestion(text))
        try:
            if not self._bus.is_connected:
                raise _unknown_for_now()
            async with asyncio.timeout(NAMES_TIMEOUT_S):
                reply = await ask(
                    self._bus, self._subject, question, name="organization-names", timeout_s=NAMES_TIMEOUT_S
                )
            answer = _decode(reply)
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("organization-names.unavailable", error=type(error).__name__)
            raise _unknown_for_now() from None
        if answer.unavailable:
            raise _unknown_for_now()
        return answer.ids
