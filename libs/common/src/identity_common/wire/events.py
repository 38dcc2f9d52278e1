"""What travels on the bus: the subjects, and the state of every internal aggregate.

An event carries the *full new state* of one aggregate; a deletion carries ``"deleted": true``. One event is enough to
be right: nobody needs the one before. A relation is an aggregate of its own wherever it can grow. A relation may name
ids that have been deleted since; they grant nothing, and no id is ever reused (lesson L5). The envelope and the
aggregates of template-service, which other teams read, are in ``stead.event_types``.
"""

from typing import Final, Literal

import msgspec

from identity_common.revisions import Source
from stead.event_types import PUBLIC_PREFIX, CloudEvent, subject_of

STREAM_INTERNAL: Final = "IDENTITY_INTERNAL"
STREAM_EVENTS: Final = "IDENTITY_EVENTS"
STREAM_STATE: Final = "IDENTITY_STATE"

_PREFIX: Final[dict[Source, str]] = {"management": "identity-internal", "template": PUBLIC_PREFIX}
_PREFIX_OF: Final = {f"/{source}": prefix for source, prefix in _PREFIX.items()}

ApplicationType = Literal["Native", "SPA", "Traditional", "MachineToMachine"]
RoleType = Literal["User", "MachineToMachine"]
HolderKind = Literal["user", "application"]


def subject_prefix(source: Source) -> str:
    """Return the first token of the subjects that a source publishes."""
    return _PREFIX[source]


def event_subject(source: Source, tenant_id: str, kind: str, *ids: str) -> str:
    """Return the subject of an aggregate: ``identity-internal.default.user.<id>``."""
    return ".".join((_PREFIX[source], tenant_id, kind, *ids))


def is_genuine(event: CloudEvent, subject: str) -> bool:
    """Return whether an event came on a subject of the source, the tenant and the aggregate that it names."""
    return subject == subject_of(event, _PREFIX_OF.get(event.source, ""))


def watermark_subject(source: Source, tenant_id: str) -> str:
    """Return the subject of a source's watermark; it sorts behind every event that it covers."""
    return event_subject(source, tenant_id, "revision", source)


def relay_subject(source: Source, tenant_id: str) -> str:
    """Return the subject, of no stream, on which the active relay tells the other replicas how far it is."""
    return f"identity-relay.{tenant_id}.{source}"


class Watermark(msgspec.Struct, frozen=True):
    """``data`` of a watermark: every event up to this revision is in the stream.

    Attributes:
        revision: The highest revision that is out.
    """

    revision: int


class UserState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user, as the claims of tokens and the liveness check see one. Roles are an ``AssignmentState``.

    Attributes:
        is_email_verified: An administrator vouches for the e-mail address.
        has_password: Shown by template-service, which answers users as members of organizations.
        is_suspended: A suspended user gets no token and speaks through none.
        tokens_valid_after: Milliseconds; whatever was issued before is dead (suspension, password change).
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
    is_email_verified: bool = False
    has_password: bool = False
    is_suspended: bool = False
    tokens_valid_after: int = 0
    custom_data: msgspec.Raw = msgspec.Raw(b"{}")
    profile: msgspec.Raw = msgspec.Raw(b"{}")
    created_at: int = 0
    updated_at: int = 0


class SecretState(msgspec.Struct, frozen=True, kw_only=True):
    """One client secret.

    Attributes:
        sha256: Hexadecimal SHA-256 of the secret; 256 random bits need no slow hash.
        expires_at: Milliseconds, or none.
    """

    sha256: str
    expires_at: int | None = None


class ApplicationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An application, which is a client of OAuth. Roles are an ``AssignmentState``.

    Attributes:
        id_token_ttl_s: Lifetime of its ID tokens.
        refresh_token_ttl_days: How long a refresh token may lie unused.
        rotate_refresh_token: Whether every use of a refresh token gives a new one; public clients always rotate.
        always_issue_refresh_token: Whether it gets refresh tokens without ``offline_access``.
    """

    id: str
    deleted: bool = False
    name: str = ""
    type: ApplicationType = "MachineToMachine"
    is_third_party: bool = False
    allow_token_exchange: bool = False
    id_token_ttl_s: int = 3600
    refresh_token_ttl_days: int = 14
    rotate_refresh_token: bool = True
    always_issue_refresh_token: bool = False
    redirect_uris: tuple[str, ...] = ()
    post_logout_redirect_uris: tuple[str, ...] = ()
    cors_allowed_origins: tuple[str, ...] = ()
    secrets: tuple[SecretState, ...] = ()
    custom_data: msgspec.Raw = msgspec.Raw(b"{}")


class ResourceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API resource.

    Attributes:
        indicator: What a client names in ``resource`` and a token in ``aud``.
        access_token_ttl_s: Lifetime of its access tokens.
    """

    id: str
    deleted: bool = False
    name: str = ""
    indicator: str = ""
    access_token_ttl_s: int = 3600
    is_default: bool = False


class ScopeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scope of a resource: an API permission. A scope whose resource is gone grants nothing."""

    id: str
    deleted: bool = False
    resource_id: str = ""
    name: str = ""
    description: str | None = None


class RoleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API role with the ids of the scopes it grants, sorted."""

    id: str
    deleted: bool = False
    name: str = ""
    type: RoleType = "User"
    scope_ids: tuple[str, ...] = ()


class AssignmentState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The API roles of one user or machine-to-machine application: their ids, sorted."""

    id: str
    deleted: bool = False
    holder_kind: HolderKind = "user"
    role_ids: tuple[str, ...] = ()
