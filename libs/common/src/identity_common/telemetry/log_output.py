"""Where lines of the log go: those of a hundredth of a second are written together.

A system call for each would cost more than all the rest of a line.
"""

import asyncio
import atexit
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Final, TextIO

_TOGETHER_S: Final = 0.01


class LogOutput:
    """The stream of a process that lines are written to.

    Attributes:
        service: Who writes, a part of every line.
        stream: What is written to.
    """

    def __init__(self) -> None:
        self.service = ""
        self.stream: TextIO = sys.stderr
        self._waiting: deque[str] = deque()
        self._writing = threading.RLock()
        self._flushing: asyncio.AbstractEventLoop | None = None  # which has been asked to

    def turn_to(self, stream: TextIO, *, service: str) -> None:
        """Write to another stream from now on; what waits belongs to the one before."""
        self.flush()
        self.stream, self.service = stream, service

    def write(self, text: str) -> None:
        """Write whole lines: soon; at once where there is no event loop."""
        self._waiting.append(text)
        loop = self._flushing
        if loop is not None and loop.is_running():  # to ask for the loop is a system call until Python 3.12
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._flushing = loop
        loop.call_later(_TOGETHER_S, self.flush)

    def flush(self) -> None:
        """Write what waits. Where it cannot be written nobody can be told, and it is dropped."""
        with self._writing, suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._flushing = None
            text = "".join(self._waiting.popleft() for _ in range(len(self._waiting)))
            if text:
                self.stream.write(text)
                self.stream.flush()


OUTPUT: Final = LogOutput()
atexit.register(OUTPUT.flush)
