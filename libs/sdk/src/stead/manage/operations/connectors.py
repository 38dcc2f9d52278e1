"""Connectors to OpenID providers, and the identities of users there.

The nested members are objects in the words of the API, so that this version passes on those of newer services.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import create_body, patch_body
from stead.models import Connector, UserIdentity


def create_connector(
    connector_name: str,
    config: Mapping[str, Any],
    *,
    provider_name: Literal["OIDC"] = "OIDC",
    match_claim: str | None = None,
    is_enabled: bool | None = None,
    trusts: Mapping[str, Any] | None = None,
) -> Operation[Connector]:
    """Create a connector to an OpenID provider, whose metadata and keys the service reads first.

    ::

        client.connectors.create("Okta", {"issuer": "https://example.okta.com"}, trusts={"actors": ["0oa1b2c3d4"]})

    Args:
        connector_name: Display name, unique.
        config: How the provider is reached: ``issuer``.
        provider_name: The protocol.
        match_claim: The claim by which people are known, ``sub`` by default; none that people can change.
        is_enabled: Whether the connector is used; true by default.
        trusts: ``actors``, client ids at the provider whose ID tokens are accepted as actor tokens; ``factors``, which
            claims say that a person has signed in with more than a password. Nothing by default.

    Raises:
        InvalidInput: The issuer is not an https URL, or the claim is not acceptable.
        Conflict: ``connector.name_in_use``, ``connector.issuer_in_use``, ``entity.invalid_name``; or
            ``connector.provider_unusable``, whose message says why.
    """
    body = create_body(
        providerName=provider_name,
        connectorName=connector_name,
        config=config,
        matchClaim=match_claim,
        isEnabled=is_enabled,
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
    trusts: Mapping[str, Any] | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[Connector]:
    """Change the given members; None restores the default of ``trusts``.

    ::

        client.connectors.update(connector.id, is_enabled=False)

    The issuer and the claim cannot change once users have identities.

    Raises:
        NotFound: The id is unknown.
        InvalidInput: The issuer is not an https URL, or the claim is not acceptable.
        Conflict: As for ``create``; or ``connector.has_identities``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        connectorName=connector_name, config=config, matchClaim=match_claim, isEnabled=is_enabled, trusts=trusts
    )
    path = api_path("sso-connectors", connector_id)
    return decode((yield json_request("PATCH", path, body, if_match=if_match)), Connector)


def delete_connector(connector_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete a connector with the identities that users have by it.

    Raises:
        NotFound: The id is unknown.
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
        Conflict: The connector does not exist; or ``identity.in_use``: a user has this identity already.
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
    """Let a user no longer be known by an identity.

    Raises:
        NotFound: The user does not exist, or has no such identity.
        Forbidden: The user holds permissions of the Management API that this client does not.
    """
    return command("DELETE", api_path("users", user_id, "identities", identity_id))
