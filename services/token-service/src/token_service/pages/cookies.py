"""The two cookies: who is signed in, and which browser this is.

Read by hand: the framework's parser keeps what it has read in a cache. On https both have the prefix ``__Host-`` and
``Secure``; on http, which is for development, browsers would not send such cookies back.
"""

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final

from litestar.datastructures import Cookie

SESSION: Final = "identity-session"
BROWSER: Final = "identity-browser"


class Cookies:
    """Reads and writes cookies for one address.

    Args:
        secure: Whether the address is https.
    """

    def __init__(self, *, secure: bool) -> None:
        self._prefix = "__Host-" if secure else ""
        self._secure = secure

    def read(self, headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
        """Return a cookie's value; none when it is not there."""
        wanted = self._prefix + name
        for header, value in headers:
            if header == b"cookie":
                try:
                    jar = SimpleCookie(value.decode("latin-1"))
                except CookieError:
                    continue
                if wanted in jar:
                    return jar[wanted].value
        return None

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
