"""A warning when a proxy hides the addresses of all clients."""

from typing import Final

from identity_common.addresses import parsed_address
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_EVIDENT: Final = 20


class ProxyWatch:
    """Warns once when a proxy evidently hides the addresses of all clients, while ``TRUSTED_PROXIES`` is 0.

    Evident means that each of the first 20 attempts came from the same private address; from a loopback address, only
    if they carried ``X-Forwarded-For``: otherwise it is a browser on the same machine.
    """

    def __init__(self, *, trusted_proxies: int) -> None:
        self._is_settled = trusted_proxies > 0
        self._only: str | None = None
        self._count = 0

    def see(self, address: str, *, is_forwarded: bool) -> None:
        """Record an attempt's address."""
        if self._is_settled:
            return
        parsed = parsed_address(address)
        is_proxy = parsed is not None and parsed.is_private and (is_forwarded or not parsed.is_loopback)
        if not is_proxy or self._only not in {None, address}:
            self._is_settled = True
            return
        self._only = address
        self._count += 1
        if self._count == _EVIDENT:
            self._is_settled = True
            reason = "every attempt came from one private address: set TRUSTED_PROXIES to the number of proxies"
            _log.warning("sign-in.addresses-hidden", address=address, reason=reason)
