"""Requests for lists: the page, the filters and the headers of the response."""

from collections.abc import Sequence
from typing import Final, TypeVar

from litestar import Response
from litestar.di import Provide

from identity_common.http.json_body import JsonRequest
from identity_common.http.pagination import list_headers, parse_query, read_filter, read_flag, read_page
from identity_common.paging import Page

T = TypeVar("T")


class Listing:
    """A request for a list."""

    def __init__(self, request: JsonRequest, *, whole_by_default: bool) -> None:
        self._query_string: bytes = request.scope["query_string"]
        self._query = parse_query(self._query_string) if self._query_string else []
        self._address = request.app.state.base_url + request.scope["path"]
        self.page: Page = read_page(self._query_string, whole_by_default=whole_by_default)

    def filter(self, name: str) -> str | None:
        """Return the value of a filter; None if it is missing."""
        return read_filter(self._query, name)

    def filters(self, name: str) -> tuple[str, ...]:
        """Return all values of a filter that may be repeated."""
        return tuple(value for found, value in self._query if found == name)

    def flag(self, name: str) -> bool:
        """Return the value of a boolean query parameter; False if it is missing."""
        return read_flag(self._query_string, name)

    def answer(self, items: Sequence[T], total: int) -> Response[list[T]]:
        """Return the response: the items of the page, ``Total-Number`` and ``Link``."""
        return Response(list(items), headers=self.headers(total))

    def headers(self, total: int) -> dict[str, str]:
        """Return ``Total-Number`` and ``Link``, for a response that holds a page and more."""
        return list_headers(address=self._address, query_string=self._query_string, page=self.page, total=total)


def _paged(request: JsonRequest) -> Listing:
    return Listing(request, whole_by_default=False)


def _whole(request: JsonRequest) -> Listing:
    return Listing(request, whole_by_default=True)


PAGED: Final = {"listing": Provide(_paged, sync_to_thread=False)}
"""Dependencies of lists that return the first page by default."""

WHOLE: Final = {"listing": Provide(_whole, sync_to_thread=False)}
"""Dependencies of lists that return all items by default."""
