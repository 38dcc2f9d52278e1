"""The address of a request's client, behind a known number of proxies."""

from litestar.types import Scope


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
