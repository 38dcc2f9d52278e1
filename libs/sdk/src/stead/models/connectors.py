"""Connectors to OpenID providers, and the identities of users there."""

from __future__ import annotations

import msgspec

from stead.models.versions import Versioned


class ConnectorConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a provider is reached.

    Attributes:
        issuer: Its issuer, as its tokens name it.
        client_id: Id of the client there, through which people sign in; None if no one does.
        has_client_secret: Whether the client has a secret, which no response shows.
        scope: What is asked for.
    """

    issuer: str
    client_id: str | None = None
    has_client_secret: bool = False
    scope: str = "openid profile email"


class ConnectorBranding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a connector looks on the sign-in page.

    Attributes:
        display_name: The name there; None for that of the connector.
        logo_uri: URL of a picture.
    """

    display_name: str | None = None
    logo_uri: str | None = None


class RequiredClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a claim of a provider must say about a person.

    Attributes:
        claim: Name of the claim.
        value: Its value, or one of those in it; ``true`` or a number as JSON has it.
    """

    claim: str
    value: str


class TrustedFactor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a claim of a provider says about how strongly a person has signed in.

    Attributes:
        claim: ``acr``, or ``amr``, of which one value suffices.
        value: The value.
        level: What it counts as: ``mfa``, with a second factor or a passkey; ``phr``, with a passkey.
    """

    claim: str
    value: str
    level: str


class ConnectorTrusts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a provider is trusted for.

    Attributes:
        actors: Client ids at the provider for which its ID tokens are accepted as actor tokens.
        factors: Which claims say that a person has signed in with more than a password.
    """

    actors: tuple[str, ...] = ()
    factors: tuple[TrustedFactor, ...] = ()


class Connector(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A connector to an OpenID provider.

    Attributes:
        id: Unique id.
        provider_name: The protocol: ``OIDC``.
        connector_name: Display name, unique.
        config: How the provider is reached.
        match_claim: The claim by which people are known.
        is_enabled: Whether the connector is used.
        domains: Domains of e-mail addresses whose owners sign in at the provider.
        allowed_domains: Only people with an address in these domains get a user; empty for all.
        required_claims: Only people of whom the provider says all of this sign in.
        groups_claim: The claim with the groups of a person.
        sync_profile: Whether each sign-in updates name, picture and e-mail address.
        session_max_age_s: After how many seconds the provider is asked again; None for never.
        branding: How the connector looks on the sign-in page.
        trusts: What the provider is trusted for.
        created_at: Milliseconds since the epoch, UTC.
    """

    id: str
    provider_name: str = "OIDC"
    connector_name: str
    config: ConnectorConfig
    match_claim: str = "sub"
    is_enabled: bool = True
    domains: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()
    required_claims: tuple[RequiredClaim, ...] = ()
    groups_claim: str | None = None
    sync_profile: bool = False
    session_max_age_s: int | None = None
    branding: ConnectorBranding = ConnectorBranding()
    trusts: ConnectorTrusts = ConnectorTrusts()
    created_at: int


class UserIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An identity of a user at a provider.

    Attributes:
        id: Unique id.
        connector_id: Id of the connector to the provider.
        value: Value of the connector's ``match_claim`` in the person's tokens.
        created_at: Milliseconds since the epoch, UTC.
    """

    id: str
    connector_id: str
    value: str
    created_at: int
