"""Checks passwords by a request to management-service over the bus."""

from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.telemetry.logs import get_logger
from identity_common.wire.known_devices import KnownDevice
from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject

_log = get_logger(__name__)

_TIMEOUT_S: Final = 5.0
_REPLY_TIMEOUT_MS: Final = 4000  # less than the timeout: the reply must arrive within it
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(PasswordAnswer).decode


class PasswordsUnavailable(Exception):  # noqa: N818 - the name is what happened
    """No reply, or management-service is busy: try again later.

    Attributes:
        retry_after_s: Seconds until another attempt may succeed.
    """

    def __init__(self, retry_after_s: int = 1) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


class PasswordCheck:
    """Checks passwords over the bus."""

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self._bus = bus
        self._subject = password_check_subject(tenant_id)

    async def check(
        self,
        identifier: str,
        password: str,
        devices: tuple[KnownDevice, ...] = (),
        *,
        address: str = "",
        link: str | None = None,
    ) -> PasswordAnswer:
        """Check a password; the result has no user unless the name and password match one.

        Args:
            identifier: As typed.
            password: As typed.
            devices: The users that the browser is known to.
            address: The browser's address.
            link: That of an identity at a provider which the sign-in is to confirm, if there is one.

        Raises:
            PasswordsUnavailable: There was no reply, or management-service is busy.
        """
        if not self._bus.is_connected:
            raise PasswordsUnavailable
        question = PasswordQuestion(identifier, password, devices, _REPLY_TIMEOUT_MS, address, link)
        try:
            reply = await ask(self._bus, self._subject, _encode(question), name="password-check", timeout_s=_TIMEOUT_S)
            answer = _decode(reply)
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("password-check.unavailable", error=type(error).__name__)
            raise PasswordsUnavailable from None
        if answer.busy:
            raise PasswordsUnavailable(max(answer.retry_after_s, 1))
        return answer
