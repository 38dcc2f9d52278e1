"""The app of a service: everything besides its own routes."""

import gc
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import ASGIRouteHandler
from litestar.types import ASGIApp, ControllerRouterHandler, ExceptionHandlersMap, Receive, Scope, Send
from prometheus_client import CollectorRegistry

from identity_common.http import health
from identity_common.http.direct_answers import READS, WRITES, DirectAnswers
from identity_common.http.health import Readiness
from identity_common.http.if_match import Versions
from identity_common.http.json_body import JsonRequest
from identity_common.http.layers.caching import with_cache_control
from identity_common.http.layers.conditional_get import ConditionalGet
from identity_common.http.layers.head import Head
from identity_common.http.layers.options import Options
from identity_common.http.layers.routed_path import RoutedPath
from identity_common.http.layers.written_revisions import WrittenRevisions
from identity_common.http.openapi.document import schema_route
from identity_common.http.problems import API_EXCEPTION_HANDLERS
from identity_common.http.query_parameters import refuse_undeclared_parameters
from identity_common.http.routing import Service
from identity_common.telemetry.metrics import HttpMetrics, Samples, measure_version, metrics
from identity_common.telemetry.observation import Observation
from identity_common.telemetry.tracing import tracing

_PARAMETER: Final = re.compile(r"\{(\w+):str\}")
_ALLOCATIONS_BETWEEN_COLLECTIONS: Final = 10_000

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


class AppRouter(Router):
    """A router of one app only: Litestar would copy it with all its routes when the app registers it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self


def provided(value: object) -> Provide:
    """Return a dependency that is a ready-made object."""

    def provide() -> object:
        return value

    return Provide(provide, use_cache=True, sync_to_thread=False)


def create_service_app(
    *,
    service: Service,
    title: str,
    base_url: str,
    route_handlers: Sequence[ControllerRouterHandler],
    provide: Mapping[str, object],
    readiness: Readiness,
    registry: CollectorRegistry,
    samples: Samples,
    lifespan: Lifespan,
    cors: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    exception_handlers: "ExceptionHandlersMap | None" = None,
) -> Litestar:
    """Return the app with health, metrics, request ids, strict bodies, one error body and OpenAPI at ``/schema``.

    Args:
        service: The service.
        title: Title of the OpenAPI document.
        base_url: The public address of the tenant.
        route_handlers: The service's own routes.
        provide: Objects by name: dependencies of handlers, and attributes of ``connection.app.state`` for guards.
        readiness: Returns whether the service has started.
        registry: Registry of the service's metrics.
        samples: Those of its metrics whose values are fetched when the metrics are read.
        lifespan: Starts and stops the service's background work and stores.
        cors: Adds the CORS layer.
        exception_handlers: Replace those of the API, for addresses that lead nowhere too.
    """
    measure_version(registry, service=service)
    everything = {**provide, "readiness": readiness, "metrics_registry": registry, "metrics_samples": samples}
    app = Litestar(
        route_handlers=[*route_handlers, health.live, health.ready, metrics, schema_route(title, base_url)],
        dependencies={name: provided(value) for name, value in everything.items()},
        state=State(everything, deep_copy=False),
        exception_handlers={**API_EXCEPTION_HANDLERS, **(exception_handlers or {})},
        before_request=refuse_undeclared_parameters,
        lifespan=[*tracing().lifespan, lifespan, _startup_objects_frozen],
        request_class=JsonRequest,
        openapi_config=None,  # openapi/document.py builds the document
        logging_config=None,  # asgi.py and __main__.py configure logs, once per process
        debug=False,
    )
    # Layers around the app instead of middleware, which the router's own 404 and 405 would bypass.
    tagged = ConditionalGet(app.asgi_handler)
    app.state.versions = Versions(app, DirectAnswers(tagged, app, methods=READS))
    written = WrittenRevisions(DirectAnswers(Options(tagged), app, methods=WRITES))
    routed = DirectAnswers(written, app, methods=READS)
    everywhere = tracing().around_requests(cors(Head(_past_the_router(routed, route_handlers), app)))
    app.asgi_handler = RoutedPath(Observation(everywhere, HttpMetrics(registry)))
    return app


def _past_the_router(app: ASGIApp, route_handlers: Sequence[ControllerRouterHandler]) -> ASGIApp:
    """Return the app with its raw ASGI routes dispatched before the router: saves a tenth of a token request's time.

    Such a route is a hot path and renders every response itself; guards and exception handlers do not apply to it.
    """
    raw: dict[str, ASGIApp] = {}
    parametrised: list[tuple[re.Pattern[str], str, ASGIApp]] = []
    handlers = [handler for handler in route_handlers if isinstance(handler, ASGIRouteHandler)]
    for handler in handlers:
        for path in handler.paths:
            if "{" in path:
                pattern = re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", path))
                parametrised.append((pattern, _PARAMETER.sub(r"{\1}", path), handler.fn))
            else:
                raw[path] = handler.fn

    def routed(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        send = with_cache_control(scope, send)
        path = scope["path"]
        route = raw.get(path)
        if route is not None:
            scope["path_template"] = path
            return route(scope, receive, send)
        for pattern, template, route in parametrised:
            if match := pattern.fullmatch(path):
                scope["path_template"] = template
                scope["path_params"] = match.groupdict()
                return route(scope, receive, send)
        return app(scope, receive, send)

    return routed


@asynccontextmanager
async def _startup_objects_frozen(_: Litestar) -> AsyncGenerator[None, None]:
    """Exclude the objects created at startup from garbage collection, and collect less often.

    These hundreds of thousands of objects live as long as the process; each full collection paused a busy service for
    50 ms. Requests leave few cyclic objects behind; with the default threshold, every second or third request would
    trigger a collection.
    """
    gc.collect()
    gc.freeze()
    gc.enable()  # unless it has been on all the time
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)
    yield
