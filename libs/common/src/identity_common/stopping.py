"""Ends long-polling requests when their server shuts down.

A server completes its requests before it ends the app's lifespan, so a held request would delay it. Code that holds
requests registers a callback here; the connections call it when the server of their event loop stops.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

_Callbacks = WeakKeyDictionary[asyncio.AbstractEventLoop, set[Callable[[], None]]]

_callbacks: Final[_Callbacks] = WeakKeyDictionary()


def call_when_stopping(callback: Callable[[], None]) -> Callable[[], None]:
    """Register a callback for when the server of this event loop stops; return a function that unregisters it."""
    callbacks = _callbacks.setdefault(asyncio.get_running_loop(), set())
    callbacks.add(callback)
    return lambda: callbacks.discard(callback)


def notify_stopping(loop: asyncio.AbstractEventLoop) -> None:
    """Call every callback that was registered in this event loop."""
    for callback in tuple(_callbacks.get(loop, ())):
        callback()
