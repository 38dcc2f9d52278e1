"""The access that an authorization request asks for, by name. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from identity_common.oauth import OIDC_SCOPES, SCOPE_ACCOUNT
from token_service.authorizations import Consented
from token_service.tokens.scopes import organizations_scope, person_scopes


def organizations_resource(urn_namespace: str) -> str:
    """Return the reserved resource that SDKs append; it implies the organizations scope and is never a target."""
    return f"urn:{urn_namespace}:resource:organizations"


def requested_access(
    scopes: frozenset[str],
    resources: Iterable[str],
    *,
    urn_namespace: str,
    is_third_party: bool,
    existing_scopes: Mapping[str, frozenset[str]],
    existing_permissions: frozenset[str],
) -> Consented:
    """Return the requested access that exists, whether or not the user holds it; unknown names are dropped.

    Args:
        scopes: Of the request.
        resources: Of the request, the reserved one included.
        urn_namespace: The setting: ``service``.
        is_third_party: Whether the application is: then the user's account does not exist for it.
        existing_scopes: The names among ``scopes`` that each requested resource has.
        existing_permissions: The names among ``scopes`` that are organization permissions.
    """
    people = scopes & (OIDC_SCOPES | person_scopes(urn_namespace))
    if is_third_party:
        people -= {SCOPE_ACCOUNT}
    if organizations_resource(urn_namespace) in resources:
        people |= {organizations_scope(urn_namespace)}
    return Consented(
        scopes=people,
        resource_scopes={resource: existing_scopes[resource] for resource in resources if resource in existing_scopes},
        organization_permissions=existing_permissions if organizations_scope(urn_namespace) in people else frozenset(),
    )


def without_organizations(wanted: Consented, *, urn_namespace: str) -> Consented:
    """Return what is requested besides organizations: their scopes and permissions are left out."""
    people = wanted.scopes - person_scopes(urn_namespace)
    return msgspec.structs.replace(wanted, scopes=people, organization_permissions=frozenset())
