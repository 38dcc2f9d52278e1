"""Pages of lists: ``page``, ``page_size`` and ``q`` in, ``Total-Number`` and ``Link`` out."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from identity_common.http.api_errors import ApiError, Issue, invalid_input

DEFAULT_SIZE: Final = 20
MAX_SIZE: Final = 100
MAX_NUMBER: Final = 2**31 - 1
_FLAG: Final = {"true": True, "1": True, "false": False, "0": False}
_NUMBER: Final = re.compile(r"0*([0-9]{1,10})")


class Page(msgspec.Struct, frozen=True):
    """Which part of a list is asked for.

    Attributes:
        number: From 1.
        size: Items on a page, 1 to 100; none for the whole list.
        search: Only what has this in its name or description, without regard to case; empty for everything.
    """

    number: int = 1
    size: int | None = DEFAULT_SIZE
    search: str = ""

    @property
    def offset(self) -> int:
        """How many items lie before the page."""
        return (self.number - 1) * (self.size or 0)


def invalid_pagination() -> ApiError:
    """400: ``page`` or ``page_size`` is not a number within its range, or is repeated."""
    return ApiError(
        400, "guard.invalid_pagination", f"page must be from 1, page_size from 1 to {MAX_SIZE}, each at most once."
    )


def parse_query(query_string: bytes) -> list[tuple[str, str]]:
    """Return the parameters of a query in order, ill-formed UTF-8 replaced."""
    return parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, errors="replace")


def read_page(query_string: bytes, *, whole_by_default: bool) -> Page:
    """Return the page that a query asks for.

    What is searched for stands in ``q``, or in ``search`` as clients of this family say; the ``%`` that they put around
    it means nothing more. The last one counts.

    Args:
        query_string: As it was sent.
        whole_by_default: A query that names neither parameter asks for everything.

    Raises:
        ApiError: 400 ``guard.invalid_pagination``, or ``guard.invalid_input`` for a NUL character.
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
                raise invalid_input(Issue(path=name, message="a NUL character is not allowed"))
            search = value.strip("%")
    if not given:
        return Page(size=None if whole_by_default else DEFAULT_SIZE, search=search)
    page = Page(number=given.get("page", 1), size=given.get("page_size", DEFAULT_SIZE), search=search)
    if not 1 <= page.number <= MAX_NUMBER or not 1 <= (page.size or 0) <= MAX_SIZE:
        raise invalid_pagination()
    return page


def read_flag(query_string: bytes, name: str) -> bool:
    """Return whether a parameter of a query is ``true``; false where it is left out.

    Raises:
        ApiError: 400 ``guard.invalid_input`` for anything but ``true`` and ``false``, and for a repetition.
    """
    given = [value for found, value in parse_query(query_string) if found == name]
    if not given:
        return False
    if len(given) > 1 or given[0] not in _FLAG:
        raise invalid_input(Issue(path=name, message="must be true or false, at most once"))
    return _FLAG[given[0]]


def read_filter(query_string: bytes, name: str) -> str | None:
    """Return the value of a parameter of a query; none where it is left out or empty.

    Raises:
        ApiError: 400 ``guard.invalid_input`` for a NUL character, and for a repetition.
    """
    given = [value for found, value in parse_query(query_string) if found == name]
    if len(given) > 1 or any("\0" in value for value in given):
        raise invalid_input(Issue(path=name, message="must be given at most once, without a NUL character"))
    return (given[0] or None) if given else None


def require_known(query_string: bytes, *names: str) -> None:
    """Refuse parameters of a query that mean nothing, where passing one over does harm.

    Args:
        query_string: As it was sent.
        names: Those that mean something.

    Raises:
        ApiError: 400 ``guard.invalid_input``.
    """
    unknown = dict.fromkeys(name for name, _ in parse_query(query_string) if name not in names)
    if unknown:
        raise invalid_input(*(Issue(path=name[:64], message="unknown parameter") for name in unknown))


def list_headers(*, address: str, query_string: bytes, page: Page, total: int) -> dict[str, str]:
    """Return ``Total-Number``, and ``Link`` where the list is paged.

    Args:
        address: Absolute URL of the list, without a query.
        query_string: Of the request; its other parameters are kept in the links.
        page: What was asked for.
        total: Items of the whole list.
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
