"""Declarations of routes for their service's OpenAPI document, and reading them from the routes of an app.

The signature of a handler declares bodies, path parameters and lists; its guards, who may call it; its method, entity
tags and revisions; ``documented``, all that none of these shows. A raw ASGI route has no signature: it declares an
``Operation``, or its operations are ``hand_written``.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, get_args, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.routes import ASGIRoute, HTTPRoute

from identity_common.http.pagination import MAX_SEARCH_CHARACTERS

JSON: Final = "application/json"
COMPONENTS: Final = "#/components/schemas/{name}"
"""Template of a reference to the component of a type."""

_OPT: Final = "documented"
_REVISED: Final = "changes_directory"
_OPERATION: Final = "operation"
_HAND_WRITTEN: Final = "hand_written"

Json = dict[str, Any]
P = ParamSpec("P")


def header(*names: str) -> Json:
    """Return ``headers`` of a response: references to components that every document contains."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


class Flag(msgspec.Struct, frozen=True):
    """A boolean query parameter; false by default."""

    name: str
    description: str


MAX_VALUES: Final = 100
"""How often a parameter that may be repeated can be given."""


class Filter(msgspec.Struct, frozen=True):
    """An optional query parameter that filters a list.

    Attributes:
        name: Its name.
        description: What it selects.
        values: The allowed values; empty for any text.
        is_repeatable: Whether it may be given several times, up to ``MAX_VALUES``.
        max_length: Maximum number of characters of a value.
        may_be_empty: Whether an empty value is allowed.
        hint: What to do instead of giving another value than the allowed ones.
        bounds: The least and the greatest value of a whole number; None for text.
    """

    name: str
    description: str
    values: tuple[str, ...] = ()
    is_repeatable: bool = False
    max_length: int = MAX_SEARCH_CHARACTERS
    may_be_empty: bool = False
    hint: str = ""
    bounds: tuple[int, int] | None = None


class RequestHeader(msgspec.Struct, frozen=True):
    """A request header that a route reads."""

    name: str
    description: str
    example: str


class Documented(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that the signature of a handler does not show.

    Attributes:
        body: Type of a request body that the handler reads itself.
        body_required: Whether the body is required.
        body_example: Example of the body, if the schema does not yield a good one.
        answer: Type of a response body that the handler encodes itself.
        media_type: Media type of the response; one other than JSON has no entity tag.
        may_create: Whether a success is a 201, with the same body, if the entity did not exist.
        example: Example of the response, if the schema does not yield a good one.
        refuses: Error statuses in addition to those of all routes of this kind.
        never: Error statuses of routes of this kind that this route never returns.
        headers: Response headers of a success in addition to those of all routes of this kind.
        flags: Boolean query parameters.
        filters: Query parameters that filter a list.
        request_headers: Request headers in addition to those of all routes of this kind.
        takes_userinfo_token: Whether the caller presents a userinfo token, and not one for the Management API.
    """

    body: Any = None
    body_required: bool = True
    body_example: Any = None
    answer: Any = None
    media_type: str = JSON
    may_create: bool = False
    example: Any = None
    refuses: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    filters: tuple[Filter, ...] = ()
    request_headers: tuple[RequestHeader, ...] = ()
    takes_userinfo_token: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: derived from a handler, declared for a raw ASGI route.

    Attributes:
        method: HTTP method.
        operation_id: ``operationId``.
        summary: One line.
        description: What the route does.
        tags: Groups of operations.
        status: Status of a success.
        body: Type of the request body; None without a body.
        answer: Type of the response body of a success; None without a body.
        is_list: Whether the response is a page of a list.
        is_guarded: Whether the caller must be authenticated.
        is_revised: Whether writes return ``Identity-Revision``.
        more: What only ``documented`` declares.
    """

    method: str
    operation_id: str
    summary: str
    description: str
    tags: tuple[str, ...]
    status: int
    body: Any = None
    answer: Any = None
    is_list: bool = False
    is_guarded: bool = True
    is_revised: bool = False
    more: Documented = Documented()


class HandWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Hand-written operations of a raw ASGI route.

    Attributes:
        operations: Method → Operation Object; refers to types by ``reference``.
        types: Types that become components.
        security_schemes: Security schemes in addition to ``bearer``.
    """

    operations: Json
    types: tuple[Any, ...]
    security_schemes: Json


def operation_opt(operation: Operation) -> Json:
    """Return ``opt`` of a raw ASGI route with one operation; see ``Operation``."""
    return {_OPERATION: operation}


def hand_written(operations: Json, *, types: tuple[Any, ...], security_schemes: Json) -> Json:
    """Return ``opt`` of a raw ASGI route with hand-written operations, by method; see ``HandWritten``."""
    return {_HAND_WRITTEN: HandWritten(operations=operations, types=types, security_schemes=security_schemes)}


def reference(kind: type[msgspec.Struct]) -> Json:
    """Return a reference to the component of a type."""
    return {"$ref": COMPONENTS.format(name=kind.__name__)}


def optional_parameter(name: str, where: str, description: str, schema: Json, example: Any) -> Json:
    """Return a parameter whose example is in its schema: "Try it out" would send a separate example."""
    return {"name": name, "in": where, "description": description, "schema": {**schema, "examples": [example]}}


def _opt(declaration: Callable[P, Documented]) -> Callable[P, Json]:
    def opt(*args: P.args, **kwargs: P.kwargs) -> Json:
        return {_OPT: declaration(*args, **kwargs)}

    return opt


documented: Final = _opt(Documented)
"""Returns ``opt`` of a route handler; takes the arguments of ``Documented``."""

CHANGES_DIRECTORY: Final[Json] = {_REVISED: True}
"""``opt`` of a router whose writes return ``Identity-Revision``."""

PUBLISHES_NOTHING: Final[Json] = {_REVISED: False}
"""``opt`` of a route in such a router that is not a write of the directory."""


def more_of(handler: HTTPRouteHandler) -> Documented:
    """Return what a handler declares by ``documented``."""
    more: Documented = handler.opt.get(_OPT, Documented())
    return more


def is_list(handler: HTTPRouteHandler) -> bool:
    """Return whether a handler answers a list with pages and a search."""
    return "listing" in handler.parsed_fn_signature.parameters


def operations(app: Litestar) -> Iterator[tuple[str, Operation]]:
    """Yield the path and the operation of each handler and of each raw route with one operation."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in route.route_handler_map.items():
                if handler.operation_id is not None:
                    yield route.path_format, _operation_of(handler, str(method))
        elif isinstance(route, ASGIRoute) and _OPERATION in route.route_handler.opt:
            yield route.path_format, route.route_handler.opt[_OPERATION]


def _operation_of(handler: HTTPRouteHandler, method: str) -> Operation:
    more = more_of(handler)
    signature = handler.parsed_fn_signature
    data = signature.parameters.get("data")
    returned = signature.return_type.annotation
    answer = more.answer or (get_args(returned)[0] if get_origin(returned) is Response else returned)
    return Operation(
        method=method,
        operation_id=str(handler.operation_id),
        summary=handler.summary or "",
        description=handler.description or inspect.cleandoc(handler.fn.__doc__ or ""),
        tags=tuple(handler.resolve_tags()),
        status=handler.status_code,
        body=more.body if data is None else data.annotation,
        answer=None if answer in {None, type(None)} else answer,
        is_list=is_list(handler),
        is_guarded=bool(handler.resolve_guards()),
        is_revised=bool(handler.opt.get(_REVISED)),
        more=more,
    )


def hand_written_operations(app: Litestar) -> Iterator[tuple[str, HandWritten]]:
    """Yield the path and the operations of each raw route with hand-written ones."""
    for route in app.routes:
        if isinstance(route, ASGIRoute) and _HAND_WRITTEN in route.route_handler.opt:
            yield route.path_format, route.route_handler.opt[_HAND_WRITTEN]
