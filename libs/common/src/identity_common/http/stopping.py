"""Callbacks for the shutdown of the server, for code that holds requests on purpose.

A server finishes its requests before it ends the app's lifespan, so held requests would delay the shutdown until its
timeout. A callback lets them end at once.
"""

from collections.abc import Callable
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HTTP_PROTOCOL: Final = f"{__name__}:HttpProtocol"
"""Value of ``http`` in the configuration of a server."""

_callbacks: Final[set[Callable[[], None]]] = set()


def call_when_stopping(callback: Callable[[], None]) -> Callable[[], None]:
    """Register a callback for the shutdown of this process's server; return the function that removes it."""
    _callbacks.add(callback)
    return lambda: _callbacks.discard(callback)


class HttpProtocol(HttpToolsProtocol):
    """A connection that runs the callbacks when its server shuts down."""

    def shutdown(self) -> None:
        """Run the callbacks, then close the connection after its current request."""
        for callback in tuple(_callbacks):
            callback()
        super().shutdown()
