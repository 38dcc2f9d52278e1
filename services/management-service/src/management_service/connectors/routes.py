"""``/api/sso-connectors``, and ``/api/users/{userId}/identities``."""

from typing import Final

from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.management_api import admitted_caller
from identity_common.access.own_sign_in import ACCOUNT, ACCOUNT_SIGN_IN, own_id, recent_if_own
from identity_common.access.parents import parent_exists
from identity_common.fields import Answer
from identity_common.http.json_body import JsonRequest
from identity_common.http.listing import WHOLE, Listing
from identity_common.http.openapi.declarations import PUBLISHES_NOTHING, documented
from management_service.connectors.rules import (
    ConnectorCreation,
    ConnectorUpdate,
    IdentityCreation,
    ProviderName,
    RequiredClaim,
    TrustedFactor,
)
from management_service.connectors.service import Connectors, OwnIdentity
from management_service.connectors.store import Connector, Identity

_NEW_CONNECTOR: Final = {
    "providerName": "OIDC",
    "connectorName": "Okta",
    "config": {"issuer": "https://example.okta.com", "clientId": "0oa5e6f7g8", "clientSecret": "s3cr3t"},
    "domains": ["example.com"],
    "trusts": {"actors": ["0oa1b2c3d4"], "factors": [{"claim": "amr", "value": "mfa", "level": "mfa"}]},
}


class ConnectorConfigAnswer(Answer):
    """How the provider is reached.

    Attributes:
        issuer: Its issuer.
        client_id: Id of the client there, through which people sign in; null if no one does.
        has_client_secret: Whether the client has a secret, which no response shows.
        scope: What is asked for.
    """

    issuer: str
    client_id: str | None
    has_client_secret: bool
    scope: str


class ConnectorBrandingAnswer(Answer):
    """How the connector looks on the sign-in page.

    Attributes:
        display_name: The name there; null for that of the connector.
        logo_uri: URL of a picture.
    """

    display_name: str | None
    logo_uri: str | None


class TrustsAnswer(Answer):
    """What the provider is trusted for.

    Attributes:
        actors: Client ids at the provider for which its ID tokens are accepted as actor tokens.
        factors: Which claims say that a person has signed in with more than a password.
    """

    actors: tuple[str, ...]
    factors: tuple[TrustedFactor, ...]


class ConnectorAnswer(Answer):
    """A connector to an OpenID provider.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the connector.
        provider_name: The protocol: ``OIDC``.
        connector_name: Display name.
        config: How the provider is reached.
        match_claim: The claim by which people are known.
        is_enabled: Whether the connector is used.
        domains: Domains of e-mail addresses whose owners sign in at the provider.
        allowed_domains: Only people with an address in these domains get a user; empty for all.
        required_claims: Only people of whom the provider says all of this sign in, and act.
        groups_claim: The claim with the groups of a person.
        sync_profile: Whether each sign-in updates name, picture and e-mail address.
        session_max_age_s: After how many seconds the provider is asked again; null for never.
        branding: How the connector looks on the sign-in page.
        trusts: What the provider is trusted for.
        created_at: Time of creation, milliseconds since the epoch.
    """

    tenant_id: str
    id: str
    provider_name: ProviderName
    connector_name: str
    config: ConnectorConfigAnswer
    match_claim: str
    is_enabled: bool
    domains: tuple[str, ...]
    allowed_domains: tuple[str, ...]
    required_claims: tuple[RequiredClaim, ...]
    groups_claim: str | None
    sync_profile: bool
    session_max_age_s: int | None
    branding: ConnectorBrandingAnswer
    trusts: TrustsAnswer
    created_at: int


class IdentityAnswer(Answer):
    """An identity of a user at a provider.

    Attributes:
        id: Id of the identity.
        connector_id: Id of the connector to the provider.
        value: Value of the connector's ``matchClaim`` in the person's tokens.
        groups: The groups of the person at the last sign-in with it.
        created_at: Time of creation, milliseconds since the epoch.
        last_used_at: Time of the last sign-in with it, milliseconds since the epoch; null if there was none.
    """

    id: str
    connector_id: str
    value: str
    groups: list[str]
    created_at: int
    last_used_at: int | None


class OwnIdentityAnswer(Answer):
    """An identity of the person at a provider.

    Attributes:
        id: Id of the identity.
        provider_name: Name of the provider.
        created_at: Time of creation, milliseconds since the epoch.
        last_used_at: Time of the last sign-in with it, milliseconds since the epoch; null if there was none.
    """

    id: str
    provider_name: str
    created_at: int
    last_used_at: int | None


def _connector(connector: Connector) -> ConnectorAnswer:
    return ConnectorAnswer(
        tenant_id=connector.tenant_id,
        id=connector.id,
        provider_name="OIDC",
        connector_name=connector.name,
        config=ConnectorConfigAnswer(
            issuer=connector.issuer,
            client_id=connector.client_id,
            has_client_secret=connector.sealed_secret is not None,
            scope=connector.scope,
        ),
        match_claim=connector.match_claim,
        is_enabled=connector.is_enabled,
        domains=connector.domains,
        allowed_domains=connector.allowed_domains,
        required_claims=connector.required_claims,
        groups_claim=connector.groups_claim,
        sync_profile=connector.sync_profile,
        session_max_age_s=connector.session_max_age_s,
        branding=ConnectorBrandingAnswer(display_name=connector.display_name, logo_uri=connector.logo_uri),
        trusts=TrustsAnswer(actors=connector.actor_clients, factors=connector.trusted_factors),
        created_at=connector.created_at,
    )


def _identity(identity: Identity) -> IdentityAnswer:
    return IdentityAnswer(
        id=identity.id,
        connector_id=identity.connector_id,
        value=identity.value,
        groups=list(identity.groups),
        created_at=identity.created_at,
        last_used_at=identity.signed_in_at,
    )


def _own_identity(own: OwnIdentity) -> OwnIdentityAnswer:
    identity = own.identity
    return OwnIdentityAnswer(
        id=identity.id,
        provider_name=own.provider,
        created_at=identity.created_at,
        last_used_at=identity.signed_in_at,
    )


class ConnectorController(Controller):
    """Connectors to OpenID providers."""

    path = "/sso-connectors"
    tags = ("Connectors",)
    dependencies = WHOLE

    @post(
        "/", operation_id="CreateConnector", summary="Create a connector", opt=documented(body_example=_NEW_CONNECTOR)
    )
    async def create_connector(
        self, data: JSONBody[ConnectorCreation], connectors: NamedDependency[Connectors]
    ) -> ConnectorAnswer:
        """Create a connector to an OpenID provider, whose metadata and keys are read first.

        Passwords are closed to the owners of addresses in its domains, and to users with an identity there. As for
        every change of connectors and identities, one administrator has to remain whose password is not closed, or who
        has signed in at a provider.
        """
        return _connector(await connectors.create(data))

    @get("/", operation_id="ListConnectors", summary="List connectors")
    async def list_connectors(
        self, listing: NamedDependency[Listing], connectors: NamedDependency[Connectors]
    ) -> Response[list[ConnectorAnswer]]:
        """List connectors by name."""
        found, total = await connectors.list_connectors(listing.page)
        return listing.answer([_connector(each) for each in found], total)

    @get("/{connector_id:str}", operation_id="GetConnector", summary="Get a connector")
    async def get_connector(
        self, connector_id: FromPath[str], connectors: NamedDependency[Connectors]
    ) -> ConnectorAnswer:
        """Get one connector."""
        return _connector(await connectors.get(connector_id))

    @patch("/{connector_id:str}", operation_id="UpdateConnector", summary="Update a connector")
    async def update_connector(
        self, connector_id: FromPath[str], data: JSONBody[ConnectorUpdate], connectors: NamedDependency[Connectors]
    ) -> ConnectorAnswer:
        """Change the given members. The issuer and the claim cannot change once users have identities.

        Another client, another actor or an opened connector needs the scopes that its users hold; another domain those
        of the users who have an address there; trust for more factors needs ``config``. Administrators who sign in here
        count as such again once they have signed in since it was opened, or got another client or required claim.
        """
        return _connector(await connectors.update(connector_id, data))

    @delete(
        "/{connector_id:str}",
        operation_id="DeleteConnector",
        summary="Delete a connector",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def delete_connector(self, connector_id: FromPath[str], connectors: NamedDependency[Connectors]) -> None:
        """Delete a connector with the identities that users have by it. This needs the scopes that they hold.

        One administrator has to remain who can sign in.
        """
        await connectors.delete(connector_id)

    @post(
        "/{connector_id:str}/test",
        operation_id="TestConnector",
        summary="Test a connector",
        status_code=204,
        opt=documented(refuses=(422,)) | PUBLISHES_NOTHING,
    )
    async def test_connector(self, connector_id: FromPath[str], connectors: NamedDependency[Connectors]) -> None:
        """Read the provider's metadata and keys now; 422 says what is wrong with them."""
        await connectors.test(connector_id)


class IdentityController(Controller):
    """The identities of a user at providers."""

    path = "/users/{user_id:str}/identities"
    tags = ("Users",)
    dependencies = WHOLE
    guards = (parent_exists("user"),)

    @post("/", operation_id="CreateUserIdentity", summary="Add an identity to a user", guards=[recent_if_own])
    async def create_identity(
        self, user_id: FromPath[str], data: JSONBody[IdentityCreation], connectors: NamedDependency[Connectors]
    ) -> IdentityAnswer:
        """Let a user be known by an identity at a connector's provider.

        This closes the user's password, unless ``allowsPassword`` is set; that of the last administrator stays. Users
        who add one of their own must have signed in at most 600 seconds ago.
        """
        return _identity(await connectors.add_identity(user_id, data))

    @get("/", operation_id="ListUserIdentities", summary="List the identities of a user")
    async def list_identities(
        self, user_id: FromPath[str], listing: NamedDependency[Listing], connectors: NamedDependency[Connectors]
    ) -> Response[list[IdentityAnswer]]:
        """List the identities of a user in the order of their creation."""
        found, total = await connectors.list_identities(user_id, listing.page)
        return listing.answer([_identity(each) for each in found], total)

    @delete(
        "/{identity_id:str}",
        operation_id="DeleteUserIdentity",
        summary="Remove an identity from a user",
        status_code=204,
        guards=[recent_if_own],
        opt=documented(refuses=(422,)),
    )
    async def delete_identity(
        self, user_id: FromPath[str], identity_id: FromPath[str], connectors: NamedDependency[Connectors]
    ) -> None:
        """Let a user no longer be known by an identity.

        The user's sessions through the connector end, with their tokens. One administrator has to remain who can sign
        in. Users who remove one of their own must have signed in at most 600 seconds ago.
        """
        await connectors.remove_identity(user_id, identity_id)


class OwnIdentityController(Controller):
    """The identities at providers of the person who is signed in."""

    path = "/my-account/identities"
    tags = ("My account",)
    dependencies = WHOLE

    @get(
        "/",
        operation_id="ListOwnIdentities",
        summary="List the person's own identities",
        opt=documented(own_sign_in=ACCOUNT),
    )
    async def list_identities(
        self, request: JsonRequest, listing: NamedDependency[Listing], connectors: NamedDependency[Connectors]
    ) -> Response[list[OwnIdentityAnswer]]:
        """List the providers at which the person can sign in, in the order in which they were linked."""
        found, total = await connectors.list_own_identities(own_id(request), listing.page)
        return listing.answer([_own_identity(each) for each in found], total)

    @delete(
        "/{identity_id:str}",
        operation_id="DeleteOwnIdentity",
        summary="Remove one of the person's own identities",
        status_code=204,
        opt=documented(own_sign_in=ACCOUNT_SIGN_IN, refuses=(422,)),
    )
    async def delete_identity(
        self, identity_id: FromPath[str], request: JsonRequest, connectors: NamedDependency[Connectors]
    ) -> None:
        """Let the person no longer sign in at a provider. The only way to sign in is refused.

        So is the last provider, unless an administrator allows the person a password: who leaves a company would
        otherwise keep the account.

        The person's sessions through the connector end, with their tokens. The person is told by mail.
        """
        await connectors.remove_own_identity(admitted_caller(request), identity_id)
