"""Subjects of the bus, and the states of management-service's aggregates.

An event carries the *full new state* of one aggregate, or ``"deleted": true``, so that no consumer needs the event
before it. A relation that can grow is an aggregate of its own. It may refer to deleted ids: they grant nothing, and ids
are never reused. The envelope and the aggregates of template-service, which other teams read, are in
``stead.event_types``.
"""

from typing import Final, Literal

import msgspec

from identity_common.authentication import FactorKind
from identity_common.revisions import Source
from identity_common.wire.claims_function import TokenKind
from stead.event_types import PUBLIC_PREFIX, CloudEvent, subject_of

STREAM_INTERNAL: Final = "IDENTITY_INTERNAL"
STREAM_EVENTS: Final = "IDENTITY_EVENTS"
STREAM_STATE: Final = "IDENTITY_STATE"
WATERMARK_TYPE: Final = "revision.published"

_PREFIX: Final[dict[Source, str]] = {"management": "identity-internal", "template": PUBLIC_PREFIX}
_PREFIX_OF: Final = {f"/{source}": prefix for source, prefix in _PREFIX.items()}

ApplicationType = Literal["Native", "SPA", "Traditional", "MachineToMachine"]
RoleType = Literal["User", "MachineToMachine"]
HolderKind = Literal["user", "application"]
RegistrationMode = Literal["off", "invited", "domains", "open"]
SecondFactorMode = Literal["off", "optional", "required"]
DemandedLevel = Literal["mfa", "phr"]
"""A level that can be demanded: more than the password of every sign-in."""

NarrowedKind = Literal["scope", "user", "application"]
SecretMethod = Literal["client_secret_basic", "client_secret_post"]


def subject_prefix(source: Source) -> str:
    """Return the first token of a source's subjects."""
    return _PREFIX[source]


def event_subject(source: Source, tenant_id: str, kind: str, *ids: str) -> str:
    """Return the subject of an aggregate: ``identity-internal.default.user.<id>``."""
    return ".".join((_PREFIX[source], tenant_id, kind, *ids))


def is_genuine(event: CloudEvent, subject: str) -> bool:
    """Return whether the subject of a message is that of its event's source, tenant and aggregate."""
    return subject == subject_of(event, _PREFIX_OF.get(event.source, ""))


def watermark_subject(source: Source, tenant_id: str) -> str:
    """Return the subject of a source's watermark."""
    return event_subject(source, tenant_id, "revision", source)


def relay_subject(source: Source, tenant_id: str) -> str:
    """Return the subject on which the active relay reports its progress to the other replicas; no stream has it."""
    return f"identity-relay.{tenant_id}.{source}"


class Watermark(msgspec.Struct, frozen=True):
    """``data`` of a watermark: all events up to a revision are in the stream.

    Attributes:
        revision: The highest published revision.
    """

    revision: int


class UserState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user, with the fields that claims and liveness need. Roles are in ``AssignmentState``.

    Attributes:
        is_email_verified: Whether the e-mail address is verified, by a mailed link or by an administrator.
        external_id: Returned by template-service with the members of an organization, like ``has_password``.
        has_password: Returned by template-service with the members of an organization.
        is_suspended: A suspended user gets no tokens, and existing ones are refused.
        tokens_valid_after: Milliseconds; tokens issued before are refused (suspension, password change).
        second_factors: Kinds of the second factors that the user has set up, sorted.
        custom_data: Free-form, at most 64 KiB of JSON.
        profile: Free-form, at most 64 KiB of JSON.
    """

    id: str
    deleted: bool = False
    username: str | None = None
    primary_email: str | None = None
    primary_phone: str | None = None
    name: str | None = None
    avatar: str | None = None
    external_id: str | None = None
    is_email_verified: bool = False
    has_password: bool = False
    is_suspended: bool = False
    tokens_valid_after: int = 0
    second_factors: tuple[FactorKind, ...] = ()
    custom_data: msgspec.Raw = msgspec.Raw(b"{}")
    profile: msgspec.Raw = msgspec.Raw(b"{}")
    created_at: int = 0
    updated_at: int = 0


class SecretState(msgspec.Struct, frozen=True, kw_only=True):
    """One client secret.

    Attributes:
        sha256: Hexadecimal SHA-256 of the secret; 256 random bits need no slow hash.
        expires_at: Milliseconds; None if it does not expire.
    """

    sha256: str
    expires_at: int | None = None


class ApplicationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An application, which is an OAuth client. Roles are in ``AssignmentState``.

    Attributes:
        exchanged_valid_after: Milliseconds, in whole seconds; tokens that it obtained by exchange before are refused,
            because token exchange has been off since then.
        allow_management_api: Whether it may request tokens for the Management API on behalf of its users.
        id_token_ttl_s: Lifetime of its ID tokens.
        refresh_token_ttl_days: Days after which an unused refresh token expires.
        rotate_refresh_token: Whether each use of a refresh token replaces it; always so for public clients.
        always_issue_refresh_token: Whether refresh tokens are issued without ``offline_access``.
        token_endpoint_auth_method: How a Traditional application authenticates (RFC 7591 section 2).
        require_pkce: Whether its authorization requests need a code challenge; false for first-party Traditional only.
        minimum_acr: How strongly its users must have signed in; None for the tenant's policy alone.
        logo_uri: Shown on the pages for signing in.
        primary_color: Of the buttons there: ``#rrggbb``, legible under and on white.
    """

    id: str
    deleted: bool = False
    name: str = ""
    type: ApplicationType = "MachineToMachine"
    is_third_party: bool = False
    allow_token_exchange: bool = False
    exchanged_valid_after: int = 0
    allow_management_api: bool = False
    id_token_ttl_s: int = 3600
    refresh_token_ttl_days: int = 14
    rotate_refresh_token: bool = True
    always_issue_refresh_token: bool = False
    token_endpoint_auth_method: SecretMethod = "client_secret_basic"  # noqa: S105 - a method
    require_pkce: bool = True
    minimum_acr: DemandedLevel | None = None
    redirect_uris: tuple[str, ...] = ()
    post_logout_redirect_uris: tuple[str, ...] = ()
    cors_allowed_origins: tuple[str, ...] = ()
    secrets: tuple[SecretState, ...] = ()
    logo_uri: str | None = None
    primary_color: str | None = None
    custom_data: msgspec.Raw = msgspec.Raw(b"{}")


class ResourceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API resource.

    Attributes:
        indicator: Value of ``resource`` in requests and of ``aud`` in tokens.
        access_token_ttl_s: Lifetime of its access tokens.
        tokens_valid_after: Milliseconds, in whole seconds; tokens issued before are refused, as they are for an earlier
            resource with this indicator.
        is_default: Whether client credentials that name no target are for it. A change of the default is two events,
            one for each resource, in either order.
    """

    id: str
    deleted: bool = False
    name: str = ""
    indicator: str = ""
    access_token_ttl_s: int = 3600
    tokens_valid_after: int = 0
    is_default: bool = False


class ScopeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scope of a resource: an API permission. Without its resource it grants nothing."""

    id: str
    deleted: bool = False
    resource_id: str = ""
    name: str = ""
    description: str | None = None


class RoleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API role with the sorted ids of its scopes."""

    id: str
    deleted: bool = False
    name: str = ""
    description: str = ""
    type: RoleType = "User"
    scope_ids: tuple[str, ...] = ()


class AssignmentState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The API roles of a user or machine-to-machine application, as sorted ids."""

    id: str
    deleted: bool = False
    holder_kind: HolderKind = "user"
    role_ids: tuple[str, ...] = ()


class NarrowingState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may have lost API permissions in the revision of this event; what only adds permissions is not published.

    The stream keeps the newest event of a subject, and that is the one that counts.

    Attributes:
        id: Of the user or application that lost a role; of a scope, a hash of the next two.
        kind: ``scope``: a role no longer grants it, it was renamed or deleted.
        indicator: Of the scope's resource.
        name: Of the scope, as tokens have it.
    """

    id: str
    kind: NarrowedKind
    deleted: bool = False
    indicator: str = ""
    name: str = ""


class ImpersonationPolicyState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What token-service judges of the tenant's policy of impersonations. Never published: all of it is off.

    Attributes:
        require_actor: Whether an exchange needs an actor token.
        excluded_role_ids: Sorted ids of the API roles whose holders cannot be impersonated.
        actor_max_age_s: How long ago an actor may have signed in, seconds; None for any time.
        actor_acr: How strongly an actor must have signed in; None for any sign-in.
    """

    require_actor: bool = False
    excluded_role_ids: tuple[str, ...] = ()
    actor_max_age_s: int | None = None
    actor_acr: DemandedLevel | None = None


class SignInPolicyState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What token-service shows of the tenant's policy of signing in. Never published: the default.

    Attributes:
        registration: Whether the sign-in page offers to register; which addresses may, management-service judges.
        second_factor: ``off``: none can be set up, and none is asked for unless something else demands it;
            ``optional``: it is asked for where one is set up; ``required``: every sign-in needs one.
    """

    registration: RegistrationMode = "off"
    second_factor: SecondFactorMode = "optional"


class ConnectorState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A connector to a provider: what token-service needs to offer it, and to end what came through it.

    Attributes:
        is_open: Whether people sign in through it: it is enabled, and has a client at the provider.
        domains: Sorted, lower-case domains of the e-mail addresses whose owners sign in there.
        logo_uri: Shown on its button.
        session_max_age_s: How long a sign-in may go on without asking the provider again, seconds; None for as long as
            any other.
        closed_at: When it was closed or opened last, milliseconds since the epoch; sign-ins before that have ended,
            even one that was under way while it was closed.
    """

    id: str
    deleted: bool = False
    name: str = ""
    is_open: bool = False
    domains: tuple[str, ...] = ()
    logo_uri: str | None = None
    session_max_age_s: int | None = None
    closed_at: int = 0


class IdentityState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An identity that a user had at a connector's provider; published when it is removed.

    Not when its connector or its user is deleted, which says as much.

    Attributes:
        subject: Stands for the person at the provider, as in ``ProviderPerson``.
        ended_at: When it was removed, milliseconds since the epoch.
    """

    id: str
    deleted: bool = False
    user_id: str = ""
    connector_id: str = ""
    subject: str | None = None
    ended_at: int = 0


class ProviderGroupsState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user's last sign-in through a connector said; published with every such sign-in.

    Deleted with the identity, the connector, or the user.

    Attributes:
        id: Of the identity.
        email_domain: Of the address, lower-case, if the provider says that it is verified.
        groups: Sorted values of the connector's claim of groups.
    """

    id: str
    deleted: bool = False
    user_id: str = ""
    connector_id: str = ""
    email_domain: str | None = None
    groups: tuple[str, ...] = ()


class AppliedState(msgspec.Struct, frozen=True, kw_only=True):
    """How far template-service has applied the sign-ins that management-service published.

    In the stream behind the events of what it changed.

    Attributes:
        id: ``management``.
        revision: Management's.
    """

    id: str
    revision: int


class ClaimsFunctionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The active version of the custom-claims function for one kind of token.

    Attributes:
        version: Counts the versions of the kind, from 1.
        script: JavaScript, at most 64 KiB.
        sealed_environment_variables: See ``SealedVariables``; empty if there are none.
        block_issuance_on_error: Whether no token is issued when the script fails.
    """

    kind: TokenKind
    deleted: bool = False
    version: int = 0
    script: str = ""
    sealed_environment_variables: str = ""
    block_issuance_on_error: bool = False
