"""Addresses of clients, and the network that each is counted under. Pure."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_PREFIX_BITS: Final = 64  # a host may use any address of its subnet, a /64 (RFC 4291 section 2.5.1)


def network_of(address: str) -> str:
    """Return the network that an address is counted under: the IPv4 address itself, or the /64 of an IPv6 address.

    A port, which some proxies append, is ignored. Text that is not an address is returned unchanged.
    """
    parsed = parsed_address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed), _PREFIX_BITS), strict=False))
    return address if parsed is None else str(parsed)


def parsed_address(address: str) -> IPv4Address | IPv6Address | None:
    """Return an address without port and zone, an IPv4-mapped one as IPv4; None for other text."""
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
