"""The rules for applications: redirect URIs, origins and secrets."""

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Description, FreeForm, Name
from identity_common.names import canonical_name
from identity_common.pages.looks import color_problem, is_logo_uri
from identity_common.uris import is_usable_uri
from identity_common.wire.events import ApplicationType, DemandedLevel, SecretMethod

MAX_SECRETS: Final = 100

_URI_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()+,;=%]+")  # RFC 3986, without the wildcard *
_HOST: Final = re.compile(r"[a-z0-9._:-]+")  # a name or an address, without characters that are special in a header
_PRIVATE_USE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+-]*(?:\.[A-Za-z0-9+-]+)+")

_REDIRECT_URIS: Final = {
    "redirect_uris": "oidcClientMetadata.redirectUris",
    "post_logout_redirect_uris": "oidcClientMetadata.postLogoutRedirectUris",
}
_ORIGINS: Final = {"cors_allowed_origins": "customClientMetadata.corsAllowedOrigins"}

Uri = Annotated[str, msgspec.Meta(max_length=2048)]
TtlSeconds = Annotated[int, msgspec.Meta(ge=1, le=86_400 * 365)]
TtlDays = Annotated[int, msgspec.Meta(ge=1, le=365)]
Color = Annotated[str, msgspec.Meta(max_length=7)]
SecretName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]

Stored = Mapping[str, Collection[str]]
"""The URIs and origins that an application has, by the name of the list; empty for a new one."""


class OidcClientMetadata(Body):
    """Redirect URIs; an absent member keeps its value, or is empty in a new application.

    Machine-to-machine applications have none.

    Attributes:
        redirect_uris: Allowed redirect URIs of a sign-in; compared exactly. They are https, or for Native applications
            also http on loopback or of a scheme with a dot.
        post_logout_redirect_uris: Allowed redirect URIs of a sign-out; compared exactly.
    """

    redirect_uris: list[Uri] | UnsetType | None = UNSET
    post_logout_redirect_uris: list[Uri] | UnsetType | None = UNSET


class CustomClientMetadata(Body):
    """Settings of the client. An absent member keeps its value; null, or absence in a new application, is the default.

    Attributes:
        allow_token_exchange: Whether the application may exchange subject tokens (RFC 8693); false by default.
        allow_management_api: Whether the application may request tokens for the Management API on behalf of its users;
            false by default. Needs the scope ``all`` to be changed. Not for machine-to-machine applications, whose
            roles decide.
        cors_allowed_origins: Additional origins whose scripts may call the token endpoint.
        id_token_ttl: Lifetime of ID tokens in seconds; 3600 by default. Machine-to-machine applications have neither ID
            tokens nor refresh tokens: they cannot change this, nor the settings of refresh tokens.
        refresh_token_ttl_in_days: Days after which an unused refresh token expires; 14 by default.
        rotate_refresh_token: Whether each use of a refresh token replaces it; true by default, and always for public
            clients.
        always_issue_refresh_token: Whether refresh tokens are issued even without ``offline_access``; false by default.
        token_endpoint_auth_method: How a Traditional application sends its secret; ``client_secret_basic`` by
            default, not applicable to other types.
        require_pkce: Whether authorization requests need PKCE (RFC 7636); true by default, false only for first-party
            Traditional applications.
        minimum_acr: How strongly the application's users must have signed in: ``mfa``, with a second factor or a
            passkey; ``phr``, with a passkey; null, by default, for what the policy of signing in demands. Not for
            machine-to-machine applications.
    """

    allow_token_exchange: bool | UnsetType | None = UNSET
    allow_management_api: bool | UnsetType | None = UNSET
    cors_allowed_origins: list[Uri] | UnsetType | None = UNSET
    id_token_ttl: TtlSeconds | UnsetType | None = UNSET
    refresh_token_ttl_in_days: TtlDays | UnsetType | None = UNSET
    rotate_refresh_token: bool | UnsetType | None = UNSET
    always_issue_refresh_token: bool | UnsetType | None = UNSET
    token_endpoint_auth_method: SecretMethod | UnsetType | None = UNSET
    require_pkce: bool | UnsetType | None = UNSET
    minimum_acr: DemandedLevel | UnsetType | None = UNSET


class Branding(Body):
    """The look of the application's sign-in pages; an absent member is kept, null removes it.

    Machine-to-machine applications have none.

    Attributes:
        logo_uri: URL of an image, on https.
        primary_color: Colour of the buttons, ``#rrggbb``.
    """

    logo_uri: Uri | UnsetType | None = UNSET
    primary_color: Color | UnsetType | None = UNSET


class ApplicationCreation(Body):
    """A new application, without a secret.

    Attributes:
        name: Display name.
        type: Kind of client, which decides how it authenticates and what it may do; it never changes.
        description: Description.
        oidc_client_metadata: Redirect URIs.
        custom_client_metadata: Settings of the client.
        is_third_party: Whether the application belongs to a third party: users are asked for consent, and it may not
            exchange tokens.
        custom_data: Free-form object for the integrator.
        branding: Logo and colour of the sign-in pages.
    """

    name: Name
    type: ApplicationType
    description: Description | None = None
    oidc_client_metadata: OidcClientMetadata | None = None
    custom_client_metadata: CustomClientMetadata | None = None
    is_third_party: bool | None = None
    branding: Branding | None = None
    custom_data: FreeForm | None = None


class ApplicationUpdate(Body):
    """Changes of an application; the type never changes.

    Attributes:
        name: Display name.
        description: Description.
        oidc_client_metadata: Redirect URIs.
        custom_client_metadata: Settings of the client.
        is_third_party: Whether the application belongs to a third party: users are asked for consent, and it may not
            exchange tokens.
        custom_data: Free-form object for the integrator.
        branding: Logo and colour of the sign-in pages.
    """

    name: Name | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    oidc_client_metadata: OidcClientMetadata | UnsetType | None = UNSET
    custom_client_metadata: CustomClientMetadata | UnsetType | None = UNSET
    is_third_party: bool | UnsetType | None = UNSET
    branding: Branding | UnsetType | None = UNSET
    custom_data: FreeForm | UnsetType | None = UNSET


class SecretCreation(Body):
    """A new secret of an application.

    Attributes:
        name: Name of the secret, unique within the application.
        expires_at: Milliseconds since the epoch.
    """

    name: SecretName
    expires_at: int | None = None


class SecretUpdate(Body):
    """Changes of a secret: its name.

    Attributes:
        name: Name of the secret, unique within the application.
    """

    name: SecretName | UnsetType = UNSET


def is_redirect_uri(uri: str, application_type: ApplicationType) -> bool:
    """Return whether this is an acceptable redirect URI: one that only the application can receive.

    Loopback is acceptable here for every type; ``http_redirect_uris`` says for which ones it needs a setting.

    Source:
        RFC 8252 sections 7.1 (private-use schemes) and 7.3 (loopback); RFC 9700 section 2.1 (exact, no wildcard).
    """
    if "#" in uri or "*" in uri or not is_usable_uri(uri):
        return False
    parts = urlsplit(uri)
    if parts.scheme == "https":
        return _is_host(parts.hostname)
    if parts.scheme == "http":
        return parts.hostname is not None and _is_loopback(parts.hostname)
    return application_type == "Native" and _PRIVATE_USE.fullmatch(parts.scheme) is not None


def is_origin(origin: str) -> bool:
    """Return whether this is an origin as browsers send it: scheme, host and optional port, nothing more.

    Source:
        RFC 6454 section 6.2.
    """
    if not _URI_CHARACTERS.fullmatch(origin):
        return False
    try:
        parts = urlsplit(origin)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return (
        parts.scheme in {"http", "https"}
        and _is_host(host)
        and origin == f"{parts.scheme}://{parts.netloc}"
        and "@" not in parts.netloc
    )


def branding_problems(branding: Branding | None) -> Iterator[tuple[str, str]]:
    """Yield the path of each unacceptable member, and what is wrong with it."""
    logo_uri, color = (branding.logo_uri, branding.primary_color) if branding else (None, None)
    if isinstance(logo_uri, str) and not is_logo_uri(logo_uri):
        yield "branding.logoUri", "must be https, with a domain name as its host, without a fragment"
    if isinstance(color, str) and (problem := color_problem(color)):
        yield "branding.primaryColor", problem


def _is_host(host: str | None) -> bool:
    return host is not None and _HOST.fullmatch(host) is not None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def problems(
    application_type: ApplicationType,
    oidc: OidcClientMetadata | None,
    custom: CustomClientMetadata | None,
    *,
    stored: Stored,
) -> Iterator[tuple[str, str]]:
    """Yield the path of each unacceptable URI or origin that is not stored yet, and what is wrong with it."""
    for path, uri in _added(oidc, _REDIRECT_URIS, stored):
        if not is_redirect_uri(uri, application_type):
            yield path, "must be https, or http on loopback, without a fragment"
    for path, origin in _added(custom, _ORIGINS, stored):
        if not is_origin(origin):
            yield path, "must be an origin: scheme, host and port"


def http_redirect_uris(
    application_type: ApplicationType, oidc: OidcClientMetadata | None, *, stored: Stored
) -> Iterator[str]:
    """Yield the path of each redirect URI with ``http`` that an application gets, unless it is Native.

    Source:
        RFC 9700 section 2.6 (``http`` only for the loopback interface redirection of native clients).
    """
    if application_type != "Native":
        yield from (path for path, uri in _added(oidc, _REDIRECT_URIS, stored) if urlsplit(uri).scheme == "http")


def _added(metadata: Body | None, paths: Mapping[str, str], stored: Stored) -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each item of these lists that is not stored yet."""
    for name, path in paths.items():
        for position, value in enumerate(getattr(metadata, name, None) or ()):
            if value not in stored.get(name, ()):
                yield f"{path}[{position}]", value


def unsuitable_setting(application_type: ApplicationType, custom: CustomClientMetadata | None) -> str | None:
    """Return why an application of this type cannot have these settings; None if it can.

    Source:
        RFC 9700 section 2.1.1 (a confidential client may use the nonce of OpenID Connect instead of PKCE).
    """
    if application_type == "Traditional" or custom is None:
        return None
    if custom.token_endpoint_auth_method not in {UNSET, None}:
        return "Only a Traditional application has a tokenEndpointAuthMethod; the type determines that of others."
    if custom.require_pkce is False:
        return "Only a Traditional application can do without PKCE."
    if custom.allow_management_api and application_type == "MachineToMachine":
        return "Its API roles decide what a machine-to-machine application may do; it has no allowManagementApi."
    return None


def secret_name_problems(name: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the name of a secret, which must be usable in a path."""
    name = canonical_name(name)
    if "/" in name or name in {".", ".."} or not name.isprintable():
        yield "name", "must not contain a slash or control characters"


def may_have_secrets(application_type: ApplicationType) -> bool:
    """Return whether an application of this type can keep a secret.

    Source:
        RFC 6749 section 2.1 (public clients).
    """
    return application_type in {"Traditional", "MachineToMachine"}


def secret_problems(creation: SecretCreation, *, now: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a new secret."""
    yield from secret_name_problems(creation.name)
    if creation.expires_at is not None and creation.expires_at <= now:
        yield "expiresAt", "must be in the future, in milliseconds"
