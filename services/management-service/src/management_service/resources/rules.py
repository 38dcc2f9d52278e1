"""The rules for resources and scopes."""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Description, Name
from identity_common.scope_names import ScopeName

DEFAULT_ACCESS_TOKEN_TTL_S: Final = 3600
MANAGEMENT_API_ID: Final = "management-api"
"""An alias for the id of the Management API's resource."""

# Only the length: is_resource_indicator checks the format, with a failure of its own.
Indicator = Annotated[str, msgspec.Meta(max_length=2048)]
AccessTokenTtl = Annotated[int, msgspec.Meta(ge=1, le=86_400 * 365)]


class ResourceCreation(Body):
    """A new API resource.

    Attributes:
        name: Display name.
        indicator: Absolute URI that identifies the API: ``resource`` in requests, ``aud`` in tokens; it never changes.
        access_token_ttl: Lifetime of access tokens in seconds; 3600 by default.
    """

    name: Name
    indicator: Indicator
    access_token_ttl: AccessTokenTtl = DEFAULT_ACCESS_TOKEN_TTL_S


class ResourceUpdate(Body):
    """Changes of a resource; the indicator never changes.

    Attributes:
        name: Display name.
        access_token_ttl: Lifetime of access tokens in seconds; 3600 by default.
    """

    name: Name | UnsetType = UNSET
    access_token_ttl: AccessTokenTtl | UnsetType | None = UNSET


class ResourceDefault(Body):
    """Whether the resource is to be the default; at most one is.

    Attributes:
        is_default: Whether client credentials that name neither a resource nor an organization are for this resource;
            at most one is the default.
    """

    is_default: bool


class ScopeCreation(Body):
    """A new scope of a resource.

    Attributes:
        name: The scope token: printable ASCII without spaces; unique within the resource.
        description: Description.
    """

    name: ScopeName
    description: Description | None = None


class ScopeUpdate(Body):
    """Changes of a scope; null clears the description.

    Attributes:
        name: The scope token: printable ASCII without spaces; unique within the resource.
        description: Description.
    """

    name: ScopeName | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
