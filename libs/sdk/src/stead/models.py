"""The entities that the Management API returns: camelCase on the wire, times in milliseconds since the epoch (UTC).

Unknown members are ignored, so this version works with newer services.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stead.event_types import GrantedPermission


class Versioned(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """An entity that can be changed on condition that it is still as it was read.

    ::

        user = client.users.get(user_id)
        client.users.update(user_id, name="Ada", if_match=user.etag)

    Its ``etag`` is neither compared nor encoded.
    """

    @property
    def etag(self) -> str | None:
        """The entity tag of this version, for ``if_match``; None unless it was read by itself, with ``get``."""
        etag: str | None = self.__dict__.get("etag")
        return etag


def note_etag(entity: Versioned, etag: str | None) -> None:
    """Set the entity tag of what was decoded just now; None if the answer has none."""
    entity.__dict__["etag"] = etag


class User(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A person who signs in, or on whose behalf an application acts. Its repr shows the id only.

    Attributes:
        id: The ``sub`` of the user's tokens.
        is_email_verified: Whether an administrator has verified the e-mail address.
        is_suspended: No tokens are issued to a suspended user, or on their behalf.
        has_password: Whether the user can sign in with a password.
        custom_data: Your own data.
        profile: Further OpenID Connect claims about the person.
    """

    id: str
    tenant_id: str = ""
    username: str | None = None
    primary_email: str | None = None
    primary_phone: str | None = None
    name: str | None = None
    avatar: str | None = None
    is_email_verified: bool = False
    is_suspended: bool = False
    has_password: bool = False
    custom_data: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    created_at: int | None = None
    updated_at: int | None = None

    def __repr__(self) -> str:
        return f"User(id={self.id!r})"  # the rest is personal data, which does not belong in a log


class ResourceConsent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The scopes of one API resource that a user has consented to.

    Attributes:
        resource: The indicator of the resource.
        scopes: Their names.
    """

    resource: str
    scopes: tuple[str, ...] = ()


class Consent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a user has consented to for one application.

    Attributes:
        scopes: The OpenID Connect scopes.
        organization_permissions: Names of organization permissions.
        organization_ids: The organizations that the user selected for a third-party application.
        consented_at: When the consent was last extended.
        implicit: Whether any of it was recorded at a sign-in to a first-party application, without asking the user.
    """

    application_id: str
    tenant_id: str = ""
    scopes: tuple[str, ...] = ()
    resources: tuple[ResourceConsent, ...] = ()
    organization_permissions: tuple[str, ...] = ()
    organization_ids: tuple[str, ...] = ()
    consented_at: int = 0
    implicit: bool = False


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
        cors_allowed_origins: Origins whose scripts may call the token endpoint, besides those of its redirect URIs.
        id_token_ttl: Lifetime of ID tokens, in seconds.
        refresh_token_ttl_in_days: Days after which an unused refresh token expires.
        rotate_refresh_token: Whether each use of a refresh token replaces it; always so for Native and SPA.
        always_issue_refresh_token: Whether refresh tokens are issued without ``offline_access``.
        token_endpoint_auth_method: How a Traditional application sends its secret: ``client_secret_basic``, by default,
            or ``client_secret_post``; None for other types.
        require_pkce: Whether authorization requests need PKCE; may be false for first-party Traditional applications.
    """

    allow_token_exchange: bool = False
    cors_allowed_origins: list[str] = []
    id_token_ttl: int = 3600
    refresh_token_ttl_in_days: int = 14
    rotate_refresh_token: bool = True
    always_issue_refresh_token: bool = False
    token_endpoint_auth_method: str | None = None
    require_pkce: bool = True


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


class Invitation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an invited user needs to choose a password. Its repr hides the value.

    Attributes:
        invitation: The value, returned on creation only.
        expires_at: Milliseconds since the epoch.
    """

    invitation: str
    expires_at: int

    def __repr__(self) -> str:
        return f"Invitation(expires_at={self.expires_at})"


class Resource(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An API that tokens are issued for.

    Attributes:
        indicator: The ``aud`` of its access tokens; never changes.
        access_token_ttl: Lifetime of its access tokens, in seconds.
    """

    id: str
    name: str
    indicator: str
    tenant_id: str = ""
    access_token_ttl: int = 3600
    is_default: bool = False


class Scope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of an API resource.

    Attributes:
        name: The scope token.
        resource_id: Id of its resource.
    """

    id: str
    name: str
    tenant_id: str = ""
    resource_id: str = ""
    description: str | None = None
    created_at: int | None = None


class Role(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An API role: a set of scopes that is assigned to users or to machine-to-machine applications.

    Attributes:
        type: ``User`` or ``MachineToMachine``: the kind of holders.
        is_default: Whether it is assigned to every new user.
    """

    id: str
    name: str
    type: str = "User"
    tenant_id: str = ""
    description: str | None = None
    is_default: bool = False


class OrganizationPermission(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A permission of the organization template, shared by all organizations.

    Attributes:
        name: The scope token in organization tokens.
    """

    id: str
    name: str
    tenant_id: str = ""
    description: str | None = None


class ResourceReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An API resource, by id and name."""

    id: str
    name: str


class ResourceScope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A scope of an API resource that an organization role grants.

    Attributes:
        name: The scope token.
        resource: Its resource.
    """

    id: str
    name: str
    resource: ResourceReference
    tenant_id: str = ""


class OrganizationRole(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A role of the organization template, which members have per organization.

    Attributes:
        type: ``User`` or ``MachineToMachine``: the kind of members who can have it.
        scopes: The organization permissions that it grants; set in lists of all roles only.
        resource_scopes: The API scopes that it grants; set in lists of all roles only.
    """

    id: str
    name: str
    type: str = "User"
    tenant_id: str = ""
    description: str | None = None
    scopes: list[OrganizationPermission] | None = None
    resource_scopes: list[ResourceScope] | None = None


class Organization(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An organization.

    Attributes:
        custom_data: Your own data.
        color: For your own pages, like ``branding`` and ``custom_css``.
        users_count: Number of user members; set in lists with ``show_featured`` only.
        featured_users: Up to three of them, with id, name and avatar; set in lists with ``show_featured`` only.
    """

    id: str
    name: str
    tenant_id: str = ""
    description: str | None = None
    custom_data: dict[str, Any] = {}
    is_mfa_required: bool = False
    color: dict[str, Any] = {}
    branding: dict[str, Any] = {}
    custom_css: str | None = None
    created_at: int | None = None
    users_count: int | None = None
    featured_users: list[User] | None = None


class OrganizationRoleReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization role of a member, by id and name."""

    id: str
    name: str


class OrganizationUser(User, frozen=True, kw_only=True):
    """A user as a member of an organization.

    Attributes:
        organization_roles: The user's roles there, ordered by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class OrganizationApplication(Application, frozen=True, kw_only=True):
    """A machine-to-machine application as a member of an organization.

    Attributes:
        organization_roles: The application's roles there, ordered by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class OrganizationMembership(Organization, frozen=True, kw_only=True):
    """An organization of which a user or application is a member.

    Attributes:
        organization_roles: The member's roles there, ordered by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class HeldPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The organization permissions of a member: the union over its roles, ordered by name.

    Attributes:
        etag: The entity tag of this state, with which a change can be awaited.
    """

    permissions: tuple[OrganizationPermission, ...]
    etag: str


class TemplatePermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization permission in the template document."""

    name: str
    description: str | None = None


class TemplateScope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A scope of an API resource in the template document.

    Attributes:
        resource: The indicator of the resource.
        name: The scope token.
    """

    resource: str
    name: str


class TemplateRole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization role in the template document.

    Attributes:
        permissions: Names of organization permissions in the same document.
    """

    name: str
    description: str | None = None
    type: str = "User"
    permissions: list[str] = []
    scopes: list[TemplateScope] = []


class OrganizationTemplate(Versioned, frozen=True, kw_only=True, rename="camel"):
    """The organization template as a document: all permissions and roles, ordered by name, without ids."""

    permissions: list[TemplatePermission]
    roles: list[TemplateRole]


class TextChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A changed description or type."""

    before: str | None
    after: str | None


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to one permission or role; None or empty where nothing changes.

    Attributes:
        added: What the role grants in addition.
        removed: What the role no longer grants.
    """

    name: str
    description: TextChange | None = None
    type: TextChange | None = None
    added: list[GrantedPermission] = []
    removed: list[GrantedPermission] = []


class TemplateChanges(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to all permissions, or to all roles; created and deleted ones by name."""

    created: list[str] = []
    updated: list[TemplateChange] = []
    deleted: list[str] = []


class Reach(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A number of members, and of the organizations they are in."""

    members: int
    organizations: int


class MemberEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many members gain or lose one permission.

    Attributes:
        resource: The indicator of its API resource; None for an organization permission.
    """

    name: str
    resource: str | None = None
    gaining: Reach
    losing: Reach


class TemplateReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes that a document makes to the organization template, or would make.

    Attributes:
        members: The permissions that at least one member gains or loses.
    """

    permissions: TemplateChanges
    roles: TemplateChanges
    members: list[MemberEffect] = []


class SavedBy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who saved a version.

    Attributes:
        user_id: The user that the application acted for; None if it acted for itself.
    """

    application_id: str
    user_id: str | None = None


class ClaimsFunctionVersion(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A version of the custom-claims function, without its script. Versions never change.

    Attributes:
        token_type: ``access-token`` or ``client-credentials``.
        version: Counts from 1 without gaps.
        is_active: Whether it is in force; one version at most is.
        environment_variables: Their names.
        block_issuance_on_error: Whether no token is issued when the script fails.
    """

    token_type: str
    version: int
    is_active: bool
    environment_variables: list[str] = []
    block_issuance_on_error: bool = False
    created_at: int = 0
    created_by: SavedBy
    tenant_id: str = ""


class ClaimsFunction(ClaimsFunctionVersion, frozen=True, kw_only=True, rename="camel"):
    """A version of the custom-claims function.

    Attributes:
        context_sample: Saved for tests.
        token_sample: Saved for tests.
    """

    script: str
    context_sample: dict[str, Any] | None = None
    token_sample: dict[str, Any] | None = None


class TestedClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What a script gave.

    Attributes:
        claims: The claims that would be added.
        dropped: Names of claims that the script gave and that were dropped, because they are reserved.
    """

    __test__ = False  # not a test of pytest

    claims: dict[str, Any]
    dropped: list[str] = []


class ScriptProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a script gave no claims.

    Attributes:
        reason: ``syntax``, ``no-function``, ``exception``, ``time``, ``memory``, ``result``, ``microtasks`` or
            ``worker-died``.
        line: From 1; None if no place is to blame.
        column: From 1.
    """

    reason: str
    message: str = ""
    line: int | None = None
    column: int | None = None


class DryRunOfInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a script would change for one recorded input. Its repr shows the time only.

    Attributes:
        added: Claims that only the script gives.
        changed: Claims that the active version gives with other values.
        removed: Names of claims that only the active version gives.
        denied: The script's message if it denied access; None otherwise.
        problem: Why the script failed; None if it did not.
    """

    recorded_at: int
    added: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    removed: list[str] = []
    denied: str | None = None
    problem: ScriptProblem | None = None

    def __repr__(self) -> str:
        return f"DryRunOfInput(recorded_at={self.recorded_at}, …)"


class DryRunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a script would change, compared with the active version.

    Attributes:
        runs: One for each recorded input, newest first.
        omitted: How many inputs have no run, for lack of time or space.
    """

    runs: list[DryRunOfInput]
    omitted: int = 0


class Recording(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A recording of inputs.

    Attributes:
        expires_at: When it ends and the inputs are forgotten (ms since the epoch); None if nothing is recorded.
        input_count: How many inputs are held, at most 100.
    """

    expires_at: int | None
    input_count: int = 0


class ClaimsFunctionFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A call of the custom-claims function that gave no claims.

    Attributes:
        version: The version that failed.
        reason: As in ``ScriptProblem``.
    """

    time: int
    version: int
    reason: str
    line: int | None = None
    column: int | None = None


class SubjectToken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A one-time token that represents a user until it is exchanged. Its repr hides the token.

    Attributes:
        token: Secret; hand it only to the application that exchanges it.
        expires_in: Lifetime in seconds.
        impersonation_id: Names the impersonation that begins with this token; no secret. Empty if the service did not
            send it.
    """

    token: str = msgspec.field(name="subjectToken")
    expires_in: int
    impersonation_id: str = ""

    def __repr__(self) -> str:
        return f"SubjectToken(token=…, expires_in={self.expires_in}, impersonation_id={self.impersonation_id!r})"


class AuditContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why an actor acts for a subject.

    Attributes:
        reason: Why.
        ticket_id: The ticket that it happens for.
    """

    reason: str | None = None
    ticket_id: str | None = None


class AuditGap(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"first": "from", "last": "to", "previous_epoch": "previousEpoch"},
):
    """Numbers of a log that never arrived.

    Attributes:
        first: The first missing number.
        last: The last missing number.
        previous_epoch: The numbering that ended without notice.
    """

    first: int | None = None
    last: int | None = None
    previous_epoch: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happened, as the audit trail has it: ids, never values.

    Attributes:
        occurred_at: Milliseconds since the epoch, UTC.
        log: The log that numbers the entry.
        epoch: Name of the log's numbering.
        sequence: Number of the entry within its log and epoch; 0 for a gap.
        revision: Revision of the service after a write; 0 for what changes no state.
        key: What happened: ``management.user.update``.
        outcome: ``success``, ``refused`` or ``unknown``.
        reason: Code of a refusal.
        operation: ``operationId`` of a request to the API.
        application_id: The application that sent the request.
        user_id: The person that a write was made by, or the subject.
        actor_id: The person that acts for the subject.
        organization_id: The organization that a token was asked for.
        subject_token_id: Public id of the subject token.
        resource: The resource that a token was asked for.
        scope: The scopes that were granted, separated by spaces.
        token_id: ``jti`` of the access token of the request.
        issued_token_id: ``jti`` of the access token that was issued.
        context: Reason and ticket of a subject token.
        request_id: The ``X-Request-Id`` of the response.
        address: Address of the client.
        user_agent: ``User-Agent`` of the request.
        ids: Ids in the path, by parameter.
        members: Names of the members that the body gave.
        aggregates: What changed, as kind and ids; at most 100.
        aggregate_count: How many aggregates changed.
        gap: What is missing before the next entry of the log; with the key ``audit.gap``.
    """

    id: str
    occurred_at: int
    tenant_id: str = ""
    log: str = ""
    epoch: str = ""
    sequence: int = 0
    revision: int = 0
    key: str
    outcome: str = "success"
    reason: str | None = None
    operation: str | None = None
    application_id: str | None = None
    user_id: str | None = None
    actor_id: str | None = None
    organization_id: str | None = None
    subject_token_id: str | None = None
    resource: str | None = None
    scope: str | None = None
    token_id: str | None = None
    issued_token_id: str | None = None
    context: AuditContext | None = None
    request_id: str = ""
    address: str = ""
    user_agent: str = ""
    ids: dict[str, str] = {}
    members: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    aggregate_count: int = 0
    gap: AuditGap | None = None


class Impersonation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An impersonation, from the subject token on.

    Attributes:
        id: Public id of the subject token.
        user_id: The subject.
        actor_id: The person that acts for the subject; None before the exchange, or without an actor token.
        client_id: The application that exchanged the subject token.
        organization_id: The organization that the access token was asked for.
        resource: The resource that the access token was asked for.
        scope: The scopes that were granted, separated by spaces.
        context: Reason and ticket, as the application that asked gave them.
        issued_to: The application that asked for the subject token.
        created_at: Milliseconds since the epoch, UTC.
        exchanged_at: When the subject token was spent, milliseconds since the epoch.
        expires_at: Of the access token, or of the subject token before there is one; milliseconds since the epoch.
        ended_at: When it ended before it expired, milliseconds since the epoch.
        ended_by: The user or, without one, the application that ended it, or did what ended it.
        reason: Why it ended: ``ended``, ``within`` (one that it is within was), ``all``, ``user``, ``actor``,
            ``client``, ``organization`` (all of it were); ``user_suspended``, ``actor_password``,
            ``client_exchange_off``, ``resource_deleted``, ``member_removed`` and the like (what happened to one); or
            the error of an exchange that was refused after the subject token was spent.
        events: Its entries in the audit trail, oldest first; empty in lists.
    """

    id: str
    user_id: str
    actor_id: str | None = None
    client_id: str | None = None
    organization_id: str | None = None
    resource: str | None = None
    scope: str | None = None
    context: AuditContext = AuditContext()
    issued_to: str = ""
    created_at: int
    exchanged_at: int | None = None
    expires_at: int
    ended_at: int | None = None
    ended_by: str | None = None
    reason: str | None = None
    events: tuple[AuditEntry, ...] = ()


class AuditFigure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often something happened in an hour.

    Attributes:
        hour: When the hour begins; milliseconds since the epoch.
        key: What happened, such as ``token.exchange.refused``.
        entries: How many entries of the audit trail have this key; at least 1.
    """

    hour: int
    key: str
    entries: int


class SignedHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last signed head of the audit trail; ``stead.audit.read_head`` verifies it.

    Attributes:
        head: A JWS of the type ``audit-head+jwt``.
        tree_size: How many entries it covers.
    """

    head: str
    tree_size: int


class InclusionProof(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Proves that an entry is in the tree of a head (RFC 9162 section 2.1.3); hashes are base64url.

    Attributes:
        leaf_index: Place of the entry, from 0.
        leaf_hash: Hash of its leaf.
        tree_size: Size of the tree of the head.
        audit_path: Hashes from the leaf to the root.
        head: The signed head.
    """

    leaf_index: int
    leaf_hash: str
    tree_size: int
    audit_path: tuple[str, ...]
    head: str


class ConsistencyProof(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "second": "to"}):
    """Proves that a tree begins with all of an earlier one (RFC 9162 section 2.1.4); hashes are base64url.

    Attributes:
        first: Size of the earlier tree.
        second: Size of the later tree.
        path: Hashes.
        head: The last signed head, which may be later.
    """

    first: int
    second: int
    path: tuple[str, ...]
    head: str
