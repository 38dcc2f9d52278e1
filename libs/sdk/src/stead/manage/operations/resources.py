"""API resources and their scopes."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import create_body, patch_body
from stead.models import Resource, Scope


def create_resource(name: str, indicator: str, access_token_ttl: int | None = None) -> Operation[Resource]:
    """Register an API that tokens can be issued for.

    Args:
        name: Display name.
        indicator: An absolute URI without a fragment; becomes ``aud`` and never changes.
        access_token_ttl: Lifetime of its access tokens in seconds; None for the service's default.

    Raises:
        Conflict: ``resource.resource_identifier_in_use``; ``resource.invalid_indicator``, also for a reserved one; or
            ``entity.invalid_name``.
    """
    body = create_body(name=name, indicator=indicator, accessTokenTtl=access_token_ttl)
    return decode((yield json_request("POST", api_path("resources"), body)), Resource)


def get_resource(resource_id: str) -> Operation[Resource]:
    """Return an API resource.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("resources", resource_id))), Resource)


def list_resources(*, search: str | None = None, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Resource]:
    """Iterate over the API resources, ordered by name.

    Args:
        search: Only resources with this text in their name or indicator.
        page_size: Items per request, 1 to 100.
    """
    return ListRequest(api_path("resources"), Resource, page_size=page_size, params={"q": search})


def update_resource(
    resource_id: str,
    *,
    name: str | UnsetType = UNSET,
    access_token_ttl: int | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[Resource]:
    """Change the given members. ``access_token_ttl=None`` restores the service's default; the indicator never changes.

    Raises:
        NotFound: The id is unknown.
        InvalidInput: A member of the request is invalid, or the resource is the Management API.
        Conflict: ``entity.invalid_name``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(name=name, accessTokenTtl=access_token_ttl)
    return decode((yield json_request("PATCH", api_path("resources", resource_id), body, if_match=if_match)), Resource)


def set_default_resource(resource_id: str, *, is_default: bool) -> Operation[Resource]:
    """Make an API resource the only default, or no longer the default.

    Client credentials that name neither a resource nor an organization are for the default (RFC 9068 section 3).

    Raises:
        NotFound: The id is unknown.
    """
    path = api_path("resources", resource_id, "is-default")
    return decode((yield json_request("PATCH", path, {"isDefault": is_default})), Resource)


def delete_resource(resource_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an API resource and its scopes.

    Raises:
        NotFound: The id is unknown.
        InvalidInput: The resource is the Management API.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("resources", resource_id), if_match=if_match)


def list_resource_scopes(resource_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Scope]:
    """Iterate over the scopes of an API resource, ordered by name.

    Raises:
        NotFound: The resource does not exist.
    """
    return ListRequest(api_path("resources", resource_id, "scopes"), Scope, page_size=page_size)


def create_scope(resource_id: str, name: str, description: str | None = None) -> Operation[Scope]:
    """Add a scope to an API resource.

    Raises:
        NotFound: The resource does not exist.
        Conflict: ``scope.name_exists``; or ``scope.invalid_name``, also for a reserved one.
    """
    body = create_body(name=name, description=description)
    return decode((yield json_request("POST", api_path("resources", resource_id, "scopes"), body)), Scope)


def update_scope(
    resource_id: str, scope_id: str, *, name: str | UnsetType = UNSET, description: str | UnsetType | None = UNSET
) -> Operation[Scope]:
    """Change the given members of a scope; None clears the description.

    Tokens with the old name stay valid until they expire, unless verifiers reject stale permissions.

    Raises:
        NotFound: The resource does not exist, or has no such scope.
        Conflict: ``scope.name_exists``; or ``scope.invalid_name``, also for a reserved one.
    """
    path = api_path("resources", resource_id, "scopes", scope_id)
    return decode((yield json_request("PATCH", path, patch_body(name=name, description=description))), Scope)


def delete_scope(resource_id: str, scope_id: str) -> Operation[None]:
    """Delete a scope of an API resource.

    Raises:
        NotFound: The resource does not exist, or has no such scope.
    """
    return command("DELETE", api_path("resources", resource_id, "scopes", scope_id))
