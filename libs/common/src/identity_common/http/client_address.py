"""The address of a request's client, behind a known number of proxies, and the network that it is counted under."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from litestar.types import Scope

_PREFIX_BITS: Final = 64  # a host may use any address of its subnet, a /64 (RFC 4291 section 2.5.1)


def client_address(scope: Scope, *, trusted_proxies: int) -> str:
    """Return the client's address; earlier entries of ``X-Forwarded-For`` are the client's own claims.

    Args:
        scope: The ASGI scope.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``; 0 to ignore the header.
    """
    client = scope.get("client")
    address = client[0] if client else ""
    if trusted_proxies:
        forwarded = [
            part.strip()
            for name, value in scope["headers"]
            if name == b"x-forwarded-for"
            for part in value.decode("latin-1").split(",")
        ]
        if len(forwarded) >= trusted_proxies:
            address = forwarded[-trusted_proxies]
    return address


def forwarded_for(scope: Scope, *, trusted_proxies: int) -> str:
    """Return the ``X-Forwarded-For`` of a request on behalf of this one, to a service behind the same proxies.

    Every entry is the address of the client, as many as the service expects; the client's own claims are not passed on.

    Args:
        scope: The ASGI scope.
        trusted_proxies: How many proxies in front of both append to the header.
    """
    address = client_address(scope, trusted_proxies=trusted_proxies).encode("ascii", "replace").decode()
    return ",".join([address] * max(1, trusted_proxies))


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
