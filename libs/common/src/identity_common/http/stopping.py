"""Requests that are held on purpose end when their server is told to stop.

A server lets its requests end before it ends the app's lifespan: whoever holds one would make it wait. So whoever does
is called when the server of its process stops.
"""

from collections.abc import Callable
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HTTP_PROTOCOL: Final = f"{__name__}:HttpProtocol"
"""``http`` of a server's configuration."""

_told: Final[set[Callable[[], None]]] = set()


def call_when_stopping(callback: Callable[[], None]) -> Callable[[], None]:
    """Have a function called when the server of this process stops; return what takes that back."""
    _told.add(callback)
    return lambda: _told.discard(callback)


class HttpProtocol(HttpToolsProtocol):
    """A connection that says so when its server stops."""

    def shutdown(self) -> None:
        """Take note that there is no next request on this connection: the server stops."""
        for callback in tuple(_told):
            callback()
        super().shutdown()
