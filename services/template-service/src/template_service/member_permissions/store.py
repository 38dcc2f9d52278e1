"""Permissions of a member, in PostgreSQL: the state that the entity tag is computed from, and the list."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from identity_common.access.liveness import live_caller
from identity_common.failures import TemporarilyUnavailable
from identity_common.stores.lookups import KeyLookup, Lookups
from stead.event_types import MemberType
from template_service.known.store import valid_exchange
from template_service.role_contents.store import OrganizationPermission

MemberKey = tuple[str, str]
"""The ids of an organization and one of its members."""


class Member(NamedTuple):
    """A user or application in an organization; it need not be a member."""

    organization_id: str
    member_type: MemberType
    member_id: str

    @property
    def key(self) -> MemberKey:
        """Identifies the member."""
        return self.organization_id, self.member_id


class StateKey(NamedTuple):
    """A caller and a member.

    Attributes:
        user_id: The subject or an actor of the caller's token; the client itself without a user.
        issued_at_ms: When the token was issued.
        is_exchanged: Whether it was issued by a token exchange.
    """

    client_id: str
    user_id: str
    issued_at_ms: int
    organization_id: str
    member_type: MemberType
    member_id: str
    is_exchanged: bool = False


class DatabaseVersion(NamedTuple):
    """A version of the database: while it is the same, nothing that determines permissions has changed.

    Attributes:
        revision: Of template-service; every transaction that records a change increments it.
        stream: Incarnation of the stream that management-service's events were read from; None before the first.
        sequence: Position in it; every batch of events advances it, in its own transaction.
    """

    revision: int
    stream: str | None
    sequence: int | None


class PermissionState(NamedTuple):
    """What determines whether a caller may read, and the permissions of a member.

    Attributes:
        is_live: Whether the caller's client and user exist, and may still use the token.
        joined_at: When the member joined, milliseconds since the epoch; None if it is not a member.
        digest: SHA-256, in hexadecimal, of everything that determines the member's permissions.
        version: The version of the database that this was read at.
    """

    is_live: bool
    organization_exists: bool
    joined_at: int | None
    digest: str
    version: DatabaseVersion


_LIVE_CALLER: Final = live_caller(
    "requested",
    applications="known_applications",
    users="known_users",
    valid_exchange=valid_exchange("requested.issued_at"),
)

# One statement for all the requests of a tick of the event loop. OFFSET 0 keeps the planner from flattening a subquery:
# whatever the statistics say, each row is found by an index. A role's version is incremented when its grants change, a
# permission's when its name or description does.
_STATES: Final = KeyLookup(f"""
    SELECT
        {_LIVE_CALLER} AS is_live,
        EXISTS (SELECT FROM organizations WHERE tenant_id = $1 AND id = requested.organization_id OFFSET 0)
            AS organization_exists,
        (
            SELECT joined_at FROM members WHERE tenant_id = $1 AND organization_id = requested.organization_id
                AND member_id = requested.member_id AND member_type = requested.member_type
        ) AS joined_at,
        encode(sha256(convert_to(coalesce((
            SELECT string_agg(part, ' ' ORDER BY part COLLATE "C") FROM (
                SELECT role.id || '.' || role.version AS part
                FROM member_roles AS held, LATERAL (
                    SELECT id, version FROM roles WHERE tenant_id = $1 AND id = held.role_id OFFSET 0
                ) AS role
                WHERE held.tenant_id = $1 AND held.organization_id = requested.organization_id
                    AND held.member_id = requested.member_id
                UNION
                SELECT permission.id || '.' || permission.version
                FROM member_roles AS held, LATERAL (
                    SELECT permission_id FROM role_permissions
                    WHERE tenant_id = $1 AND role_id = held.role_id OFFSET 0
                ) AS granted, LATERAL (
                    SELECT id, version FROM permissions WHERE tenant_id = $1 AND id = granted.permission_id OFFSET 0
                ) AS permission
                WHERE held.tenant_id = $1 AND held.organization_id = requested.organization_id
                    AND held.member_id = requested.member_id
            ) AS parts
        ), ''), 'UTF8')), 'hex') AS digest,
        source_revision.revision, known.stream, known.sequence
    FROM source_revision
    LEFT JOIN projection_position AS known ON known.tenant_id = $1
    CROSS JOIN unnest(
        $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[]
    ) WITH ORDINALITY
        AS requested (client_id, subject, issued_at, organization_id, member_type, member_id, is_exchanged, position)
    WHERE source_revision.tenant_id = $1
    ORDER BY requested.position
""")  # noqa: S608 - no values
_VERSION: Final = KeyLookup("""
    SELECT source_revision.revision, known.stream, known.sequence
    FROM source_revision LEFT JOIN projection_position AS known ON known.tenant_id = $1
    WHERE source_revision.tenant_id = $1
""")
_PERMISSIONS: Final = KeyLookup("""
    SELECT requested.position, permission.id, permission.name, permission.description
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS requested (organization_id, member_id, position), LATERAL (
        SELECT DISTINCT granted.permission_id AS id
        FROM member_roles AS held, LATERAL (
            SELECT permission_id FROM role_permissions WHERE tenant_id = $1 AND role_id = held.role_id OFFSET 0
        ) AS granted
        WHERE held.tenant_id = $1 AND held.organization_id = requested.organization_id
            AND held.member_id = requested.member_id
    ) AS held, LATERAL (
        SELECT id, name, sort_key, description FROM permissions WHERE tenant_id = $1 AND id = held.id OFFSET 0
    ) AS permission
    ORDER BY requested.position, permission.sort_key, permission.name, permission.id
""")


async def permission_states(lookups: Lookups, tenant_id: str, keys: Sequence[StateKey]) -> list[PermissionState]:
    """Return the state for each key, in their order, by one statement.

    Raises:
        TemporarilyUnavailable: The database does not answer or is not migrated yet.
    """
    columns = [[key[column] for key in keys] for column in range(len(StateKey._fields))]
    rows = await lookups.fetch(_STATES, tenant_id, *columns)
    if not rows:
        raise TemporarilyUnavailable
    return [
        PermissionState(is_live, organization_exists, joined_at, digest, DatabaseVersion(*version))
        for is_live, organization_exists, joined_at, digest, *version in rows
    ]


async def database_version(lookups: Lookups, tenant_id: str) -> DatabaseVersion:
    """Return the version of the database.

    Raises:
        TemporarilyUnavailable: It does not answer or is not migrated yet.
    """
    rows = await lookups.fetch(_VERSION, tenant_id)
    if not rows:
        raise TemporarilyUnavailable
    return DatabaseVersion(*rows[0])


async def permissions_of(
    lookups: Lookups, tenant_id: str, members: Sequence[MemberKey]
) -> list[list[OrganizationPermission]]:
    """Return the organization permissions of each member, by name: the union over its roles."""
    distinct = list(dict.fromkeys(members))
    columns = [[member[column] for member in distinct] for column in range(2)]
    rows = await lookups.fetch(_PERMISSIONS, tenant_id, *columns)
    found: dict[MemberKey, list[OrganizationPermission]] = {member: [] for member in distinct}
    for position, permission_id, name, description in rows:
        permission = OrganizationPermission(tenant_id=tenant_id, id=permission_id, name=name, description=description)
        found[distinct[position - 1]].append(permission)
    return [found[member] for member in members]
