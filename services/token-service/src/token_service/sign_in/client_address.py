"""Client addresses: the network that attempts are counted for, and a warning when a proxy hides them all."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_PREFIX_BITS: Final = 64  # a host may use any address of its subnet, a /64 (RFC 4291 section 2.5.1)
_EVIDENT: Final = 20


def network_of(address: str) -> str:
    """Return the network that an address is counted under: the IPv4 address itself, or the /64 of an IPv6 address.

    A port, which some proxies append, is ignored. Text that is not an address is returned unchanged.
    """
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed), _PREFIX_BITS), strict=False))
    return address if parsed is None else str(parsed)


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
        parsed = _parsed(address)
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


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    host = address
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        parsed = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed
