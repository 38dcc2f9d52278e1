"""Requests to handlers, answered without the framework: the same routes, guards, arguments, errors and entity tags.

Owns what the framework does between routing such a request and sending its response, which took a third of the time of
reading a user. A handler is declared and documented like every other; what it is decides whether it can be answered
here (``plan_of``). The framework answers all other requests, and the errors of routing.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from identity_common.http.json_body import JsonRequest, read_required
from identity_common.http.layers.conditional_get import conditional, read_condition
from identity_common.http.openapi.declarations import JSON, more_of
from identity_common.http.problems import API_EXCEPTION_HANDLERS
from identity_common.http.raw_routes import Headers, RawAnswer, raw_headers, respond

_HOST: Final = re.compile(rb"[A-Za-z0-9.:\-\[\]]*")
"""A ``Host`` that the framework accepts; it judges any other."""

READS: Final = frozenset({"GET"})
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

_BODY: Final = "data"
_encode: Final = msgspec.json.Encoder().encode
Make = Callable[[JsonRequest], object]


class Plan(NamedTuple):
    """How to answer the requests to a handler.

    Attributes:
        handler: The handler.
        guards: Its guards.
        before: What else precedes it.
        ready: Arguments that are the same for all requests.
        made: Arguments that are made from a request.
        body: Type of the body, which is one more argument; None without it.
    """

    handler: HTTPRouteHandler
    guards: Sequence[Callable[..., Any]]
    before: Callable[[JsonRequest], Awaitable[None]]
    ready: Mapping[str, object]
    made: Mapping[str, Make]
    body: Any = None


class DirectAnswers:
    """ASGI layer around an app.

    Args:
        app: Answers all other requests.
        framework: Knows the routes.
        methods: Of the requests that are answered here.
    """

    def __init__(self, app: ASGIApp, framework: Litestar, *, methods: Collection[str]) -> None:
        self._app = app
        self._methods = methods
        self._route = framework.asgi_router.handle_routing
        self._plans: dict[HTTPRouteHandler, Plan | None] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        method = str(scope.get("method"))
        plan = self._planned(scope, method) if method in self._methods else None
        if plan is None:
            return self._app(scope, receive, send)

        async def handle(scope: Scope, receive: Receive) -> RawAnswer:
            return await _answer(plan, JsonRequest(scope, receive))

        return respond(handle, scope, receive, send)

    def _planned(self, scope: Scope, method: str) -> Plan | None:
        """Route a request; return how to answer it, or None if the framework must."""
        if not all(_HOST.fullmatch(value) for name, value in scope["headers"] if name == b"host"):
            return None
        try:
            _, handler, _, parameters, template = self._route(path=scope["path"], method=method)
        except (MethodNotAllowedException, NotFoundException, KeyError):  # the last for a raw route with parameters
            return None
        if not isinstance(handler, HTTPRouteHandler):
            return None
        if handler not in self._plans:
            self._plans[handler] = plan_of(handler, parameters)
        plan = self._plans[handler]
        if plan is not None:
            scope["route_handler"], scope["path_params"], scope["path_template"] = handler, parameters, template
        return plan


async def _answer(plan: Plan, request: JsonRequest) -> RawAnswer:
    for guard in plan.guards:
        await guard(request, plan.handler)
    await plan.before(request)
    made = {name: make(request) for name, make in plan.made.items()}
    if plan.body is not None:
        made[_BODY] = await read_required(request.scope, request.receive, plan.body)
    content = await plan.handler.fn(**plan.ready, **made)
    headers: Headers = []
    status = plan.handler.status_code
    if isinstance(content, Response):
        status = content.status_code or status
        content, headers = content.content, raw_headers(content.headers)
    if request.scope["method"] != "GET":
        return RawAnswer(status, headers, msgspec.Raw(content) if isinstance(content, bytes) else content)
    body = content if isinstance(content, bytes) else _encode(content)
    status, headers = conditional(read_condition(request.scope), body, headers)
    return RawAnswer(status, headers, msgspec.Raw(body))


def plan_of(handler: HTTPRouteHandler, parameters: Collection[str]) -> Plan | None:
    """Return how to answer the requests to a handler; None if it needs more of the framework.

    It must be an operation of the API, a coroutine that returns JSON or nothing, alone or in a ``Response`` with
    headers. Its arguments must be parameters of the path, the request, its body if that is required, and dependencies
    that are ready or made from the request.
    """
    if _adds_to_responses(handler):
        return None
    signature, before = handler.parsed_fn_signature, handler.resolve_before_request()
    returned = signature.return_type
    is_plain = not returned.is_subclass_of(Response) or get_origin(returned.annotation) is Response
    renders = handler.resolve_exception_handlers()
    is_of_api = handler.operation_id is not None and API_EXCEPTION_HANDLERS.items() <= renders.items()
    if not (is_plain and is_of_api and before) or handler.has_sync_callable or more_of(handler).media_type != JSON:
        return None
    ready: dict[str, object] = {}
    made: dict[str, Make] = {}
    body: Any = None
    dependencies = handler.resolve_dependencies()
    for name, declared in signature.parameters.items():
        provide = dependencies.get(name)
        needed = () if provide is None else tuple(provide.parsed_fn_signature.parameters)
        if name in parameters:
            made[name] = functools.partial(_from_path, name)
        elif name == "request":
            made[name] = _itself
        elif name == _BODY and not declared.has_default:
            body = declared.annotation
        elif provide is None or not provide.has_sync_callable or needed not in {(), ("request",)}:
            return None
        elif needed:
            made[name] = provide.dependency
        elif provide.use_cache:
            ready[name] = provide.dependency()
        else:
            return None
    return Plan(handler, handler.resolve_guards(), before, ready, made, body)


def _adds_to_responses(handler: HTTPRouteHandler) -> bool:
    """Return whether the framework would do more to a response than to encode it."""
    declared = handler.resolve_response_headers() or handler.resolve_response_cookies() or handler.cache
    hooks = (each for layer in handler.ownership_layers for each in (layer.after_request, layer.after_response))
    is_unusual_read = "GET" in handler.http_methods and handler.status_code != 200
    return is_unusual_read or bool(declared) or any(hooks)


def _from_path(name: str, request: JsonRequest) -> object:
    return request.scope["path_params"][name]


def _itself(request: JsonRequest) -> JsonRequest:
    return request
