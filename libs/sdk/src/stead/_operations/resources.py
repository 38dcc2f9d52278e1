"""API resources and their scopes."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stead._http import Operation, api_path, command, decode, json_request
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._bodies import create_body, patch_body
from stead.models import Resource, Scope


def create_resource(name: str, indicator: str, access_token_ttl: int | None = None) -> Operation[Resource]:
    """Register an API.

    Args:
        name: For people.
        indicator: An absolute URI without a fragment; becomes ``aud`` and never changes.
        access_token_ttl: Lifetime of its access tokens in seconds; the service's default if not given.

    Raises:
        Conflict: ``resource.resource_identifier_in_use``, or an indicator that is reserved.
    """
    body = create_body(name=name, indicator=indicator, accessTokenTtl=access_token_ttl)
    return decode((yield json_request("POST", api_path("resources"), body)), Resource)


def get_resource(resource_id: str) -> Operation[Resource]:
    """Return an API resource.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("resources", resource_id))), Resource)


def list_resources(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Resource]:
    """Go through all API resources, by name."""
    return ListRequest(api_path("resources"), Resource, page_size=page_size)


def update_resource(
    resource_id: str, *, name: str | UnsetType = UNSET, access_token_ttl: int | UnsetType | None = UNSET
) -> Operation[Resource]:
    """Change what is given and keep the rest; None restores the service's default. The indicator never changes.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form, or it is the Management API.
    """
    body = patch_body(name=name, accessTokenTtl=access_token_ttl)
    return decode((yield json_request("PATCH", api_path("resources", resource_id), body)), Resource)


def delete_resource(resource_id: str) -> Operation[None]:
    """Delete an API resource with its scopes.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: It is the Management API.
    """
    return command("DELETE", api_path("resources", resource_id))


def list_resource_scopes(resource_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Scope]:
    """Go through the scopes of an API resource, by name.

    Raises:
        NotFound: There is no such resource.
    """
    return ListRequest(api_path("resources", resource_id, "scopes"), Scope, page_size=page_size)


def create_scope(resource_id: str, name: str, description: str | None = None) -> Operation[Scope]:
    """Add a scope to an API resource.

    Raises:
        NotFound: There is no such resource.
        Conflict: ``scope.name_exists``, or a name that is reserved.
    """
    body = create_body(name=name, description=description)
    return decode((yield json_request("POST", api_path("resources", resource_id, "scopes"), body)), Scope)


def delete_scope(resource_id: str, scope_id: str) -> Operation[None]:
    """Delete a scope of an API resource.

    Raises:
        NotFound: There is no such resource, or it has no such scope.
    """
    return command("DELETE", api_path("resources", resource_id, "scopes", scope_id))
