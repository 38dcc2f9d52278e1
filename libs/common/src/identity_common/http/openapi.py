"""The OpenAPI 3.1 document of a service, derived from what its routes declare.

The signature of a handler declares bodies, path parameters and lists; its guards, who may call it; its method, entity
tags and revisions; ``documented``, what none of these shows. What all routes of a kind have in common is defined here,
once. Examples are built from the schemas and one table of values. A raw ASGI route has no signature: it declares an
``Operation``, or its operations are ``hand_written``.
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, ParamSpec, get_args, get_origin

import msgspec
from litestar import Litestar, Response, get
from litestar.connection import Request
from litestar.handlers import HTTPRouteHandler
from litestar.routes import ASGIRoute, HTTPRoute

from identity_common.http.api_errors import ErrorBody
from identity_common.http.openapi_descriptions import describe_schemas
from identity_common.http.openapi_texts import EXAMPLES, EXAMPLES_IN, HEADERS, MANAGEMENT_SCOPES, REFUSALS
from identity_common.http.pagination import DEFAULT_SIZE, MAX_NUMBER, MAX_SEARCH_CHARACTERS, MAX_SIZE
from identity_common.version import VERSION

PATH: Final = "/schema"

JSON: Final = "application/json"
_OPT: Final = "documented"
_REVISED: Final = "changes_directory"
_OPERATION: Final = "operation"
_HAND_WRITTEN: Final = "hand_written"
_COMPONENTS: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "An access token for the Management API, obtained elsewhere.",
}
_DESCRIPTION: Final = (
    "What is under `/api` needs an access token for the Management API: of a machine-to-machine application, or of a"
    " user, that holds the scope `all` through an API role, or `read` for GET and HEAD. Names and ids in the examples"
    " are made up."
)
_OAUTH2: Final = "oauth2"
_OAUTH2_DESCRIPTION: Final = (
    "Id and secret of a machine-to-machine application. The token request must also name the Management API as"
    " `resource`."
)
_IF_MATCH: Final = (
    "Entity tags of the GET of this path, or *: what is written must still be one of these. The tag of a list is the"
    " version of all of it if the page has all of it; a list of more than 100 has none."
)
_IF_NONE_MATCH: Final = "*: what is written must not exist yet."
_NO_NUL: Final = "^[^\\u0000]*$"

Json = dict[str, Any]
P = ParamSpec("P")

_ALWAYS_SENT: Final = frozenset({"X-Request-Id", "Identity-Revision", "ETag", "Total-Number", "Retry-After"})


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
    """What the signature of a handler does not show.

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
    return {"$ref": _COMPONENTS.format(name=kind.__name__)}


def optional_parameter(name: str, where: str, description: str, schema: Json, example: Any) -> Json:
    """Return a parameter whose example is in its schema: an example of its own would be sent by "Try it out"."""
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


def schema_route(title: str, base_url: str) -> HTTPRouteHandler:
    """Return the route that serves the app's document."""
    cached: list[bytes] = []

    @get([PATH, f"{PATH}/openapi.json"], include_in_schema=False, sync_to_thread=False)
    def schema(request: Request[Any, Any, Any]) -> Response[bytes]:
        """Return the OpenAPI document; it is built by the first request."""
        if not cached:
            cached.append(msgspec.json.encode(document(request.app, title=title, base_url=base_url)))
        return Response(cached[0], media_type="application/json")

    return schema


def document(app: Litestar, *, title: str, base_url: str) -> Json:
    """Return the OpenAPI 3.1 document of an app at this address."""
    found = [*_operations(app)]
    readable = {path for path, operation in found if operation.method == "GET"}
    operations = [_Renderer(path, operation, is_readable=path in readable) for path, operation in found]
    by_hand = dict(_hand_written(app))
    types: list[Any] = [ErrorBody]
    for of_operation in (*(each.types for each in operations), *(each.types for each in by_hand.values())):
        types += of_operation
    schemas, components = msgspec.json.schema_components(types, ref_template=_COMPONENTS)
    of_type = dict(zip(map(str, types), schemas, strict=True))
    describe_schemas(components, types)
    paths: Json = {}
    times = Counter[str]()
    for operation in sorted(operations, key=lambda operation: (operation.path, operation.method)):
        described = operation.describe(_Schemas(of_type, components))
        times[described["operationId"]] += 1
        if times[described["operationId"]] > 1:  # a handler with several paths
            described["operationId"] += str(times[described["operationId"]])
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    security_schemes: Json = {"bearer": _BEARER, _OAUTH2: {"type": "oauth2", "description": _OAUTH2_DESCRIPTION}}
    for path, one in by_hand.items():
        paths.setdefault(path, {}).update({method.lower(): each for method, each in one.operations.items()})
        security_schemes.update(one.security_schemes)
    whole = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "description": _DESCRIPTION},
        "security": [{"bearer": []}, {_OAUTH2: ["all"]}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "headers": {
                name: {**header, **({"required": True} if name in _ALWAYS_SENT else {})}
                for name, header in HEADERS.items()
            },
            "schemas": dict(sorted(components.items())),
            "securitySchemes": dict(sorted(security_schemes.items())),
        },
    }
    return at_address(whole, base_url)


def at_address(whole: Json, base_url: str) -> Json:
    """Return a document with the addresses of a deployment: ``servers`` and the token endpoint."""
    flow = {"tokenUrl": f"{base_url}/oidc/token", "scopes": dict(MANAGEMENT_SCOPES)}
    components = whole["components"]
    schemes = components["securitySchemes"]
    oauth2 = {**schemes[_OAUTH2], "flows": {"clientCredentials": flow}}
    return {
        **whole,
        "servers": [{"url": base_url}],
        "components": {**components, "securitySchemes": {**schemes, _OAUTH2: oauth2}},
    }


def merged(documents: Sequence[Json], *, title: str) -> Json:
    """Return one document with the paths, schemas and security schemes of several.

    Raises:
        ValueError: Two documents use one name or path for different things.
    """
    whole: Json = {**documents[0], "info": {**documents[0]["info"], "title": title}, "paths": {}}
    components: Json = {**documents[0]["components"], "schemas": {}, "securitySchemes": {}}
    for part in documents:
        merges = [(whole["paths"], part["paths"])]
        merges += [(components[kind], part["components"].get(kind, {})) for kind in ("schemas", "securitySchemes")]
        for target, source in merges:
            for name, value in source.items():
                if target.setdefault(name, value) != value:
                    raise ValueError(f"{name} means different things in different services")
    ids = [operation["operationId"] for path in whole["paths"].values() for operation in path.values()]
    if len(ids) != len(set(ids)):
        raise ValueError("an operationId is used twice")
    whole["paths"] = dict(sorted(whole["paths"].items()))
    for kind in ("schemas", "securitySchemes"):
        components[kind] = dict(sorted(components[kind].items()))
    return {**whole, "components": components}


def more_of(handler: HTTPRouteHandler) -> Documented:
    """Return what a handler declares by ``documented``."""
    more: Documented = handler.opt.get(_OPT, Documented())
    return more


def is_list(handler: HTTPRouteHandler) -> bool:
    """Return whether a handler answers a list with pages and a search."""
    return "listing" in handler.parsed_fn_signature.parameters


def _operations(app: Litestar) -> Iterator[tuple[str, Operation]]:
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


def _hand_written(app: Litestar) -> Iterator[tuple[str, HandWritten]]:
    for route in app.routes:
        if isinstance(route, ASGIRoute) and _HAND_WRITTEN in route.route_handler.opt:
            yield route.path_format, route.route_handler.opt[_HAND_WRITTEN]


class _Schemas:
    """The schemas of all types, and examples of them."""

    def __init__(self, of_type: Json, components: Json) -> None:
        self._of_type = of_type
        self._components = components

    def content(self, kind: Any, media_type: str = JSON) -> Json:
        """Return the ``content`` of a body of this type, with an example."""
        if kind is str:
            return {media_type: {"schema": {"type": "string"}}}
        schema = {"type": "object"} if kind is bytes else self._of_type[str(kind)]
        return {"application/json": {"schema": schema, "example": self.example(schema) or EXAMPLES["customData"]}}

    def example(self, schema: Json, name: str = "", of: str = "") -> Any:
        """Return a value that the schema allows, a realistic one for a member of this name of this struct."""
        if "$ref" in schema:
            struct = schema["$ref"].rpartition("/")[2]
            return self.example(self._components[struct], name, name if struct.startswith("Named") else struct)
        known = _known_examples(of)
        if name in known and schema.get("type") != "object":
            return known[name]
        if "enum" in schema:
            return schema["enum"][0]
        if name in EXAMPLES and "properties" not in schema:
            return EXAMPLES[name]
        if "anyOf" in schema:
            return self.example(next(option for option in schema["anyOf"] if option.get("type") != "null"), name, of)
        return self._plain_example(schema, name, of)

    def _plain_example(self, schema: Json, name: str, of: str) -> Any:
        kind = schema.get("type")
        if kind == "object":
            members = schema.get("properties", {})
            return {member: self.example(members[member], member, of) for member in members}
        if kind == "array":
            item = schema.get("items") or {}
            return [self.example(item, name.removesuffix("s") if name.endswith("Ids") else name, of)]
        return {"integer": 1, "boolean": False, "string": "text"}.get(str(kind), {})


def _known_examples(of: str) -> Mapping[str, Any]:
    """Return the examples of the members of a struct that have other ones than their namesakes elsewhere."""
    beginnings = [beginning for beginning in EXAMPLES_IN if of.startswith(beginning)]
    return EXAMPLES_IN[max(beginnings, key=len)] if beginnings else {}


class _Renderer:
    """Renders the operation of one path.

    Args:
        path: The path.
        operation: The operation.
        is_readable: Whether the path has a GET.
    """

    def __init__(self, path: str, operation: Operation, *, is_readable: bool) -> None:
        self.path = path
        self._is_versioned = is_readable and operation.is_revised and operation.method in {"PUT", "PATCH", "DELETE"}
        self.method = operation.method
        self._operation = operation
        self._more = operation.more

    @property
    def types(self) -> list[Any]:
        """The types that need a schema."""
        return [kind for kind in (self._operation.body, self._operation.answer) if kind not in {None, bytes, str}]

    def describe(self, schemas: _Schemas) -> Json:
        """Return the Operation Object."""
        described: Json = {
            "operationId": self._operation.operation_id,
            "summary": self._operation.summary,
            "description": self._operation.description,
            "tags": list(self._operation.tags),
            "parameters": list(self._parameters()),
            "responses": {str(status): value for status, value in sorted(self._responses(schemas).items())},
        }
        if self._operation.body is not None:
            described["requestBody"] = {
                "required": self._more.body_required,
                "content": schemas.content(self._operation.body),
            }
            if self._more.body_example is not None:
                described["requestBody"]["content"]["application/json"]["example"] = self._more.body_example
        if not self._operation.is_guarded:
            described["security"] = []
        elif self._more.takes_userinfo_token:
            described["security"] = [{"bearer": []}]
        return {name: value for name, value in described.items() if value or name == "security"}

    def _parameters(self) -> Iterator[Json]:
        for name in _PARAMETER.findall(self.path):
            example = EXAMPLES[re.sub(r"_(\w)", lambda match: match[1].upper(), name)]
            schema = {"type": "string", "minLength": 1, "pattern": "^[^\\u0000/]+$"}
            noun, _, kind = name.rpartition("_")
            yield {
                "name": name,
                "in": "path",
                "description": f"{kind.capitalize()} of the {noun.replace('_', ' ')}.",
                "required": True,
                "schema": schema,
                "example": example,
            }
        if self._operation.is_list:
            bounds = (("page", MAX_NUMBER, "Number of the page, from 1."), ("page_size", MAX_SIZE, "Items per page."))
            for name, maximum, description in bounds:
                schema = {"type": "integer", "minimum": 1, "maximum": maximum}
                if name == "page_size":
                    schema["default"] = DEFAULT_SIZE
                yield _query(name, schema, description)
            text = {"type": "string", "maxLength": MAX_SEARCH_CHARACTERS, "pattern": _NO_NUL}
            yield _query("q", text, "Return only items whose name or description contains this text, ignoring case.")
            yield _query("search", text, "Same as q; a leading or trailing % is ignored.")
        for each in self._more.filters:
            yield _query(each.name, _filter_schema(each), each.description)
        for flag in self._more.flags:
            schema = {"type": "boolean", "default": False}
            yield optional_parameter(flag.name, "query", flag.description, schema, True)
        for header in self._more.request_headers:
            yield optional_parameter(header.name, "header", header.description, {"type": "string"}, header.example)
        yield from self._conditions()

    def _conditions(self) -> Iterator[Json]:
        example = HEADERS["ETag"]["example"]
        if self._is_conditional:
            description = "Entity tags that the client already has, or *."
            yield optional_parameter("If-None-Match", "header", description, {"type": "string"}, example)
        if self._is_versioned:
            yield optional_parameter("If-Match", "header", _IF_MATCH, {"type": "string"}, example)
            if self._more.may_create:
                schema = {"type": "string", "enum": ["*"]}
                yield optional_parameter("If-None-Match", "header", _IF_NONE_MATCH, schema, "*")

    def _responses(self, schemas: _Schemas) -> dict[int, Json]:
        status = self._operation.status
        success: Json = {"description": HTTPStatus(status).phrase, "headers": _headers(*self._success_headers())}
        if self._operation.answer is not None:
            success["content"] = schemas.content(self._operation.answer, self._more.media_type)
            if self._more.example is not None:
                success["content"][self._more.media_type]["example"] = self._more.example
        responses = {status: success}
        if self._more.may_create:
            responses[201] = {**success, "description": HTTPStatus(201).phrase}
        if self._is_conditional:
            responses[304] = {
                "description": "Not modified: the client already has this response.",
                "headers": _headers(*self._cached_headers()),
            }
        for refusal in self._refusals():
            responses[refusal] = _refusal(refusal, schemas)
        return responses

    def _cached_headers(self) -> tuple[str, ...]:
        return ("ETag", "Cache-Control") if self.path.startswith("/api/") else ("ETag",)

    @property
    def _is_conditional(self) -> bool:
        return self.method == "GET" and self._operation.answer is not None and self._more.media_type == JSON

    def _success_headers(self) -> Iterator[str]:
        if self._is_conditional:
            yield from self._cached_headers()
        if self._operation.is_list:
            yield from ("Total-Number", "Link")
        if self._operation.is_revised and self.method != "GET":
            yield "Identity-Revision"
        yield from self._more.headers

    def _refusals(self) -> Iterator[int]:
        """Yield the error statuses that follow from what the operation takes."""
        found = {500, *self._more.refuses}
        if self._operation.is_guarded:
            found |= {400, 401, 403, 503}
        if "{" in self.path:
            found.add(404)
        if self._is_versioned:
            found |= {400, 412}
        if self._operation.body is not None:
            found |= {400, 413, 415, 422}
        return (status for status in sorted(found) if status not in self._more.never)


def _filter_schema(declared: Filter) -> Json:
    value: Json = {"type": "string"}
    if declared.bounds is not None:
        minimum, maximum = declared.bounds
        return {"type": "integer", "minimum": minimum, "maximum": maximum}
    if declared.values:
        value["enum"] = list(declared.values)
    else:
        value |= {"minLength": 1, "maxLength": declared.max_length, "pattern": _NO_NUL}
    return {"type": "array", "items": value, "maxItems": MAX_VALUES} if declared.is_repeatable else value


def _query(name: str, schema: Json, description: str) -> Json:
    return optional_parameter(name, "query", description, schema, _query_example(name, schema))


def _query_example(name: str, schema: Json) -> Any:
    if schema["type"] == "array":
        return [_query_example(name, schema["items"])]
    # ``search.username`` and ``excludeUserId`` have the examples of ``username`` and ``userId``.
    member = re.sub(r"^exclude(\w)", lambda match: match[1].lower(), name).rpartition(".")[2]
    return schema["enum"][0] if "enum" in schema else EXAMPLES[member]


def _refusal(status: int, schemas: _Schemas) -> Json:
    code, message, description = REFUSALS[status]
    names = {401: ("WWW-Authenticate",), 403: ("WWW-Authenticate",), 503: ("Retry-After",)}.get(status, ())
    example: Json = {"code": code, "message": message}
    if status == 400:
        example["data"] = {"issues": [{"path": "name", "message": "Expected `str`, got `int`"}]}
    content = schemas.content(ErrorBody)
    content["application/json"]["example"] = example
    return {"description": description, "headers": _headers(*names), "content": content}


def _headers(*names: str) -> Json:
    return header("X-Request-Id", *names)
