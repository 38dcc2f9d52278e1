"""``/api/applications``."""

from typing import Final, get_args

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.parents import parent_exists
from identity_common.fields import Answer, FreeForm, FreeFormAnswer
from identity_common.http.listing import WHOLE, Listing
from identity_common.http.openapi.declarations import Filter, documented
from identity_common.wire.events import ApplicationType, DemandedLevel, SecretMethod
from management_service.applications.rules import ApplicationCreation, ApplicationUpdate, SecretCreation, SecretUpdate
from management_service.applications.service import Applications
from management_service.applications.store import Application, ApplicationFilter, Secret
from management_service.memberships import Memberships

_TYPES: Final = Filter(
    "types", "Only applications of one of these types.", get_args(ApplicationType), is_repeatable=True
)
_IS_THIRD_PARTY: Final = Filter(
    "isThirdParty", "Only third-party, or only first-party applications.", ("true", "false")
)
_IDS: Final = Filter("ids", "Only applications with one of these ids.", is_repeatable=True)
_WITHOUT_ROLE: Final = Filter("excludeRoleId", "Only applications that do not hold this API role.")
_WITHOUT_ORGANIZATION: Final = Filter(
    "excludeOrganizationId", "Only applications that are not members of this organization."
)


def _read_filter(listing: Listing) -> ApplicationFilter:
    is_third_party = listing.filter(_IS_THIRD_PARTY.name)
    return ApplicationFilter(
        ids=listing.filters(_IDS.name),
        types=listing.filters(_TYPES.name),
        is_third_party=None if is_third_party is None else is_third_party == "true",
        without_role_id=listing.filter(_WITHOUT_ROLE.name),
    )


class OidcClientMetadataAnswer(Answer):
    """Redirect URIs.

    Attributes:
        redirect_uris: Allowed redirect URIs of a sign-in; compared exactly. They are https, or for Native applications
            also http on loopback or of a scheme with a dot.
        post_logout_redirect_uris: Allowed redirect URIs of a sign-out; compared exactly.
    """

    redirect_uris: tuple[str, ...]
    post_logout_redirect_uris: tuple[str, ...]


class CustomClientMetadataAnswer(Answer):
    """Settings of the client.

    Attributes:
        token_endpoint_auth_method: How the application sends its secret; null for types other than Traditional, which
            have no choice.
        require_pkce: Whether authorization requests need PKCE (RFC 7636); true by default, false only for first-party
            Traditional applications.
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
        minimum_acr: How strongly the application's users must have signed in: ``mfa``, with a second factor or a
            passkey; ``phr``, with a passkey; null for what the policy of signing in demands. Not for
            machine-to-machine applications.
    """

    allow_token_exchange: bool
    allow_management_api: bool
    cors_allowed_origins: tuple[str, ...]
    id_token_ttl: int
    refresh_token_ttl_in_days: int
    rotate_refresh_token: bool
    always_issue_refresh_token: bool
    token_endpoint_auth_method: SecretMethod | None
    require_pkce: bool
    minimum_acr: DemandedLevel | None


class BrandingAnswer(Answer):
    """The look of the application's sign-in pages.

    Attributes:
        logo_uri: URL of an image, on https; null for no logo.
        primary_color: Colour of the buttons, ``#rrggbb``; null for the default.
    """

    logo_uri: str | None
    primary_color: str | None


class ApplicationAnswer(Answer):
    """An application, without its secrets.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the application; its ``client_id``.
        name: Display name.
        description: Description.
        type: Kind of client, which decides how it authenticates and what it may do; it never changes.
        oidc_client_metadata: Redirect URIs.
        custom_client_metadata: Settings of the client.
        is_third_party: Whether the application belongs to a third party: users are asked for consent, and it may not
            exchange tokens.
        custom_data: Free-form object for the integrator.
        created_at: Time of creation, milliseconds since the epoch.
        updated_at: Time of the last change, milliseconds since the epoch.
        branding: Logo and colour of the sign-in pages.
    """

    tenant_id: str
    id: str
    name: str
    description: str | None
    type: ApplicationType
    oidc_client_metadata: OidcClientMetadataAnswer
    custom_client_metadata: CustomClientMetadataAnswer
    is_third_party: bool
    branding: BrandingAnswer
    custom_data: FreeFormAnswer
    created_at: int
    updated_at: int


class SecretAnswer(Answer):
    """A secret of an application, without its value.

    Attributes:
        tenant_id: Id of the tenant.
        application_id: Id of the application.
        name: Name of the secret, unique within the application.
        created_at: Time of creation, milliseconds since the epoch.
        expires_at: Time of expiry, milliseconds since the epoch; null for never.
    """

    tenant_id: str
    application_id: str
    name: str
    created_at: int
    expires_at: int | None


class NewSecretAnswer(SecretAnswer):
    """A new secret of an application.

    Attributes:
        value: Shown only once.
    """

    value: str


def application_answer(application: Application) -> ApplicationAnswer:
    """Return an application as the API shows it."""
    return ApplicationAnswer(
        tenant_id=application.tenant_id,
        id=application.id,
        name=application.name,
        description=application.description,
        type=application.type,
        oidc_client_metadata=OidcClientMetadataAnswer(
            redirect_uris=application.redirect_uris, post_logout_redirect_uris=application.post_logout_redirect_uris
        ),
        custom_client_metadata=CustomClientMetadataAnswer(
            allow_token_exchange=application.allow_token_exchange,
            allow_management_api=application.allow_management_api,
            cors_allowed_origins=application.cors_allowed_origins,
            id_token_ttl=application.id_token_ttl_s,
            refresh_token_ttl_in_days=application.refresh_token_ttl_days,
            rotate_refresh_token=application.rotate_refresh_token,
            always_issue_refresh_token=application.always_issue_refresh_token,
            token_endpoint_auth_method=(
                application.token_endpoint_auth_method if application.type == "Traditional" else None
            ),
            require_pkce=application.require_pkce,
            minimum_acr=application.minimum_acr,
        ),
        is_third_party=application.is_third_party,
        branding=BrandingAnswer(logo_uri=application.logo_uri, primary_color=application.primary_color),
        custom_data=msgspec.Raw(application.custom_data.encode()),
        created_at=application.created_at,
        updated_at=application.updated_at,
    )


def secret_answer(secret: Secret) -> SecretAnswer:
    """Return a secret as the API shows it."""
    return msgspec.convert(secret, SecretAnswer, from_attributes=True)


def new_secret_answer(secret: Secret, value: str) -> NewSecretAnswer:
    """Return a new secret as the API shows it, once, with its value."""
    return NewSecretAnswer(**msgspec.structs.asdict(secret_answer(secret)), value=value)


class ApplicationController(Controller):
    """Applications."""

    path = "/applications"
    tags = ("Applications",)
    dependencies = WHOLE

    @post("/", operation_id="CreateApplication", summary="Create an application", status_code=200)
    async def create_application(
        self, data: JSONBody[ApplicationCreation], applications: NamedDependency[Applications]
    ) -> ApplicationAnswer:
        """Create an application, without a secret."""
        return application_answer(await applications.create(data))

    @get(
        "/",
        operation_id="ListApplications",
        summary="List applications",
        opt=documented(filters=(_IDS, _TYPES, _IS_THIRD_PARTY, _WITHOUT_ROLE, _WITHOUT_ORGANIZATION), refuses=(422,)),
    )
    async def list_applications(
        self,
        listing: NamedDependency[Listing],
        applications: NamedDependency[Applications],
        memberships: NamedDependency[Memberships],
    ) -> Response[list[ApplicationAnswer]]:
        """List applications by name."""
        members = await memberships.members(listing.filter(_WITHOUT_ORGANIZATION.name), "application")
        found, total = await applications.list_applications(listing.page, _read_filter(listing), without=members)
        return listing.answer([application_answer(application) for application in found], total)

    @get("/{application_id:str}", operation_id="GetApplication", summary="Get an application")
    async def get_application(
        self, application_id: FromPath[str], applications: NamedDependency[Applications]
    ) -> ApplicationAnswer:
        """Get one application."""
        return application_answer(await applications.get(application_id))

    @patch("/{application_id:str}", operation_id="UpdateApplication", summary="Update an application")
    async def update_application(
        self,
        application_id: FromPath[str],
        data: JSONBody[ApplicationUpdate],
        applications: NamedDependency[Applications],
    ) -> ApplicationAnswer:
        """Change the given fields; null restores a default. The type never changes."""
        return application_answer(await applications.update(application_id, data))

    @patch(
        "/{application_id:str}/custom-data",
        operation_id="UpdateApplicationCustomData",
        summary="Update an application's custom data",
        opt=documented(never=(422,)),
        guards=[parent_exists("application")],
    )
    async def merge_custom_data(
        self, application_id: FromPath[str], data: JSONBody[FreeForm], applications: NamedDependency[Applications]
    ) -> Response[FreeFormAnswer]:
        """Change the given fields; null removes one. Returns all custom data."""
        application = await applications.merge_custom_data(application_id, data)
        return Response(msgspec.Raw(application.custom_data.encode()))

    @delete("/{application_id:str}", operation_id="DeleteApplication", summary="Delete an application", status_code=204)
    async def delete_application(
        self, application_id: FromPath[str], applications: NamedDependency[Applications]
    ) -> None:
        """Delete an application.

        Its tokens become inactive at introspection; APIs that follow the not-valid feed refuse them within a second,
        others accept them until they expire.
        """
        await applications.delete(application_id)


class SecretController(Controller):
    """Secrets of an application."""

    path = "/applications/{application_id:str}/secrets"
    tags = ("Applications",)
    dependencies = WHOLE
    guards = (parent_exists("application"),)

    @post(
        "/",
        operation_id="CreateApplicationSecret",
        summary="Create a secret",
        opt=documented(headers=("Cache-Control",)),
    )
    async def create_secret(
        self, application_id: FromPath[str], data: JSONBody[SecretCreation], applications: NamedDependency[Applications]
    ) -> Response[NewSecretAnswer]:
        """Create a secret; its value is shown only once. An application may have several secrets."""
        secret, value = await applications.create_secret(application_id, data)
        return Response(new_secret_answer(secret, value), headers={"Cache-Control": "no-store"})

    @get("/", operation_id="ListApplicationSecrets", summary="List secrets")
    async def list_secrets(
        self,
        application_id: FromPath[str],
        listing: NamedDependency[Listing],
        applications: NamedDependency[Applications],
    ) -> Response[list[SecretAnswer]]:
        """List the secrets of an application by name, without their values."""
        found, total = await applications.list_secrets(application_id, listing.page)
        return listing.answer([secret_answer(secret) for secret in found], total)

    @patch("/{secret_name:str}", operation_id="UpdateApplicationSecret", summary="Rename a secret")
    async def update_secret(
        self,
        application_id: FromPath[str],
        secret_name: FromPath[str],
        data: JSONBody[SecretUpdate],
        applications: NamedDependency[Applications],
    ) -> SecretAnswer:
        """Rename a secret; its value does not change and is not shown."""
        return secret_answer(await applications.rename_secret(application_id, secret_name, data))

    @delete("/{secret_name:str}", operation_id="DeleteApplicationSecret", summary="Delete a secret", status_code=204)
    async def delete_secret(
        self, application_id: FromPath[str], secret_name: FromPath[str], applications: NamedDependency[Applications]
    ) -> None:
        """Delete a secret; the application can no longer use it."""
        await applications.delete_secret(application_id, secret_name)
