"""The two cookies: who is signed in, and which browser this is.

Read by hand: the framework's parser keeps what it has read in a cache, and the standard library's gives up at the first
cookie of somebody else that it does not like. On https both have the prefix ``__Host-`` and ``Secure``; on http, which
is for development, browsers would not send such cookies back.
"""

from collections.abc import Iterable
from typing import Final

from litestar.datastructures import Cookie

SESSION: Final = "identity-session"
BROWSER: Final = "identity-browser"

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
        """Return a cookie's value; none when it is not there.

        Whatever other cookies look like, they cost nothing. One that came twice with different values is nobody's: a
        neighbouring host can add a second one, and nothing tells which is ours. With ``__Host-`` no browser lets it.

        Source:
            RFC 6265 section 5.4 (how a browser writes the header, and that the order says nothing).
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
        """Return the cookie that stores a value; without an age until the browser is closed."""
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
