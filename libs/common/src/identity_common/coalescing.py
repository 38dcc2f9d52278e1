"""Work of many requests done together: what costs a round trip each costs one for all of them."""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class _Questions(ABC, Generic[Question, Answer]):
    """Collects the questions of one turn of the event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []

    def ask(self, question: Question) -> "asyncio.Future[Answer]":
        """Return the answer to a question, which is on its way from now on; nobody has to await it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append((question, future))
        return future

    @abstractmethod
    def _flush(self) -> None:
        """See to it that the questions are answered that are waiting."""


def _fail(future: "asyncio.Future[Answer]", error: Exception) -> None:
    """Have a question fail; of no concern to the event loop where nobody awaits the answer."""
    future.set_exception(error)
    future.exception()


class Coalescer(_Questions[Question, Answer]):
    """Collects the questions of one turn of the event loop and has them answered at once.

    Under load this is what makes a question cheap; alone it costs what the question costs.

    Args:
        answer_all: Returns an answer for each question, in their order. What it raises, every one of them gets.
        at_once: So many calls are under way at most; what is asked meanwhile is collected for the next one.
        together: So many questions are answered by one call at most.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]],
        *,
        at_once: int = sys.maxsize,
        together: int = sys.maxsize,
    ) -> None:
        super().__init__()
        self._answer_all = answer_all
        self._at_once = at_once
        self._together = together
        self._answering: set[asyncio.Task[None]] = set()

    def _flush(self) -> None:
        while self._waiting and len(self._answering) < self._at_once:
            taken, self._waiting = self._waiting[: self._together], self._waiting[self._together :]
            task = asyncio.create_task(self._answer(taken))
            self._answering.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._flush()

    async def _answer(self, waiting: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._answer_all([question for question, _ in waiting])
        except Exception as error:  # noqa: BLE001 - it belongs to those who asked, whatever it is
            for _, future in waiting:
                if not future.done():
                    _fail(future, error)
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            if not future.done():  # else its request was cancelled
                future.set_result(answer)


class SameTurn(_Questions[Question, Answer]):
    """Collects the questions of one turn of the event loop and answers them one right after the other.

    For what is computed, and by a lot of code: the second answer costs half of the first, which finds the processor
    busy with other things.

    Args:
        answer: Returns the answer to a question. What it raises is raised where this question was asked.
    """

    def __init__(self, answer: Callable[[Question], Answer]) -> None:
        super().__init__()
        self._answer = answer

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for question, future in waiting:
            if future.done():  # its request was cancelled
                continue
            try:
                future.set_result(self._answer(question))
            except Exception as error:  # noqa: BLE001 - it belongs to who asked, whatever it is
                _fail(future, error)
