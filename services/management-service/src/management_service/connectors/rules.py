"""The request bodies, and the rules for connectors and identities. Pure."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.email_domains import Domains
from identity_common.fields import Body, Name
from identity_common.outgoing import url_problem
from identity_common.pages.looks import is_logo_uri
from identity_common.wire.events import DemandedLevel
from management_service.users.rules import Address

MAX_ISSUER: Final = 1024
MAX_VALUE: Final = 255
"""OpenID Connect Core 1.0 section 2: the longest ``sub``."""

MIN_SESSION_S: Final = 60
MAX_SESSION_S: Final = 30 * 24 * 3600
DEFAULT_SCOPE: Final = "openid profile email"

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")  # RFC 6749 section 3.3
_CLAIM_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
# What its owner, or a directory's administrator, can give to another person; in lower case.
_CHANGEABLE: Final = frozenset(
    {"email", "email_verified", "mail", "preferred_username", "username", "user_name", "login", "upn", "unique_name"}
    | {"name", "nickname", "given_name", "middle_name", "family_name", "gender", "birthdate", "address", "zoneinfo"}
    | {"phone_number", "phone_number_verified", "verified_primary_email", "verified_secondary_email", "locale"}
    | {"picture", "profile", "website", "updated_at"}
)
# What says something about the token instead of its subject.
_OF_TOKENS: Final = frozenset(
    {"iss", "aud", "exp", "iat", "nbf", "jti", "nonce", "azp", "acr", "amr", "auth_time", "at_hash", "c_hash", "sid"}
    | {"typ", "ver", "events", "scope", "scp", "client_id"}
)
_OF_MANY: Final = frozenset({"tid", "hd", "groups", "roles"})

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


class RequiredClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a claim of the provider must say about a person.

    Attributes:
        claim: Name of the claim.
        value: Its value, or one of those in it; ``true`` or a number as JSON has it.
    """

    claim: ClaimName
    value: ClaimValue


RequiredClaims = Annotated[tuple[RequiredClaim, ...], msgspec.Meta(max_length=20)]
ClientSecret = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Scope = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
SessionMaxAge = Annotated[int, msgspec.Meta(ge=MIN_SESSION_S, le=MAX_SESSION_S)]


class ConnectorConfig(Body):
    """How the provider is reached.

    Attributes:
        issuer: Its issuer, exactly as its tokens name it: an https URL.
        client_id: Id of the client there, through which people sign in; without one no one does.
        client_secret: Its secret, which no response shows; none for a public client.
        scope: What is asked for: ``openid profile email`` by default.
    """

    issuer: Issuer
    client_id: ClaimValue | None = None
    client_secret: ClientSecret | None = None
    scope: Scope | None = None

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"ConnectorConfig(issuer={self.issuer!r})"


class ConnectorConfigUpdate(Body):
    """Changes of how the provider is reached; an absent member keeps its value, null is the default.

    Attributes:
        issuer: Its issuer. It cannot change once users have identities, and a new one needs the secret again.
        client_id: Id of the client there; null ends signing in.
        client_secret: Its secret.
        scope: What is asked for.
    """

    issuer: Issuer | UnsetType = UNSET
    client_id: ClaimValue | UnsetType | None = UNSET
    client_secret: ClientSecret | UnsetType | None = UNSET
    scope: Scope | UnsetType | None = UNSET

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"ConnectorConfigUpdate(issuer={self.issuer!r})"


class ConnectorBranding(Body):
    """How the connector looks on the sign-in page; an absent member keeps its value, null is the default.

    Attributes:
        display_name: The name there; that of the connector by default.
        logo_uri: https URL of a picture; none by default.
    """

    display_name: Name | UnsetType | None = UNSET
    logo_uri: Address | UnsetType | None = UNSET


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
        domains: Domains of e-mail addresses, each of one connector: their owners sign in at the provider, which speaks
            for these addresses alone. None by default.
        allowed_domains: Only people with an address in these domains, verified at the provider, get a user; all by
            default. Judged at the first sign-in of each.
        required_claims: Only people of whom the provider says all of this sign in, and act; all by default. Judged at
            every sign-in, and of each actor token.
        groups_claim: The claim with the groups of a person; none by default.
        sync_profile: Whether each sign-in updates name, picture and e-mail address, or only the first one sets them;
            false by default.
        session_max_age_s: After how many seconds the provider is asked again, 60 to 2,592,000; null for never.
        branding: How the connector looks on the sign-in page.
        trusts: What the provider is trusted for; nothing by default.
    """

    provider_name: ProviderName
    connector_name: Name
    config: ConnectorConfig
    match_claim: ClaimName = "sub"
    is_enabled: bool = True
    domains: Domains = ()
    allowed_domains: Domains = ()
    required_claims: RequiredClaims = ()
    groups_claim: ClaimName | None = None
    sync_profile: bool = False
    session_max_age_s: SessionMaxAge | None = None
    branding: ConnectorBranding | None = None
    trusts: ConnectorTrusts | None = None


class ConnectorUpdate(Body):
    """Changes of a connector; an absent member keeps its value, null is the default.

    Attributes:
        connector_name: Display name, unique.
        config: How the provider is reached.
        match_claim: The claim by which people are known. It cannot change once users have identities.
        is_enabled: Whether the connector is used; false ends every sign-in through it.
        domains: Domains of e-mail addresses whose owners sign in at the provider.
        allowed_domains: Only people with an address in these domains get a user.
        required_claims: Only people of whom the provider says all of this sign in, and act.
        groups_claim: The claim with the groups of a person.
        sync_profile: Whether each sign-in updates name, picture and e-mail address.
        session_max_age_s: After how many seconds the provider is asked again.
        branding: How the connector looks on the sign-in page.
        trusts: What the provider is trusted for.
    """

    connector_name: Name | UnsetType = UNSET
    config: ConnectorConfigUpdate | UnsetType = UNSET
    match_claim: ClaimName | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET
    domains: Domains | UnsetType | None = UNSET
    allowed_domains: Domains | UnsetType | None = UNSET
    required_claims: RequiredClaims | UnsetType | None = UNSET
    groups_claim: ClaimName | UnsetType | None = UNSET
    sync_profile: bool | UnsetType = UNSET
    session_max_age_s: SessionMaxAge | UnsetType | None = UNSET
    branding: ConnectorBranding | UnsetType | None = UNSET
    trusts: ConnectorTrusts | UnsetType | None = UNSET


class IdentityCreation(Body):
    """A new identity of a user.

    Attributes:
        connector_id: Id of the connector.
        value: Value of the connector's ``matchClaim`` in the person's tokens, compared exactly.
    """

    connector_id: ClaimValue
    value: ClaimValue


def problems(body: ConnectorCreation | ConnectorUpdate) -> Iterator[tuple[str, str]]:
    """Yield the path of each unacceptable member, and what is wrong with it.

    Source:
        OpenID Connect Discovery 1.0 section 3 (an issuer has neither query nor fragment).
    """
    if isinstance(body.config, ConnectorConfig | ConnectorConfigUpdate):
        yield from _config_problems(body.config)
    if isinstance(body.match_claim, str):
        yield from _claim_problems("matchClaim", body.match_claim)
        if body.match_claim.lower() in _CHANGEABLE | _OF_MANY:
            yield "matchClaim", "must be a claim that never belongs to another person"
    if isinstance(body.groups_claim, str):
        yield from _claim_problems("groupsClaim", body.groups_claim)
    uri = body.branding.logo_uri if isinstance(body.branding, ConnectorBranding) else None
    if isinstance(uri, str) and not is_logo_uri(uri):
        yield "branding.logoUri", "must be an https URL with a domain name"


def _config_problems(config: ConnectorConfig | ConnectorConfigUpdate) -> Iterator[tuple[str, str]]:
    issuer, scope = config.issuer, config.scope
    if isinstance(issuer, str) and (url_problem(issuer) or "?" in issuer or any(each.isspace() for each in issuer)):
        yield "config.issuer", "must be an https URL without query, fragment and user information"
    if isinstance(config.client_id, str) and not config.client_id.isprintable():
        yield "config.clientId", "must not contain control characters"
    if isinstance(scope, str) and not (_SCOPE.fullmatch(scope) and "openid" in scope.split(" ")):
        yield "config.scope", "must be scopes with single spaces between them, among them openid"


def _claim_problems(path: str, claim: str) -> Iterator[tuple[str, str]]:
    if not _CLAIM_NAME.fullmatch(claim):
        yield path, "must be the name of a claim"
    elif claim.lower() in _OF_TOKENS:
        yield path, "must be a claim about a person"


def says(claims: dict[str, Any], required: RequiredClaim) -> bool:
    """Return whether a provider says about a person what is required."""
    found = claims.get(required.claim)
    return any(_as_text(each) == required.value for each in (found if isinstance(found, list) else [found]))


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None
