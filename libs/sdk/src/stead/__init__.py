"""The Python client library of Stead.

Verify the access tokens that your API receives::

    verifier = AccessTokenVerifier(base_url="https://id.example.com", audience="https://api.example.com")
    access_token = verifier.verify(bearer_token)

or put ``AccessTokenMiddleware`` around an ASGI application.

Manage users, applications, roles and organizations, and act on behalf of a user::

    with ManagementClient("https://id.example.com", client_id=..., client_secret=...) as management:
        user = management.users.create(username="ada")
        subject_token = management.subject_tokens.create(user.id)

    tokens = exchange_subject_token(
        "https://id.example.com",
        client_id=...,
        subject_token=subject_token.token,
        resource="https://api.example.com",
        scope="read:orders",
    )

Sign users in: ``IdentityClient``. React to changes of permissions: ``stead.events``, which needs the extra ``events``.

Everything that blocks has an asyncio twin whose name begins with ``Async`` or ``async_``. The names in ``__all__`` are
the public interface. Failures are raised as ``IdentityError``; ``stead.errors`` shows the tree.
"""

from stead.errors import (
    ApiError,
    CallerUnknown,
    Conflict,
    Forbidden,
    IdentityError,
    InvalidInput,
    NotFound,
    OAuthError,
    RecentSignInRequired,
    SignInRequired,
    StepUpRequired,
    TokenInvalid,
    TooManyAttempts,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from stead.manage.clients import AsyncManagementClient, ManagementClient
from stead.models import (
    AffectedMember,
    AffectedMembers,
    Application,
    ApplicationSecret,
    AuditEntry,
    AuditFigure,
    ClaimsFunction,
    ClaimsFunctionFailure,
    ClaimsFunctionVersion,
    Consent,
    ConsistencyProof,
    CustomClientMetadata,
    DryRunReport,
    EffectivePermissions,
    GrantedPermission,
    GrantingRole,
    HeldPermissions,
    Impersonation,
    ImpersonationPolicy,
    InclusionProof,
    Invitation,
    MailFailure,
    MyAccount,
    MyConsent,
    MyImpersonation,
    MyProfile,
    MySession,
    OidcClientMetadata,
    OpenInvitation,
    Organization,
    OrganizationApplication,
    OrganizationInvitation,
    OrganizationMembership,
    OrganizationPermission,
    OrganizationReference,
    OrganizationRole,
    OrganizationRoleReference,
    OrganizationTemplate,
    OrganizationUser,
    PermissionsForResource,
    PermissionsInOrganization,
    Recording,
    Resource,
    ResourceConsent,
    ResourceReference,
    ResourceScope,
    Role,
    Scope,
    SearchAnswer,
    SignedHead,
    SignInPolicy,
    SignInSession,
    SubjectToken,
    TemplatePermission,
    TemplateReport,
    TemplateRole,
    TemplateScope,
    TestedClaims,
    User,
)
from stead.sign_in.identity_client import AsyncIdentityClient, IdentityClient, MemoryStorage, SignInForm, Storage
from stead.sign_in.invitations import accept_invitation, async_accept_invitation
from stead.sign_in.token_endpoint import (
    TokenResponse,
    async_client_credentials,
    async_exchange_subject_token,
    client_credentials,
    exchange_subject_token,
)
from stead.verify.access_tokens import AccessToken, ActorAuthentication
from stead.verify.feed import NotValidFeed
from stead.verify.middleware import Access, AccessTokenMiddleware, OrganizationAware, Requires, access_token_of
from stead.verify.proxied import ProxiedCaller, proxied_caller
from stead.verify.verifiers import AccessTokenVerifier, AsyncAccessTokenVerifier

__all__ = [
    # verification
    "AccessToken",
    "ActorAuthentication",
    "AccessTokenVerifier",
    "AsyncAccessTokenVerifier",
    "NotValidFeed",
    "AccessTokenMiddleware",
    "Access",
    "OrganizationAware",
    "Requires",
    "access_token_of",
    "ProxiedCaller",
    "proxied_caller",
    # applications that users sign in to
    "IdentityClient",
    "AsyncIdentityClient",
    "Storage",
    "MemoryStorage",
    "SignInForm",
    "accept_invitation",
    "async_accept_invitation",
    # the Management API
    "ManagementClient",
    "AsyncManagementClient",
    "Application",
    "ApplicationSecret",
    "AuditEntry",
    "AuditFigure",
    "SearchAnswer",
    "SignedHead",
    "InclusionProof",
    "ConsistencyProof",
    "OidcClientMetadata",
    "CustomClientMetadata",
    "ClaimsFunction",
    "ClaimsFunctionFailure",
    "Recording",
    "ClaimsFunctionVersion",
    "Consent",
    "DryRunReport",
    "ResourceConsent",
    "SignInSession",
    "Organization",
    "OrganizationPermission",
    "OrganizationRole",
    "OrganizationUser",
    "OrganizationApplication",
    "OrganizationInvitation",
    "OrganizationMembership",
    "OrganizationRoleReference",
    "HeldPermissions",
    "OrganizationTemplate",
    "Resource",
    "ResourceReference",
    "ResourceScope",
    "Role",
    "Scope",
    "SubjectToken",
    "Impersonation",
    "ImpersonationPolicy",
    "EffectivePermissions",
    "GrantedPermission",
    "GrantingRole",
    "PermissionsForResource",
    "PermissionsInOrganization",
    "MyAccount",
    "MyConsent",
    "MyImpersonation",
    "MyProfile",
    "MySession",
    "Invitation",
    "MailFailure",
    "OpenInvitation",
    "TemplatePermission",
    "TemplateReport",
    "AffectedMember",
    "AffectedMembers",
    "OrganizationReference",
    "TemplateRole",
    "TemplateScope",
    "TestedClaims",
    "User",
    # the token endpoint
    "TokenResponse",
    "client_credentials",
    "async_client_credentials",
    "exchange_subject_token",
    "async_exchange_subject_token",
    # errors
    "IdentityError",
    "ApiError",
    "InvalidInput",
    "Unauthenticated",
    "RecentSignInRequired",
    "Forbidden",
    "NotFound",
    "Conflict",
    "VersionMismatch",
    "TooManyAttempts",
    "OAuthError",
    "SignInPolicy",
    "SignInRequired",
    "Unavailable",
    "TokenInvalid",
    "StepUpRequired",
    "CallerUnknown",
]
