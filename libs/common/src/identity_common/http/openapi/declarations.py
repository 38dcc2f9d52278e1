"""Declarations of routes for their service's OpenAPI document, and reading them from the routes of an app.

The signature of a handler declares bodies, path parameters and lists; its guards, who may call it; its method, entity
tags and revisions; ``documented``, all that none of these shows. A raw ASGI route has no signature: it declares each
``Operation``.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, get_args, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.routes import ASGIRoute, HTTPRoute

from identity_common.http.pagination import MAX_SEARCH_CHARACTERS
from stead.verify.acr import Level

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"

_OPT: Final = "documented"
_REVISED: Final = "changes_directory"
_OPERATIONS: Final = "operations"

Json = dict[str, Any]
P = ParamSpec("P")


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
    """A request header that a route reads; ``pattern`` is empty for any text."""

    name: str
    description: str
    example: str
    pattern: str = ""


class OwnSignIn(msgspec.Struct, frozen=True):
    """What a route needs that is about the caller: a userinfo token, neither exchanged nor with an actor.

    Attributes:
        scope: Of the token.
        max_age_s: Seconds that may have passed since the sign-in; None for any number.
        level: How strong the sign-in must be: with a second factor, for example, and recent too; None for any level.
    """

    scope: str
    max_age_s: int | None = None
    level: Level | None = None

    def __str__(self) -> str:
        strongly = " with a second factor" if self.level else ""
        recently = f" at most {self.max_age_s} seconds ago" if self.max_age_s else ""
        return f"a userinfo token of the user's own sign-in{strongly}{recently} with the scope {self.scope}"


class Documented(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that the signature of a handler does not show.

    Attributes:
        body: Type of a request body that the handler reads itself.
        body_media_type: Its media type.
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
        own_sign_in: What the caller's own sign-in must be like: it presents a userinfo token, and not one for the
            Management API. None for all other routes.
    """

    body: Any = None
    body_media_type: str = JSON
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
    own_sign_in: OwnSignIn | None = None


class SecurityScheme(msgspec.Struct, frozen=True):
    """A way to authenticate; ``definition`` is its Security Scheme Object."""

    name: str
    definition: Json


BEARER: Final = SecurityScheme(
    "bearer",
    {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access token for the Management API, obtained elsewhere.",
    },
)


class Content(msgspec.Struct, frozen=True):
    """The body of a request or a response.

    Attributes:
        kind: Its type.
        media_type: Its media type.
        example: An example, if the schema does not yield a good one.
        examples: Examples by name, instead of a single one.
        narrowed: Member → the only values that it has here.
    """

    kind: Any
    media_type: str = JSON
    example: Any = None
    examples: Mapping[str, Any] = {}
    narrowed: Mapping[str, Sequence[str]] = {}


class Answer(msgspec.Struct, frozen=True):
    """A response.

    Attributes:
        description: What it means.
        content: Its body; None without a body.
        headers: Its headers in addition to ``X-Request-Id``.
        constants: Header → the only value that it has here; in addition to ``headers``.
    """

    description: str
    content: Content | None = None
    headers: tuple[str, ...] = ()
    constants: Mapping[str, str] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: derived from a handler, declared for a raw ASGI route.

    Attributes:
        method: HTTP method.
        operation_id: ``operationId``.
        summary: One line.
        description: What the route does.
        tags: Groups of operations.
        status: Status of a success.
        request_headers: Request headers in addition to those of all routes of this kind.
        body: The request body; None without a body.
        body_required: Whether the body is required.
        answer: The response body of a success; None without a body.
        answers: All responses by status, unless they follow from the other attributes as they do under ``/api``.
        is_list: Whether the response is a page of a list.
        credentials: Ways to authenticate, one of which is used; None for a token for the Management API.
        credentials_required: Whether a request whose headers have none of them is always refused.
        is_revised: Whether writes return ``Identity-Revision``.
        more: What only ``documented`` declares.
    """

    method: str
    operation_id: str
    summary: str
    description: str
    tags: tuple[str, ...]
    status: int = 200
    request_headers: tuple[RequestHeader, ...] = ()
    body: Content | None = None
    body_required: bool = True
    answer: Content | None = None
    answers: Mapping[int, Answer] = {}
    is_list: bool = False
    credentials: tuple[SecurityScheme, ...] | None = None
    credentials_required: bool = True
    is_revised: bool = False
    more: Documented = Documented()


def operation_opt(*operations: Operation) -> Json:
    """Return ``opt`` of a raw ASGI route with these operations."""
    return {_OPERATIONS: operations}


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
    """Yield the path and the operation of each handler, and those of each raw route."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in route.route_handler_map.items():
                if handler.operation_id is not None:
                    yield route.path_format, _operation_of(handler, str(method))
        elif isinstance(route, ASGIRoute):
            for operation in route.route_handler.opt.get(_OPERATIONS, ()):
                yield route.path_format, operation


def _operation_of(handler: HTTPRouteHandler, method: str) -> Operation:
    more = more_of(handler)
    signature = handler.parsed_fn_signature
    data = signature.parameters.get("data")
    returned = signature.return_type.annotation
    body = more.body if data is None else data.annotation
    answer = more.answer or (get_args(returned)[0] if get_origin(returned) is Response else returned)
    return Operation(
        method=method,
        operation_id=str(handler.operation_id),
        summary=handler.summary or "",
        description=handler.description or inspect.cleandoc(handler.fn.__doc__ or ""),
        tags=tuple(handler.resolve_tags()),
        status=handler.status_code,
        body=None if body is None else Content(body, more.body_media_type, more.body_example),
        body_required=more.body_required,
        answer=None if answer in {None, type(None)} else Content(answer, more.media_type, more.example),
        is_list=is_list(handler),
        credentials=_credentials_of(handler),
        is_revised=bool(handler.opt.get(_REVISED)),
        more=more,
    )


def _credentials_of(handler: HTTPRouteHandler) -> tuple[SecurityScheme, ...] | None:
    if not handler.resolve_guards():
        return ()
    return (BEARER,) if more_of(handler).own_sign_in else None
