"""Work of many requests done together: what costs a round trip each costs one for all of them."""

import asyncio
import itertools
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
        self._is_collecting = False

    def ask(self, question: Question) -> "asyncio.Future[Answer]":
        """Return the answer to a question, which is on its way from now on; nobody has to await it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, future))
        if not self._is_collecting:
            self._is_collecting = self._collect(loop)
        return future

    @abstractmethod
    def _collect(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether what waits when this turn is over is answered then."""


def _settle(future: "asyncio.Future[Answer]", answer: Answer | Exception) -> None:
    """Answer a question, if its request is still there; it fails in silence where nobody awaits the answer."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
        future.exception()
    else:
        future.set_result(answer)


class Coalescer(_Questions[Question, Answer]):
    """Collects the questions of one turn of the event loop and has them answered at once.

    Under load this is what makes a question cheap; alone it costs what the question costs.

    Args:
        answer_all: Returns an answer for each question, in their order; an exception is raised where the question was
            asked. What it raises, every one of them gets.
        at_once: So many calls are under way at most; what is asked meanwhile is collected for the next one.
        together: So many questions are answered by one call at most.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[Question]], Awaitable[Sequence[Answer | Exception]]],
        *,
        at_once: int = sys.maxsize,
        together: int = sys.maxsize,
    ) -> None:
        super().__init__()
        self._answer_all = answer_all
        self._at_once = at_once
        self._together = together
        self._numbers = itertools.count()
        self._answering: dict[int, asyncio.Task[None]] = {}

    def _collect(self, loop: asyncio.AbstractEventLoop) -> bool:
        if len(self._answering) >= self._at_once:
            return False
        number = next(self._numbers)
        self._answering[number] = loop.create_task(self._answer_some(number))  # it begins when this turn is over
        return True

    async def _answer_some(self, number: int) -> None:
        taken, self._waiting = self._waiting[: self._together], self._waiting[self._together :]
        self._is_collecting = self._collect_more()
        try:
            await self._answer(taken)
        finally:
            del self._answering[number]
            if not self._is_collecting:
                self._is_collecting = self._collect_more()

    def _collect_more(self) -> bool:
        return bool(self._waiting) and self._collect(asyncio.get_running_loop())

    async def _answer(self, taken: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._answer_all([question for question, _ in taken])
        except Exception as error:  # noqa: BLE001 - it belongs to those who asked, whatever it is
            for _, future in taken:
                _settle(future, error)
            return
        for (_, future), answer in zip(taken, answers, strict=True):
            _settle(future, answer)


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

    def _collect(self, loop: asyncio.AbstractEventLoop) -> bool:
        loop.call_soon(self._answer_all)
        return True

    def _answer_all(self) -> None:
        taken, self._waiting = self._waiting, []
        self._is_collecting = False
        for question, future in taken:
            if future.done():  # its request was cancelled
                continue
            try:
                answer: Answer | Exception = self._answer(question)
            except Exception as error:  # noqa: BLE001 - it belongs to who asked, whatever it is
                answer = error
            _settle(future, answer)
