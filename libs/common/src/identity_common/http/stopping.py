"""Ends requests that are held on purpose when their server is told to stop.

A server completes its requests before it ends the app's lifespan, so a held request would delay it. Code that holds
requests registers a callback here; the connections call it when the server of their process stops.
"""

from collections.abc import Callable
from typing import Final

_callbacks: Final[set[Callable[[], None]]] = set()


def call_when_stopping(callback: Callable[[], None]) -> Callable[[], None]:
    """Register a callback for when the server of this process stops; return a function that unregisters it."""
    _callbacks.add(callback)
    return lambda: _callbacks.discard(callback)


def tell_stopping() -> None:
    """Call every registered callback."""
    for callback in tuple(_callbacks):
        callback()
