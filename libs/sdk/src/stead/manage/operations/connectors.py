"""Connectors to OpenID providers, and the identities of users there.

The nested members are objects in the words of the API, so that this version passes on those of newer services.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import create_body, patch_body
from stead.models import Connector, UserIdentity

T = TypeVar("T")


def create_connector(
    connector_name: str,
    config: Mapping[str, Any],
    *,
    provider_name: Literal["OIDC"] = "OIDC",
    match_claim: str | None = None,
    is_enabled: bool | None = None,
    domains: Iterable[str] = (),
    allowed_domains: Iterable[str] = (),
    required_claims: Iterable[Mapping[str, str]] = (),
    groups_claim: str | None = None,
    sync_profile: bool | None = None,
    session_max_age_s: int | None = None,
    branding: Mapping[str, Any] | None = None,
    trusts: Mapping[str, Any] | None = None,
) -> Operation[Connector]:
    """Create a connector to an OpenID provider, whose metadata and keys the service reads first.

    ::

        config = {"issuer": "https://example.okta.com", "clientId": "0oa5e6f7g8", "clientSecret": "s3cr3t"}
        client.connectors.create("Okta", config, domains=["example.com"], trusts={"actors": ["0oa1b2c3d4"]})

    Args:
        connector_name: Display name, unique.
        config: How the provider is reached: ``issuer``; for people to sign in there also ``clientId``, and
            ``clientSecret`` unless the client is public; ``scope``, ``openid profile email`` by default.
        provider_name: The protocol.
        match_claim: The claim by which people are known, ``sub`` by default; none that people can change.
        is_enabled: Whether the connector is used; true by default.
        domains: Domains of e-mail addresses, each of one connector, whose owners sign in at the provider.
        allowed_domains: Only people with an address in these domains, verified at the provider, get a user.
        required_claims: Only people of whom the provider says all of this sign in: ``claim`` and ``value``.
        groups_claim: The claim with the groups of a person.
        sync_profile: Whether each sign-in updates name, picture and e-mail address; false by default.
        session_max_age_s: After how many seconds the provider is asked again, 60 to 2,592,000; None for never.
        branding: How the connector looks on the sign-in page: ``displayName``, ``logoUri``.
        trusts: ``actors``, client ids at the provider whose ID tokens are accepted as actor tokens; ``factors``, which
            claims say that a person has signed in with more than a password. Nothing by default.

    Raises:
        InvalidInput: A member is not acceptable, such as an issuer that is not an https URL.
        Conflict: ``connector.name_in_use``, ``connector.issuer_in_use``, ``connector.domain_in_use``,
            ``entity.invalid_name``; ``connector.provider_unusable``, whose message says why; or
            ``user.last_administrator``.
    """
    body = create_body(
        providerName=provider_name,
        connectorName=connector_name,
        config=config,
        matchClaim=match_claim,
        isEnabled=is_enabled,
        domains=list(domains) or None,
        allowedDomains=list(allowed_domains) or None,
        requiredClaims=list(required_claims) or None,
        groupsClaim=groups_claim,
        syncProfile=sync_profile,
        sessionMaxAgeS=session_max_age_s,
        branding=branding,
        trusts=trusts,
    )
    return decode((yield json_request("POST", api_path("sso-connectors"), body)), Connector)


def get_connector(connector_id: str) -> Operation[Connector]:
    """Return a connector.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("sso-connectors", connector_id))), Connector)


def list_connectors(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Connector]:
    """Iterate over the connectors, ordered by name."""
    return ListRequest(api_path("sso-connectors"), Connector, page_size=page_size)


def update_connector(
    connector_id: str,
    *,
    connector_name: str | UnsetType = UNSET,
    config: Mapping[str, Any] | UnsetType = UNSET,
    match_claim: str | UnsetType = UNSET,
    is_enabled: bool | UnsetType = UNSET,
    domains: Iterable[str] | UnsetType = UNSET,
    allowed_domains: Iterable[str] | UnsetType = UNSET,
    required_claims: Iterable[Mapping[str, str]] | UnsetType = UNSET,
    groups_claim: str | UnsetType | None = UNSET,
    sync_profile: bool | UnsetType = UNSET,
    session_max_age_s: int | UnsetType | None = UNSET,
    branding: Mapping[str, Any] | UnsetType | None = UNSET,
    trusts: Mapping[str, Any] | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[Connector]:
    """Change the given members; None restores a default, also within ``config``, ``branding`` and ``trusts``.

    ::

        client.connectors.update(connector.id, is_enabled=False)

    Disabling a connector ends the sessions and refresh tokens that came through it. The issuer and the claim cannot
    change once users have identities, and another issuer needs the secret again.

    Raises:
        NotFound: The id is unknown.
        InvalidInput: As for ``create``.
        Conflict: As for ``create``; ``connector.has_identities``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        connectorName=connector_name,
        config=config,
        matchClaim=match_claim,
        isEnabled=is_enabled,
        domains=_listed(domains),
        allowedDomains=_listed(allowed_domains),
        requiredClaims=_listed(required_claims),
        groupsClaim=groups_claim,
        syncProfile=sync_profile,
        sessionMaxAgeS=session_max_age_s,
        branding=branding,
        trusts=trusts,
    )
    path = api_path("sso-connectors", connector_id)
    return decode((yield json_request("PATCH", path, body, if_match=if_match)), Connector)


def delete_connector(connector_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete a connector with the identities that users have by it; sessions and refresh tokens through it end.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``user.last_administrator``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("sso-connectors", connector_id), if_match=if_match)


def check_connector(connector_id: str) -> Operation[None]:
    """Have the service read the metadata and keys of the provider now.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``connector.provider_unusable``, whose message says why.
    """
    return command("POST", api_path("sso-connectors", connector_id, "test"))


def add_user_identity(user_id: str, connector_id: str, value: str) -> Operation[UserIdentity]:
    """Let a user be known by an identity at the provider of a connector.

    Args:
        user_id: The user.
        connector_id: The connector.
        value: Value of the connector's ``match_claim`` in the person's tokens, compared exactly.

    Raises:
        NotFound: The user does not exist.
        Conflict: The connector does not exist; ``identity.in_use``: a user has this identity already; or
            ``user.last_administrator``.
        Forbidden: The user holds permissions of the Management API that this client does not.
    """
    body = create_body(connectorId=connector_id, value=value)
    return decode((yield json_request("POST", api_path("users", user_id, "identities"), body)), UserIdentity)


def list_user_identities(user_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[UserIdentity]:
    """Iterate over the identities of a user at providers, in the order of their creation.

    Raises:
        NotFound: The user does not exist.
    """
    return ListRequest(api_path("users", user_id, "identities"), UserIdentity, page_size=page_size)


def remove_user_identity(user_id: str, identity_id: str) -> Operation[None]:
    """Let a user no longer be known by an identity; the user's sessions through the connector end, with their tokens.

    Raises:
        NotFound: The user does not exist, or has no such identity.
        Conflict: ``user.last_administrator``.
        Forbidden: The user holds permissions of the Management API that this client does not.
    """
    return command("DELETE", api_path("users", user_id, "identities", identity_id))


def _listed(values: Iterable[T] | UnsetType) -> list[T] | UnsetType:
    return UNSET if isinstance(values, UnsetType) else list(values)
