"""API resources, their scopes, and the roles that grant them."""

from __future__ import annotations

import msgspec

from stead.models.versions import Versioned


class Resource(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An API that tokens are issued for.

    Attributes:
        indicator: The ``aud`` of its access tokens; never changes.
        access_token_ttl: Lifetime of its access tokens, in seconds.
        is_default: Whether client credentials that name neither a resource nor an organization are for it.
    """

    id: str
    name: str
    indicator: str
    tenant_id: str = ""
    access_token_ttl: int = 3600
    is_default: bool = False


class Scope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of an API resource.

    Attributes:
        name: The scope token.
        resource_id: Id of its resource.
    """

    id: str
    name: str
    tenant_id: str = ""
    resource_id: str = ""
    description: str | None = None
    created_at: int | None = None


class Role(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An API role: a set of scopes that is assigned to users or to machine-to-machine applications.

    Attributes:
        type: ``User`` or ``MachineToMachine``: the kind of holders.
        is_default: Whether it is assigned to every new user.
    """

    id: str
    name: str
    type: str = "User"
    tenant_id: str = ""
    description: str | None = None
    is_default: bool = False


class ResourceReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An API resource, by id and name."""

    id: str
    name: str


class ResourceScope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A scope of an API resource that an organization role grants.

    Attributes:
        name: The scope token.
        resource: Its resource.
    """

    id: str
    name: str
    resource: ResourceReference
    tenant_id: str = ""
