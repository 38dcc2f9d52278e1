"""What a member may do, in PostgreSQL: its entity tag by itself, and the permissions."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from identity_common.http.api_errors import store_unavailable
from identity_common.stores.lookups import Lookups
from stead.event_types import MemberType
from template_service.role_contents.store import OrganizationPermission

MemberKey = tuple[str, str]
"""An organization and one of its members, by their ids."""


class Question(NamedTuple):
    """Who asks, and of which member.

    Attributes:
        issued_at_ms: When the caller's token was issued.
    """

    client_id: str
    subject: str
    issued_at_ms: int
    organization_id: str
    member_type: MemberType
    member_id: str


class Mark(NamedTuple):
    """Where our database stands: while this is the same, nothing in it has changed that decides about permissions.

    Attributes:
        revision: Of template-service: each of its transactions moves it.
        stream: Which incarnation of it management-service's events were read from; none before the first.
        sequence: How far: each batch of them moves it, in its own transaction.
    """

    revision: int
    stream: str | None
    sequence: int | None


class Glance(NamedTuple):
    """What one statement says.

    Attributes:
        is_live: Whether the caller's client is there, and its user too, not suspended and not ended since.
        organization_exists: Whether there is such an organization.
        is_member: Whether the member is one of it.
        digest: Of all that decides what the member may do.
        mark: Where the database stood when this was so.
    """

    is_live: bool
    organization_exists: bool
    is_member: bool
    digest: str
    mark: Mark

    @property
    def revision(self) -> int:
        """Of template-service, when this was so."""
        return self.mark.revision


# For all the requests of a turn of the event loop. What is looked up by its key stands in a subquery that the planner
# cannot turn round (OFFSET 0): whatever the statistics say, it is an index that is asked. A role's version grows with
# what it grants, a permission's with its name and description.
_GLANCE: Final = """
    SELECT
        EXISTS (SELECT FROM known_applications WHERE tenant_id = $1 AND id = asked.client_id OFFSET 0) AND (
            asked.subject = asked.client_id OR EXISTS (
                SELECT FROM known_users WHERE tenant_id = $1 AND id = asked.subject
                    AND NOT is_suspended AND tokens_valid_after <= asked.issued_at OFFSET 0
            )
        ) AS is_live,
        EXISTS (SELECT FROM organizations WHERE tenant_id = $1 AND id = asked.organization_id OFFSET 0)
            AS organization_exists,
        EXISTS (
            SELECT FROM members WHERE tenant_id = $1 AND organization_id = asked.organization_id
                AND member_id = asked.member_id AND member_type = asked.member_type OFFSET 0
        ) AS is_member,
        encode(sha256(convert_to(coalesce((
            SELECT string_agg(part, ' ' ORDER BY part COLLATE "C") FROM (
                SELECT role.id || '.' || role.version AS part
                FROM member_roles AS held, LATERAL (
                    SELECT id, version FROM roles WHERE tenant_id = $1 AND id = held.role_id OFFSET 0
                ) AS role
                WHERE held.tenant_id = $1 AND held.organization_id = asked.organization_id
                    AND held.member_id = asked.member_id
                UNION
                SELECT permission.id || '.' || permission.version
                FROM member_roles AS held, LATERAL (
                    SELECT permission_id FROM role_permissions
                    WHERE tenant_id = $1 AND role_id = held.role_id OFFSET 0
                ) AS granted, LATERAL (
                    SELECT id, version FROM permissions WHERE tenant_id = $1 AND id = granted.permission_id OFFSET 0
                ) AS permission
                WHERE held.tenant_id = $1 AND held.organization_id = asked.organization_id
                    AND held.member_id = asked.member_id
            ) AS parts
        ), ''), 'UTF8')), 'hex') AS digest,
        source_revision.revision, known.stream, known.sequence
    FROM source_revision
    LEFT JOIN directory_position AS known ON known.tenant_id = $1
    CROSS JOIN unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[]) WITH ORDINALITY
        AS asked (client_id, subject, issued_at, organization_id, member_type, member_id, position)
    WHERE source_revision.tenant_id = $1
    ORDER BY asked.position
"""
_MARK: Final = """
    SELECT source_revision.revision, known.stream, known.sequence
    FROM source_revision LEFT JOIN directory_position AS known ON known.tenant_id = $1
    WHERE source_revision.tenant_id = $1
"""
_PERMISSIONS: Final = """
    SELECT asked.position, permission.id, permission.name, permission.description
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS asked (organization_id, member_id, position), LATERAL (
        SELECT DISTINCT granted.permission_id AS id
        FROM member_roles AS held, LATERAL (
            SELECT permission_id FROM role_permissions WHERE tenant_id = $1 AND role_id = held.role_id OFFSET 0
        ) AS granted
        WHERE held.tenant_id = $1 AND held.organization_id = asked.organization_id AND held.member_id = asked.member_id
    ) AS held, LATERAL (
        SELECT id, name, description FROM permissions WHERE tenant_id = $1 AND id = held.id OFFSET 0
    ) AS permission
    ORDER BY asked.position, permission.name, permission.id
"""


async def glance(lookups: Lookups, tenant_id: str, asked: Sequence[Question]) -> list[Glance]:
    """Return an answer to each question, in their order; one statement for all of them.

    Raises:
        ApiError: 503 when the database does not answer, or is not prepared yet.
    """
    columns = [[question[column] for question in asked] for column in range(len(Question._fields))]
    rows = await lookups.fetch(_GLANCE, tenant_id, *columns)
    if not rows:
        raise store_unavailable()
    return [
        Glance(is_live, organization_exists, is_member, digest, Mark(*mark))
        for is_live, organization_exists, is_member, digest, *mark in rows
    ]


async def mark(lookups: Lookups, tenant_id: str) -> Mark:
    """Return where the database stands.

    Raises:
        ApiError: 503 when it does not answer, or is not prepared yet.
    """
    rows = await lookups.fetch(_MARK, tenant_id)
    if not rows:
        raise store_unavailable()
    return Mark(*rows[0])


async def permissions_of(
    lookups: Lookups, tenant_id: str, asked: Sequence[MemberKey]
) -> list[list[OrganizationPermission]]:
    """Return the organization permissions that each of these members holds: the union over its roles, by name.

    Raises:
        ApiError: 503 when the database does not answer.
    """
    different = list(dict.fromkeys(asked))
    columns = [[member[column] for member in different] for column in range(2)]
    rows = await lookups.fetch(_PERMISSIONS, tenant_id, *columns)
    found: list[list[OrganizationPermission]] = [[] for _ in different]
    for position, permission_id, name, description in rows:
        permission = OrganizationPermission(tenant_id=tenant_id, id=permission_id, name=name, description=description)
        found[position - 1].append(permission)
    by_member = dict(zip(different, found, strict=True))
    return [by_member[member] for member in asked]
