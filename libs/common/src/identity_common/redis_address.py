"""The address of Redis by its sentinels, which know the primary of several servers."""

from typing import Final, Self
from urllib.parse import parse_qsl, unquote

import msgspec

from identity_common.database_address import Host, MalformedAddressError

SCHEMES: Final = ("redis+sentinel://", "rediss+sentinel://")
PLAIN_SCHEMES: Final = ("redis://", "rediss://")
FORM: Final = f"{SCHEMES[0]}user:password@host:port,host:port/0?master=NAME"
_OPTIONS_FORM: Final = "master=NAME, sentinel_user=USER and sentinel_password=PASSWORD"
_LONGEST_NUMBER: Final = 5
_PORT: Final = 26379
_OPTIONS: Final = frozenset({"master", "sentinel_user", "sentinel_password"})


class SentinelAddress(msgspec.Struct, frozen=True):
    """Sentinels, and the login at the servers that they watch.

    Attributes:
        sentinels: Any of them is asked.
        user: At the primary; so are the password and the database.
        password: Empty without one.
        database: Its number.
        master: The name of the primary, as the sentinels know it.
        sentinel_user: At the sentinels; empty for their ``default``.
        sentinel_password: Empty if they require none.
        is_encrypted: Whether sentinels and servers are reached by TLS.
    """

    sentinels: tuple[Host, ...]
    user: str
    password: str
    database: int
    master: str
    sentinel_user: str
    sentinel_password: str
    is_encrypted: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL.

        Raises:
            MalformedAddressError: It does not have the documented form.
        """
        if not url.startswith(SCHEMES):
            raise MalformedAddressError(f"must begin with {' or '.join(SCHEMES)}")
        scheme, _, rest = url.partition("://")
        authority, _, path_and_options = rest.partition("/")
        database, _, query = path_and_options.partition("?")
        login, _, hosts = authority.rpartition("@")
        user, _, password = login.partition(":")
        options = parse_qsl(query, keep_blank_values=True)
        given = dict(options)
        if len(given) != len(options) or given.keys() - _OPTIONS or not given.get("master") or "#" in url:
            raise MalformedAddressError(f"must have the option master, and no options but {_OPTIONS_FORM}")
        if not (database.isascii() and database.isdigit() and len(database) <= _LONGEST_NUMBER):
            raise MalformedAddressError(f"must be {FORM}")
        return cls(
            tuple(Host.parse(host, default_port=_PORT, form=FORM) for host in hosts.split(",")),
            unquote(user),
            unquote(password),
            int(database),
            given["master"],
            given.get("sentinel_user", ""),
            given.get("sentinel_password", ""),
            scheme.startswith("rediss"),
        )


def redis_problems(url: str) -> list[str]:
    """Return what is wrong with the address of Redis, of one server or by its sentinels."""
    if url.startswith(PLAIN_SCHEMES):
        return []
    if not url.startswith(SCHEMES):
        return [f"must begin with {' or '.join(PLAIN_SCHEMES)}, or with {' or '.join(SCHEMES)}"]
    try:
        SentinelAddress.parse(url)
    except MalformedAddressError as error:
        return [str(error)]
    return []
