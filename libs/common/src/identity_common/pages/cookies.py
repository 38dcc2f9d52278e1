"""Cookies of pages.

Parsed by hand: the framework's parser caches what it has read, and the standard library's stops at the first malformed
cookie, which may be another site's. On https all have the prefix ``__Host-`` and ``Secure``; on http, which is for
development, browsers would not send such cookies back.
"""

from collections.abc import Iterable
from typing import Final

from litestar.datastructures import Cookie

_BLANK: Final = b" \t"


class Cookies:
    """Reads and writes cookies for one address.

    Args:
        secure: Whether the address is https.
    """

    def __init__(self, *, secure: bool) -> None:
        self._prefix = "__Host-" if secure else ""
        self._secure = secure

    def read(self, headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
        """Return a cookie's value, if there is exactly one.

        Malformed cookies of other sites are ignored. If a cookie occurs with two values, a neighbouring host may have
        added one and nothing tells which is ours; ``__Host-`` prevents that.

        Source:
            RFC 6265 sections 4.2.1 (the syntax of the header) and 4.2.2 (its order has no meaning).
        """
        wanted = (self._prefix + name).encode()
        values = {
            value.strip(_BLANK)
            for header, line in headers
            if header == b"cookie"
            for own, equals, value in (pair.partition(b"=") for pair in line.split(b";"))
            if equals and own.strip(_BLANK) == wanted
        }
        return values.pop().decode("latin-1") if len(values) == 1 else None

    def set(self, name: str, value: str, *, max_age_s: int | None = None) -> Cookie:
        """Return the cookie that stores a value; without an age it lasts until the browser is closed."""
        return Cookie(
            key=self._prefix + name,
            value=value,
            max_age=max_age_s,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def clear(self, name: str) -> Cookie:
        """Return the cookie that removes one."""
        return self.set(name, "", max_age_s=0)
