"""Lists of the Management API, read page by page as somebody goes through them.

``ListRequest`` says which list; ``PageReader`` is one way through it, as operations (see ``_http.Operation``) of one page
each; ``Listing`` and ``AsyncListing`` are what callers iterate over, and a few lines each.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, Generic, TypeVar

import httpx

from stead._http import AsyncRun, Operation, Request, Run, decode, json_request, unexpected_answer

T = TypeVar("T")

MAX_PAGE_SIZE: Final = 100

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class ListRequest(Generic[T]):
    """Which list, of what, and how many of its items in one answer.

    Raises:
        ValueError: The page size is not from 1 to 100.
    """

    def __init__(
        self, path: str, item: type[T], *, page_size: int, params: Mapping[str, str | None] | None = None
    ) -> None:
        if isinstance(page_size, bool) or not 1 <= page_size <= MAX_PAGE_SIZE:
            raise ValueError(f"page_size must be from 1 to {MAX_PAGE_SIZE}")
        self.item = item
        self._path = path
        self._page_size = page_size
        self._params = {name: value for name, value in (params or {}).items() if value is not None}

    def page(self, number: int) -> Request:
        """Describe the request for one page, counted from 1."""
        return json_request("GET", self._path, params={**self._params, "page": number, "page_size": self._page_size})


class PageReader(Generic[T]):
    """One way through a list, page by page.

    It ends when ``Total-Number`` items have come *and* the service has named no next page, or when a page is empty. An
    end that contradicts the number is an error and never a shorter list. The addresses of links are not followed: the
    client asks the service that it was told to ask.

    Attributes:
        ended: There is nothing left to read.
    """

    def __init__(self, listed: ListRequest[T]) -> None:
        self.ended = False
        self._listed = listed
        self._page = 1
        self._received = 0
        self._retrying = False

    def next_page(self) -> Operation[list[T]]:
        """Read what comes next.

        Raises:
            ApiError: The service refused; ``unexpected_answer`` if it does not say how long the list is, or says twice
                that there is more and gives nothing.
        """
        answer = yield self._listed.page(self._page)
        items = decode(answer, list[self._listed.item])  # type: ignore[name-defined]
        self._received += len(items)
        total = _total(answer)
        missing = self._received < total
        if missing and not items:
            if self._retrying:
                raise unexpected_answer(f"a list of {total} ended after {self._received}", answer)
            self._retrying = True  # counted before something was deleted, and read after it: ask for the page again
            return items
        self._retrying = False
        self._page += 1
        self.ended = not items or not (missing or "next" in answer.links)
        return items


class Listing(Generic[T]):
    """A list that is read when somebody goes through it, from the beginning each time.

    A page is asked for when its first item is wanted. What is changed meanwhile may be seen, missed or seen twice.
    """

    def __init__(self, listed: ListRequest[T], run: Run) -> None:
        self._listed = listed
        self._run = run

    def __iter__(self) -> Iterator[T]:
        reading = PageReader(self._listed)
        while not reading.ended:
            yield from self._run(reading.next_page())


class AsyncListing(Generic[T]):
    """A list that is read when somebody goes through it with ``async for``; otherwise the same as ``Listing``."""

    def __init__(self, listed: ListRequest[T], run: AsyncRun) -> None:
        self._listed = listed
        self._run = run

    async def __aiter__(self) -> AsyncIterator[T]:
        reading = PageReader(self._listed)
        while not reading.ended:
            for item in await self._run(reading.next_page()):
                yield item


def _total(answer: httpx.Response) -> int:
    value = answer.headers.get("Total-Number", "")
    if _NUMBER.fullmatch(value) is None:
        raise unexpected_answer("the list does not say how long it is", answer)
    return int(value)
