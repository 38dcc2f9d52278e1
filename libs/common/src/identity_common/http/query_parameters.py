"""Refuses query parameters that an operation does not declare: ignoring a filter would return everything.

The declaration is the one that the OpenAPI document is derived from, so no route can have a parameter without it.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from litestar import Request
from litestar.handlers import HTTPRouteHandler

from identity_common.failures import Issue, invalid_input
from identity_common.http.openapi.declarations import MAX_VALUES, Documented, Filter, Flag, is_list, more_of
from identity_common.http.pagination import FLAG_VALUES, MAX_SEARCH_CHARACTERS, parse_query

_API: Final = "/api/"
_PAGE: Final = {name: Filter(name, "") for name in ("page", "page_size")}  # ``read_page`` raises its own error
_SEARCH: Final = {
    name: Filter(name, "", max_length=MAX_SEARCH_CHARACTERS, may_be_empty=True) for name in ("q", "search")
}
_SHOWN_CHARACTERS: Final = 64
_MAX_DIGITS: Final = 19


async def refuse_undeclared_parameters(request: Request[Any, Any, Any]) -> None:
    """``before_request`` of an app: runs after the guards and before the handler's parameters are read."""
    query_string: bytes = request.scope["query_string"]
    if query_string and request.scope["path"].startswith(_API):
        more, in_pages = _declared(request.route_handler)
        require_declared(query_string, more, in_pages=in_pages)


def require_declared(query_string: bytes, more: Documented, *, in_pages: bool = False) -> None:
    """Refuse unknown parameters, repeated ones, and values that the declaration does not allow.

    Args:
        query_string: The raw query.
        more: What the operation declares.
        in_pages: Whether it is a list with pages and a search.

    Raises:
        Invalid: With one issue for each wrong parameter.
    """
    found: dict[str, list[str]] = {}
    for name, value in parse_query(query_string):
        found.setdefault(name, []).append(value)
    known = _filters(more) | (_SEARCH if in_pages else {})
    problems = [
        Issue(path=name[:_SHOWN_CHARACTERS], message=message)
        for name, values in found.items()
        if not (name in _PAGE and (in_pages or name in known))
        for message in _problems(known.get(name), values)
    ]
    if _SEARCH.keys() <= found.keys() and in_pages:
        problems.append(Issue(path="search", message="must not be combined with q, which has the same meaning"))
    if problems:
        raise invalid_input(*problems)


@functools.cache
def _declared(handler: HTTPRouteHandler) -> tuple[Documented, bool]:
    return more_of(handler), is_list(handler)


def _filters(more: Documented) -> dict[str, Filter]:
    return {each.name: each for each in (*more.filters, *map(_of_flag, more.flags))}


def _of_flag(flag: Flag) -> Filter:
    return Filter(flag.name, flag.description, values=tuple(FLAG_VALUES))


def _problems(known: Filter | None, values: Sequence[str]) -> Iterator[str]:
    """Yield the first problem of a parameter, if any."""
    if known is None:
        yield "unknown parameter"
    elif len(values) > 1 and not known.is_repeatable:
        yield "must be given at most once"
    elif len(values) > MAX_VALUES:
        yield f"must be given at most {MAX_VALUES} times"
    elif any("\0" in value for value in values):
        yield "NUL characters are not allowed"
    elif known.values and not set(values).issubset(known.values):
        yield f"must be {' or '.join(known.values)}{known.hint and f'; {known.hint}'}"
    elif not known.may_be_empty and not all(values):
        yield "must not be empty"
    elif known.bounds is not None and not all(_is_within(known.bounds, value) for value in values):
        yield "must be a whole number from {} to {}".format(*known.bounds)
    elif any(len(value) > known.max_length for value in values):
        yield f"must have at most {known.max_length} characters"


def _is_within(bounds: tuple[int, int], value: str) -> bool:
    least, greatest = bounds
    return value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS and least <= int(value) <= greatest
