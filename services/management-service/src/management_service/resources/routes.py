"""``/api/resources``."""

from typing import Any

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, JSONBody

from identity_common.access.parents import parent_exists
from identity_common.fields import Answer
from identity_common.http.listing import WHOLE, Listing
from identity_common.http.openapi.declarations import documented
from management_service.resources.rules import (
    MANAGEMENT_API_ID,
    ResourceCreation,
    ResourceDefault,
    ResourceUpdate,
    ScopeCreation,
    ScopeUpdate,
)
from management_service.resources.service import Resources
from management_service.resources.store import Resource, Scope


class ResourceAnswer(Answer):
    """An API resource.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the resource.
        name: Display name.
        indicator: Absolute URI that identifies the API: ``resource`` in requests, ``aud`` in tokens; it never changes.
        access_token_ttl: Lifetime of access tokens in seconds; 3600 by default.
        is_default: Whether client credentials that name neither a resource nor an organization are for this resource;
            at most one is the default.
    """

    tenant_id: str
    id: str
    name: str
    indicator: str
    access_token_ttl: int
    is_default: bool


class ScopeAnswer(Answer):
    """A scope of an API resource.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the scope.
        resource_id: Id of the API resource.
        name: The scope token: printable ASCII without spaces; unique within the resource.
        description: Description.
        created_at: Time of creation, milliseconds since the epoch.
    """

    tenant_id: str
    id: str
    resource_id: str
    name: str
    description: str | None
    created_at: int


def resource_answer(resource: Resource) -> ResourceAnswer:
    """Return a resource as the API shows it."""
    return ResourceAnswer(
        tenant_id=resource.tenant_id,
        id=resource.id,
        name=resource.name,
        indicator=resource.indicator,
        access_token_ttl=resource.access_token_ttl_s,
        is_default=resource.is_default,
    )


def scope_answer(scope: Scope) -> ScopeAnswer:
    """Return a scope as the API shows it."""
    return msgspec.convert(scope, ScopeAnswer, from_attributes=True)


async def _by_fixed_id(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard: ``management-api`` in the path stands for the id of the Management API's resource."""
    if connection.path_params.get("resource_id") == MANAGEMENT_API_ID:
        resources: Resources = connection.app.state.resources
        # A new dict: Litestar keeps the old one for the next request with this path.
        connection.scope["path_params"] = connection.path_params | {"resource_id": await resources.management_api_id()}


class ResourceController(Controller):
    """API resources."""

    path = "/resources"
    tags = ("Resources",)
    dependencies = WHOLE
    guards = (_by_fixed_id,)

    @post("/", operation_id="CreateResource", summary="Create an API resource")
    async def create_resource(
        self, data: JSONBody[ResourceCreation], resources: NamedDependency[Resources]
    ) -> ResourceAnswer:
        """Create an API resource, without scopes."""
        return resource_answer(await resources.create(data))

    @get("/", operation_id="ListResources", summary="List API resources")
    async def list_resources(
        self, listing: NamedDependency[Listing], resources: NamedDependency[Resources]
    ) -> Response[list[ResourceAnswer]]:
        """List API resources by name."""
        found, total = await resources.list_resources(listing.page)
        return listing.answer([resource_answer(resource) for resource in found], total)

    @get("/{resource_id:str}", operation_id="GetResource", summary="Get an API resource")
    async def get_resource(self, resource_id: FromPath[str], resources: NamedDependency[Resources]) -> ResourceAnswer:
        """Get one API resource."""
        return resource_answer(await resources.get(resource_id))

    @patch(
        "/{resource_id:str}",
        operation_id="UpdateResource",
        summary="Update an API resource",
        opt=documented(never=(422,)),
    )
    async def update_resource(
        self, resource_id: FromPath[str], data: JSONBody[ResourceUpdate], resources: NamedDependency[Resources]
    ) -> ResourceAnswer:
        """Change the given fields; the indicator never changes."""
        return resource_answer(await resources.update(resource_id, data))

    @patch(
        "/{resource_id:str}/is-default",
        operation_id="UpdateResourceIsDefault",
        summary="Make an API resource the default",
        opt=documented(never=(422,)),
        guards=[parent_exists("resource")],
    )
    async def set_default(
        self, resource_id: FromPath[str], data: JSONBody[ResourceDefault], resources: NamedDependency[Resources]
    ) -> ResourceAnswer:
        """Make an API resource the only default, or no longer the default."""
        return resource_answer(await resources.set_default(resource_id, is_default=data.is_default))

    @delete("/{resource_id:str}", operation_id="DeleteResource", summary="Delete an API resource", status_code=204)
    async def delete_resource(self, resource_id: FromPath[str], resources: NamedDependency[Resources]) -> None:
        """Delete an API resource with its scopes."""
        await resources.delete(resource_id)


class ResourceScopeController(Controller):
    """Scopes of an API resource."""

    path = "/resources/{resource_id:str}/scopes"
    tags = ("Resources",)
    dependencies = WHOLE
    guards = (_by_fixed_id, parent_exists("resource"))

    @post("/", operation_id="CreateResourceScope", summary="Create a scope")
    async def create_scope(
        self, resource_id: FromPath[str], data: JSONBody[ScopeCreation], resources: NamedDependency[Resources]
    ) -> ScopeAnswer:
        """Create a scope of an API resource: an API permission."""
        return scope_answer(await resources.create_scope(resource_id, data))

    @get("/", operation_id="ListResourceScopes", summary="List scopes")
    async def list_scopes(
        self, resource_id: FromPath[str], listing: NamedDependency[Listing], resources: NamedDependency[Resources]
    ) -> Response[list[ScopeAnswer]]:
        """List the scopes of an API resource by name."""
        found, total = await resources.list_scopes(resource_id, listing.page)
        return listing.answer([scope_answer(scope) for scope in found], total)

    @patch("/{scope_id:str}", operation_id="UpdateResourceScope", summary="Update a scope")
    async def update_scope(
        self,
        resource_id: FromPath[str],
        scope_id: FromPath[str],
        data: JSONBody[ScopeUpdate],
        resources: NamedDependency[Resources],
    ) -> ScopeAnswer:
        """Change the given fields; null clears the description."""
        return scope_answer(await resources.update_scope(resource_id, scope_id, data))

    @delete("/{scope_id:str}", operation_id="DeleteResourceScope", summary="Delete a scope", status_code=204)
    async def delete_scope(
        self, resource_id: FromPath[str], scope_id: FromPath[str], resources: NamedDependency[Resources]
    ) -> None:
        """Delete a scope; roles no longer grant it."""
        await resources.delete_scope(resource_id, scope_id)
