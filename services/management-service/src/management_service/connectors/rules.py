"""The request bodies, and the rules for connectors and identities. Pure."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Name
from identity_common.outgoing import url_problem
from identity_common.wire.events import DemandedLevel

MAX_ISSUER: Final = 1024
MAX_VALUE: Final = 255
"""OpenID Connect Core 1.0 section 2: the longest ``sub``."""

_CLAIM_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
# What its owner, or a directory's administrator, can give to another person.
_CHANGEABLE: Final = frozenset(
    {"email", "preferred_username", "upn", "unique_name", "name", "nickname", "given_name", "family_name"}
    | {"phone_number", "verified_primary_email", "verified_secondary_email", "picture", "profile", "website"}
)
# What says something about the token instead of its subject.
_OF_TOKENS: Final = frozenset(
    {"iss", "aud", "exp", "iat", "nbf", "jti", "nonce", "azp", "acr", "amr", "auth_time", "at_hash", "c_hash", "sid"}
)

ProviderName = Literal["OIDC"]
Issuer = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ISSUER)]
ClaimName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
ClaimValue = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_VALUE)]
ClientIds = Annotated[tuple[ClaimValue, ...], msgspec.Meta(max_length=100)]


class TrustedFactor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a claim of the provider says about how strongly a person has signed in.

    Attributes:
        claim: ``acr``, or ``amr``, of which one value suffices.
        value: The value.
        level: What it counts as: ``mfa``, with a second factor or a passkey; ``phr``, with a passkey.
    """

    claim: Literal["acr", "amr"]
    value: ClaimValue
    level: DemandedLevel


TrustedFactors = Annotated[tuple[TrustedFactor, ...], msgspec.Meta(max_length=20)]


class ConnectorConfig(Body):
    """How the provider is reached.

    Attributes:
        issuer: Its issuer, exactly as its tokens name it: an https URL.
    """

    issuer: Issuer


class ConnectorTrusts(Body):
    """What the provider is trusted for; an absent member keeps its value, null is the default.

    Attributes:
        actors: Client ids at the provider: ID tokens that it issued for them are accepted as actor tokens. None by
            default, so that no ID token is.
        factors: Which claims say that a person has signed in with more than a password; none by default.
    """

    actors: ClientIds | UnsetType | None = UNSET
    factors: TrustedFactors | UnsetType | None = UNSET


class ConnectorCreation(Body):
    """A new connector.

    Attributes:
        provider_name: The protocol: ``OIDC``, OpenID Connect.
        connector_name: Display name, unique.
        config: How the provider is reached.
        match_claim: The claim by which people are known; ``sub`` by default. Entra's ``sub`` differs from client to
            client: ``oid`` there. It cannot be one that people can change, such as ``email``.
        is_enabled: Whether the connector is used; true by default.
        trusts: What the provider is trusted for; nothing by default.
    """

    provider_name: ProviderName
    connector_name: Name
    config: ConnectorConfig
    match_claim: ClaimName = "sub"
    is_enabled: bool = True
    trusts: ConnectorTrusts | None = None


class ConnectorUpdate(Body):
    """Changes of a connector; an absent member keeps its value.

    Attributes:
        connector_name: Display name, unique.
        config: How the provider is reached. The issuer cannot change once users have identities.
        match_claim: The claim by which people are known. It cannot change once users have identities.
        is_enabled: Whether the connector is used.
        trusts: What the provider is trusted for.
    """

    connector_name: Name | UnsetType = UNSET
    config: ConnectorConfig | UnsetType = UNSET
    match_claim: ClaimName | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET
    trusts: ConnectorTrusts | UnsetType | None = UNSET


class IdentityCreation(Body):
    """A new identity of a user.

    Attributes:
        connector_id: Id of the connector.
        value: Value of the connector's ``matchClaim`` in the person's tokens, compared exactly.
    """

    connector_id: ClaimValue
    value: ClaimValue


def problems(*, issuer: str | None, match_claim: str | None) -> Iterator[tuple[str, str]]:
    """Yield the path of each unacceptable member, and what is wrong with it.

    Source:
        OpenID Connect Discovery 1.0 section 3 (an issuer has neither query nor fragment).
    """
    if issuer is not None and (url_problem(issuer) or "?" in issuer or any(each.isspace() for each in issuer)):
        yield "config.issuer", "must be an https URL without query, fragment and user information"
    if match_claim is None:
        return
    if not _CLAIM_NAME.fullmatch(match_claim):
        yield "matchClaim", "must be the name of a claim"
    elif match_claim in _CHANGEABLE:
        yield "matchClaim", "must be a claim that never belongs to another person"
    elif match_claim in _OF_TOKENS:
        yield "matchClaim", "must be a claim that identifies a person"
