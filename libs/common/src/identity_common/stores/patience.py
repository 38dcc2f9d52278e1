"""``asyncio.timeout`` for waits that are many and short: a timer for all of them, because one each costs too much.

It looks twice in the time that there is, and ends what has been waiting for all of it.
"""

import asyncio
from types import TracebackType
from typing import Any, Final

_LOOKS: Final = 3  # the first may come at once, and from there it is twice half of the time


class Patience:
    """Context manager around what may wait; a task is in one such wait at a time.

    Args:
        seconds: So long it may wait; it is ended when half as much again has gone by, at the latest.

    Raises:
        TimeoutError: It took too long.
    """

    def __init__(self, seconds: float) -> None:
        self._between_looks_s = seconds / 2
        self._looks = 0
        self._is_looking = False
        self._began: dict[asyncio.Task[Any], int] = {}  # after how many looks
        self._ended: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        """Begin to wait."""
        self._began[_this_task()] = self._looks
        if not self._is_looking:
            self._look_later()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Be done with it, one way or the other."""
        task = _this_task()
        del self._began[task]
        if task not in self._ended:
            return
        self._ended.discard(task)
        if not task.uncancel() and kind is asyncio.CancelledError:  # else somebody else has cancelled it as well
            raise TimeoutError from error

    def _look_later(self) -> None:
        self._is_looking = True
        asyncio.get_running_loop().call_later(self._between_looks_s, self._look)

    def _look(self) -> None:
        self._is_looking = False
        self._looks += 1
        for task, began in self._began.items():
            if self._looks - began >= _LOOKS and task not in self._ended:
                self._ended.add(task)
                task.cancel()
        if self._began:
            self._look_later()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("only a task can wait")
    return task
