"""Pagination: the query parameters ``page``, ``page_size`` and ``q``, the headers ``Total-Number`` and ``Link``."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode

from identity_common.failures import Invalid, Issue, invalid_input
from identity_common.paging import DEFAULT_SIZE, Page

MAX_SIZE: Final = 100
MAX_NUMBER: Final = 2**31 - 1
MAX_SEARCH_CHARACTERS: Final = 128
FLAG_VALUES: Final = {"true": True, "1": True, "false": False, "0": False}
_NUMBER: Final = re.compile(r"0*([0-9]{1,10})")


def invalid_pagination() -> Invalid:
    """Return the failure of a ``page`` or ``page_size`` that is not a number in its range, or is repeated."""
    return Invalid(
        "guard.invalid_pagination",
        f"page must be at least 1 and page_size 1 to {MAX_SIZE}, each given at most once.",
    )


def parse_query(query_string: bytes) -> list[tuple[str, str]]:
    """Return the parameters of a query in order; invalid UTF-8 is replaced."""
    return parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, errors="replace")


def read_page(query_string: bytes, *, whole_by_default: bool) -> Page:
    """Return the page that a query requests.

    The search term is ``q`` or, for clients of compatible services, ``search``, without the ``%`` that they put around
    it. The last one wins.

    Args:
        query_string: The raw query.
        whole_by_default: Whether a query without ``page`` and ``page_size`` requests the whole list.

    Raises:
        Invalid: ``guard.invalid_pagination``, or ``guard.invalid_input`` for a NUL character.
    """
    given: dict[str, int] = {}
    search = ""
    for name, value in parse_query(query_string) if query_string else ():
        if name in {"page", "page_size"}:
            match = _NUMBER.fullmatch(value)
            if match is None or name in given:
                raise invalid_pagination()
            given[name] = int(match[1])
        elif name in {"q", "search"}:
            if "\0" in value:
                raise invalid_input(Issue(path=name, message="NUL characters are not allowed"))
            search = value.strip("%")
    if not given:
        return Page(size=None if whole_by_default else DEFAULT_SIZE, search=search)
    page = Page(number=given.get("page", 1), size=given.get("page_size", DEFAULT_SIZE), search=search)
    if not 1 <= page.number <= MAX_NUMBER or not 1 <= (page.size or 0) <= MAX_SIZE:
        raise invalid_pagination()
    return page


def read_flag(query_string: bytes, name: str) -> bool:
    """Return the value of a boolean query parameter; False if it is missing.

    Raises:
        Invalid: Unless it is ``true`` or ``false`` and given once.
    """
    given = [value for found, value in parse_query(query_string) if found == name]
    if not given:
        return False
    if len(given) > 1 or given[0] not in FLAG_VALUES:
        raise invalid_input(Issue(path=name, message="must be true or false and given at most once"))
    return FLAG_VALUES[given[0]]


def read_filter(query: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the value of a parameter of a parsed query; None if it is missing or empty.

    Raises:
        Invalid: It contains a NUL character or is repeated.
    """
    given = [value for found, value in query if found == name]
    if len(given) > 1 or any("\0" in value for value in given):
        raise invalid_input(Issue(path=name, message="must be given at most once and without NUL characters"))
    return (given[0] or None) if given else None


def next_page(address: str, given: Mapping[str, str], *, after: str | None, size: int) -> dict[str, str]:
    """Return the ``Link`` from a page of a cursor-paginated list to the next one.

    Args:
        address: Of the list, without its query.
        given: The parameters of the request; ``after`` and ``page_size`` are replaced.
        after: Where the next page begins; None on the last one, which has no ``Link``.
        size: Of the page.
    """
    if after is None:
        return {}
    kept = {name: value for name, value in given.items() if name not in {"after", "page_size"}}
    return {"Link": f'<{address}?{urlencode({**kept, "after": after, "page_size": size})}>; rel="next"'}


def list_headers(*, address: str, query_string: bytes, page: Page, total: int) -> dict[str, str]:
    """Return ``Total-Number`` and, for a page, ``Link``.

    Args:
        address: Absolute URL of the list, without a query.
        query_string: The raw query of the request; the links keep its other parameters.
        page: The requested page.
        total: Number of items in the whole list.
    """
    headers = {"Total-Number": str(total)}
    if page.size is None:
        return headers
    last = max(1, -(-total // page.size))
    numbers = {"first": 1, "prev": min(page.number - 1, last), "next": page.number + 1, "last": last}
    others = [(name, value) for name, value in parse_query(query_string) if name not in {"page", "page_size"}]
    headers["Link"] = ", ".join(
        f'<{address}?{urlencode([*others, ("page", number), ("page_size", page.size)])}>; rel="{relation}"'
        for relation, number in numbers.items()
        if 1 <= number <= last
    )
    return headers
