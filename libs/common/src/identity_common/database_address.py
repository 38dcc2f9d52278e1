"""The address of a service's database: one server, or several of which one accepts writes."""

from typing import Final, NamedTuple, Self
from urllib.parse import unquote

import msgspec

SCHEME: Final = "postgresql+asyncpg://"
FORM: Final = f"{SCHEME}user:password@host:port/database, or several host:port with commas between them"
_PORT: Final = 5432
_PORTS: Final = range(1, 65536)


class MalformedAddressError(ValueError):
    """An address does not have the documented form; ``str()`` says why, without the address."""


class Host(NamedTuple):
    """A server."""

    name: str
    port: int

    @classmethod
    def parse(cls, text: str, *, default_port: int, form: str) -> Self:
        """Parse an entry of the list; an IPv6 address is in brackets (RFC 3986 section 3.2.2).

        Raises:
            MalformedAddressError: It is not ``host`` or ``host:port``; the address must have this ``form``.
        """
        name, port = (text, str(default_port)) if text.endswith("]") or ":" not in text else text.rsplit(":", 1)
        is_bracketed = name.startswith("[") and name.endswith("]")
        is_port = port.isascii() and port.isdigit() and int(port) in _PORTS
        if not (is_port and name.strip("[]")) or (":" in name) is not is_bracketed:
            raise MalformedAddressError(f"must be {form}")
        return cls(name.strip("[]"), int(port))


class DatabaseAddress(msgspec.Struct, frozen=True):
    """A database and its login on any of these servers."""

    hosts: tuple[Host, ...]
    user: str
    password: str
    database: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL.

        Raises:
            MalformedAddressError: It does not have the documented form.
        """
        if not url.startswith(SCHEME):
            raise MalformedAddressError(f"must begin with {SCHEME}")
        if "?" in url or "#" in url:
            raise MalformedAddressError("must not have options: TLS is configured by PGSSLMODE and PGSSLROOTCERT")
        authority, _, database = url.removeprefix(SCHEME).partition("/")
        login, _, hosts = authority.rpartition("@")
        user, _, password = login.partition(":")
        if not (user and database) or "/" in database:
            raise MalformedAddressError(f"must be {FORM}")
        servers = tuple(Host.parse(host, default_port=_PORT, form=FORM) for host in hosts.split(","))
        return cls(servers, unquote(user), unquote(password), unquote(database))
