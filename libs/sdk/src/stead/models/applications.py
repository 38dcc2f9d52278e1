"""Applications and their secrets."""

from __future__ import annotations

from typing import Any

import msgspec

from stead.models.versions import Versioned


class OidcClientMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The redirect URIs of an application, compared exactly.

    Attributes:
        redirect_uris: Where a sign-in may return to.
        post_logout_redirect_uris: Where a sign-out may return to.
    """

    redirect_uris: list[str] = []
    post_logout_redirect_uris: list[str] = []


class CustomClientMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of an application.

    Attributes:
        allow_token_exchange: Whether it may exchange subject tokens.
        allow_management_api: Whether it may request tokens for the Management API on behalf of its users; changing it
            needs the scope ``all``.
        cors_allowed_origins: Origins whose scripts may call the token endpoint, besides those of its redirect URIs.
        id_token_ttl: Lifetime of ID tokens, in seconds.
        refresh_token_ttl_in_days: Days after which an unused refresh token expires.
        rotate_refresh_token: Whether each use of a refresh token replaces it; always so for Native and SPA.
        always_issue_refresh_token: Whether refresh tokens are issued without ``offline_access``.
        token_endpoint_auth_method: How a Traditional application sends its secret: ``client_secret_basic``, by default,
            or ``client_secret_post``; None for other types.
        require_pkce: Whether authorization requests need PKCE; may be false for first-party Traditional applications.
        minimum_acr: How strongly its users must have signed in: ``mfa``, with a second factor or a passkey; ``phr``,
            with a passkey; None for what the policy of signing in demands.
    """

    allow_token_exchange: bool = False
    allow_management_api: bool = False
    cors_allowed_origins: list[str] = []
    id_token_ttl: int = 3600
    refresh_token_ttl_in_days: int = 14
    rotate_refresh_token: bool = True
    always_issue_refresh_token: bool = False
    token_endpoint_auth_method: str | None = None
    require_pkce: bool = True
    minimum_acr: str | None = None


class Application(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An OAuth client.

    Attributes:
        id: The ``client_id``.
        type: ``Native``, ``SPA``, ``Traditional`` or ``MachineToMachine``.
        oidc_client_metadata: Its redirect URIs.
        custom_client_metadata: Its settings.
        is_third_party: Whether another company operates it; then it may not exchange tokens.
        branding: ``logoUri`` and ``primaryColor`` of the pages for signing in.
    """

    id: str
    name: str
    type: str
    tenant_id: str = ""
    description: str | None = None
    oidc_client_metadata: OidcClientMetadata = OidcClientMetadata()
    custom_client_metadata: CustomClientMetadata = CustomClientMetadata()
    is_third_party: bool = False
    branding: dict[str, Any] = {}
    custom_data: dict[str, Any] = {}
    created_at: int | None = None
    updated_at: int | None = None


class ApplicationSecret(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A secret of an application, which may have several. Its repr hides the value.

    Attributes:
        name: Unique within the application.
        value: The secret itself, returned on creation only; None otherwise.
        expires_at: Milliseconds since the epoch; None for never.
    """

    name: str
    tenant_id: str = ""
    application_id: str = ""
    value: str | None = None
    expires_at: int | None = None
    created_at: int | None = None

    def __repr__(self) -> str:
        return f"ApplicationSecret(name={self.name!r}, expires_at={self.expires_at})"
