"""Lists of the Management API, fetched page by page during iteration.

``ListRequest`` describes a list, ``CursorRequest`` one with cursors; a ``Reader`` is one pass over it, with one
operation (see ``_transport.operations``) per page; ``Listing`` and ``AsyncListing`` are what callers iterate over.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import httpx2 as httpx

from stead._transport.api import decode, json_request, unexpected_answer
from stead._transport.operations import AsyncRun, Operation, Request, Run

T = TypeVar("T")

MAX_PAGE_SIZE: Final = 100

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class Reader(Protocol[T]):
    """One pass over a list.

    Attributes:
        ended: Whether the last page was read.
    """

    ended: bool

    def next_page(self) -> Operation[list[T]]:
        """Read the next page."""


class ListRequest(Generic[T]):
    """Describes a list: its address, the type of its items, and the page size.

    Raises:
        ValueError: The page size is not between 1 and 100.
    """

    def __init__(
        self,
        path: str,
        item: type[T],
        *,
        page_size: int,
        params: Mapping[str, str | Sequence[str] | None] | None = None,
    ) -> None:
        if isinstance(page_size, bool) or not 1 <= page_size <= MAX_PAGE_SIZE:
            raise ValueError(f"page_size must be between 1 and {MAX_PAGE_SIZE}")
        self.item = item
        self._path = path
        self._page_size = page_size
        self._params = {name: value for name, value in (params or {}).items() if value is not None}

    def page(self, number: int) -> Request:
        """Return the request for a page; the first one is 1."""
        return self._request({"page": number})

    def reader(self) -> Reader[T]:
        """Begin a pass over the list."""
        return PageReader(self)

    def _request(self, place: Mapping[str, str | int]) -> Request:
        return json_request("GET", self._path, params={**self._params, **place, "page_size": self._page_size})


class CursorRequest(ListRequest[T]):
    """Describes a list that grows at its beginning: a page begins after the last item of the one before."""

    def after(self, cursor: str | None) -> Request:
        """Return the request for the page after a cursor; for the first page if it is None."""
        return self._request({} if cursor is None else {"after": cursor})

    def reader(self) -> Reader[T]:
        """Begin a pass over the list."""
        return CursorReader(self)


class PageReader(Generic[T]):
    """One pass over a list, page by page.

    It ends when ``Total-Number`` items were received *and* the response links no next page, or with an empty page. A
    list that ends early is an error, never silently shorter. Link addresses are not followed: requests only ever go to
    the configured base URL.

    Attributes:
        ended: Whether the last page was read.
    """

    def __init__(self, listed: ListRequest[T]) -> None:
        self.ended = False
        self._listed = listed
        self._page = 1
        self._received = 0
        self._retrying = False

    def next_page(self) -> Operation[list[T]]:
        """Read the next page.

        Raises:
            ApiError: The service refused; ``unexpected_answer`` if the length of the list is missing, or if the list
                ends early twice in a row.
        """
        answer = yield self._listed.page(self._page)
        items = decode(answer, list[self._listed.item])  # type: ignore[name-defined]
        self._received += len(items)
        total = _total(answer)
        missing = self._received < total
        if missing and not items:
            if self._retrying:
                raise unexpected_answer(f"a list of {total} ended after {self._received}", answer)
            self._retrying = True  # an item may have been deleted between count and read: retry once
            return items
        self._retrying = False
        self._page += 1
        self.ended = not items or not (missing or "next" in answer.links)
        return items


class CursorReader(Generic[T]):
    """One pass over a list with cursors, page by page, until a response links no next one.

    Only the cursor of the link is used: requests only ever go to the configured base URL.

    Attributes:
        ended: Whether the last page was read.
    """

    def __init__(self, listed: CursorRequest[T]) -> None:
        self.ended = False
        self._listed = listed
        self._cursor: str | None = None

    def next_page(self) -> Operation[list[T]]:
        """Read the next page.

        Raises:
            ApiError: The service refused; ``unexpected_answer`` if the link has no new cursor.
        """
        answer = yield self._listed.after(self._cursor)
        items = decode(answer, list[self._listed.item])  # type: ignore[name-defined]
        if "next" not in answer.links:
            self.ended = True
            return items
        cursor = _following(answer, "after")
        if not cursor or cursor == self._cursor:
            raise unexpected_answer("the link to the next page has no new cursor", answer)
        self._cursor = cursor
        return items


class ListPage(Generic[T]):
    """One page of a list.

    Attributes:
        items: In the order of the list.
        total: How many items the whole list has; None for a list with cursors.
        following: Where the next page is: its number, or the cursor that it begins after; None on the last page.
        etag: The entity tag of the whole list, for ``if_match``; None if the page has only a part of it.
    """

    __slots__ = ("etag", "following", "items", "total")

    def __init__(
        self, items: Sequence[T], *, total: int | None, following: str | None, etag: str | None = None
    ) -> None:
        self.items = items
        self.total = total
        self.following = following
        self.etag = etag


def one_page(listed: ListRequest[T], place: str | None) -> Operation[ListPage[T]]:
    """Read the page at ``place``, which is the ``following`` of another page; the first page if it is None.

    Raises:
        ApiError: The service refused.
        ValueError: The list has no cursors, and the place is not a page number.
    """
    if isinstance(listed, CursorRequest):
        answer = yield listed.after(place)
    elif place is None or _NUMBER.fullmatch(place) is not None:
        answer = yield listed.page(int(place or 1))
    else:
        raise ValueError("the place of a page in this list is a number")
    items = decode(answer, list[listed.item])  # type: ignore[name-defined]
    parameter = "after" if isinstance(listed, CursorRequest) else "page"
    total = None if isinstance(listed, CursorRequest) else _total(answer)
    return ListPage(
        items,
        total=total,
        following=_following(answer, parameter),
        etag=answer.headers.get("ETag") if len(items) == total else None,
    )


class Listing(Generic[T]):
    """A list that is fetched during iteration, from the beginning each time.

    A page is requested when its first item is needed. An item that changes during the iteration may be seen, missed or
    seen twice.
    """

    def __init__(self, listed: ListRequest[T], run: Run) -> None:
        self._listed = listed
        self._run = run

    def __iter__(self) -> Iterator[T]:
        reader = self._listed.reader()
        while not reader.ended:
            yield from self._run(reader.next_page())

    def page(self, place: str | None = None) -> ListPage[T]:
        """Fetch one page: the first one, or the one that another page names as ``following``.

        Raises:
            ValueError: The list has no cursors, and the place is not a page number.
        """
        return self._run(one_page(self._listed, place))


class AsyncListing(Generic[T]):
    """A list that is fetched during iteration with ``async for``; see ``Listing``."""

    def __init__(self, listed: ListRequest[T], run: AsyncRun) -> None:
        self._listed = listed
        self._run = run

    async def __aiter__(self) -> AsyncIterator[T]:
        reader = self._listed.reader()
        while not reader.ended:
            for item in await self._run(reader.next_page()):
                yield item

    async def page(self, place: str | None = None) -> ListPage[T]:
        """Fetch one page; see ``Listing.page``."""
        return await self._run(one_page(self._listed, place))


def _following(answer: httpx.Response, parameter: str) -> str | None:
    """Return a query parameter of the link to the next page; None without one."""
    link = answer.links.get("next")
    if link is None:
        return None
    try:
        value: str | None = httpx.URL(link["url"]).params.get(parameter)
    except httpx.InvalidURL:
        raise unexpected_answer("the link to the next page is not a URL", answer) from None
    return value


def _total(answer: httpx.Response) -> int:
    value = answer.headers.get("Total-Number", "")
    if _NUMBER.fullmatch(value) is None:
        raise unexpected_answer("the response does not say how long the list is", answer)
    return int(value)
