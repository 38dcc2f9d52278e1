"""The addresses of NATS servers as one text, and the credentials in it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

_PORT: Final = 4222


class NatsAddresses(NamedTuple):
    """The addresses of one server, or of the servers of a cluster.

    Attributes:
        servers: Each as ``scheme://host:port``.
        user: The user of all of them; None without credentials.
        password: Its password; None if ``user`` is a token.
    """

    servers: tuple[str, ...]
    user: str | None
    password: str | None

    @property
    def options(self) -> dict[str, str]:
        """The credentials as options of nats-py, which thus sends them to servers that it discovers, too."""
        if self.user is None:
            return {}
        return {"token": self.user} if self.password is None else {"user": self.user, "password": self.password}


def parse_nats_addresses(text: str) -> NatsAddresses:
    """Parse one address, ``nats://user:password@host:port``, or several with commas between them.

    User and password are not decoded: no NATS client does that.

    Raises:
        ValueError: An address is malformed, or they differ in more than host and port; without the value.
    """
    addresses = [_split(each.strip()) for each in text.split(",")]
    if len({each.scheme for each in addresses}) > 1:
        raise ValueError("all addresses must have the same scheme")
    credentials = {(each.username, each.password) for each in addresses}
    if len(credentials) > 1:
        raise ValueError("all addresses must have the same user and password")
    ((user, password),) = credentials
    return NatsAddresses(tuple(dict.fromkeys(map(_server, addresses))), user, password)


def _split(text: str) -> SplitResult:
    try:
        address = urlsplit(text if "://" in text else f"nats://{text}")
        is_valid = bool(address.hostname) and address.port != 0
    except ValueError:  # the port, or the brackets of an IPv6 address
        is_valid = False
    if not is_valid:
        raise ValueError("an address has no host, or an invalid port")
    return address


def _server(address: SplitResult) -> str:
    host = address.netloc.rpartition("@")[2].rstrip(":")
    has_port = address.port is not None or address.scheme in ("ws", "wss")
    return f"{address.scheme}://{host if has_port else f'{host}:{_PORT}'}"
