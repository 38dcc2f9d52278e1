"""The OpenAPI 3.1 document of a service, derived from what its routes declare, and of several services together."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import Litestar, Response, get
from litestar.connection import Request
from litestar.handlers import HTTPRouteHandler

from identity_common.http.openapi.declarations import BEARER, Json, operations
from identity_common.http.openapi.descriptions import describe_schemas
from identity_common.http.openapi.examples import Schemas
from identity_common.http.openapi.operations import OAUTH2, OperationRenderer
from identity_common.http.openapi.texts import HEADERS
from identity_common.rights.scopes import MANAGEMENT_SCOPES
from identity_common.version import VERSION

PATH: Final = "/schema"

_COMPONENTS: Final = "#/components/schemas/{name}"
_DESCRIPTION: Final = (
    "Everything under `/api` requires an access token for the Management API, of a machine-to-machine application or"
    " a user whose API roles grant a scope that the operation needs; its description"
    " names them. Names are stored composed (Unicode NFC)"
    " and with single spaces between words; a blank one, and one with an invisible character, is a 422 with the code"
    " `entity.invalid_name`. Lists by name disregard case and accents. Names and ids in the examples are"
    " made up."
)
_OAUTH2_DESCRIPTION: Final = (
    "Id and secret of a machine-to-machine application. The token request must also name the Management API as"
    " `resource`."
)
_ALWAYS_SENT: Final = frozenset({"X-Request-Id", "Identity-Revision", "ETag", "Total-Number", "Retry-After"})


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
    found = [*operations(app)]
    readable = {path for path, operation in found if operation.method == "GET"}
    rendered = [OperationRenderer(path, operation, is_readable=path in readable) for path, operation in found]
    kinds = {str(kind): kind for each in rendered for kind in each.types}
    schemas, components = msgspec.json.schema_components(kinds.values(), ref_template=_COMPONENTS)
    of_type = dict(zip(kinds, schemas, strict=True))
    describe_schemas(components, [*kinds.values()])
    paths: Json = {}
    times = Counter[str]()
    for operation in sorted(rendered, key=lambda operation: (operation.path, operation.method)):
        described = operation.describe(Schemas(of_type, components))
        times[described["operationId"]] += 1
        if times[described["operationId"]] > 1:  # a handler with several paths
            described["operationId"] += str(times[described["operationId"]])
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    security_schemes: Json = {OAUTH2: {"type": "oauth2", "description": _OAUTH2_DESCRIPTION}}
    for scheme in (BEARER, *(each for _, operation in found for each in operation.credentials or ())):
        security_schemes[scheme.name] = scheme.definition
    whole = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "description": _DESCRIPTION},
        "security": [{"bearer": []}, {OAUTH2: ["all"]}],
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
    oauth2 = {**schemes[OAUTH2], "flows": {"clientCredentials": flow}}
    return {
        **whole,
        "servers": [{"url": base_url}],
        "components": {**components, "securitySchemes": {**schemes, OAUTH2: oauth2}},
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
