"""Connectors to OpenID providers, and the identities of users there."""

from __future__ import annotations

import msgspec

from stead.models.versions import Versioned


class ConnectorConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a provider is reached.

    Attributes:
        issuer: Its issuer, as its tokens name it.
    """

    issuer: str


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
        trusts: What the provider is trusted for.
        created_at: Milliseconds since the epoch, UTC.
    """

    id: str
    provider_name: str = "OIDC"
    connector_name: str
    config: ConnectorConfig
    match_claim: str = "sub"
    is_enabled: bool = True
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
