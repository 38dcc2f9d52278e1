"""Sign-ins through connectors in PostgreSQL. Every statement is one, however many members and roles it concerns.

OFFSET 0 keeps the planner from flattening a subquery: each row is looked up by its key, whatever the statistics say.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import ARRAY, BigInteger, BindParameter, Boolean, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.wire.events import ProviderGroupsState
from stead.event_types import MemberState
from template_service.known.store import Known
from template_service.provider_sign_ins.rules import MemberKey, Reason, Source


def _texts(*names: str) -> list[BindParameter[Sequence[str]]]:
    return [bindparam(name, type_=ARRAY(Text)) for name in names]


_TENANT: Final = bindparam("tenant", type_=Text)
_SOURCES: Final = _texts("users", "connectors")
_MEMBERS: Final = _texts("organizations", "members")

_PUT: Final = text(
    """
    INSERT INTO known_identities AS known
        (tenant_id, id, revision, user_id, connector_id, email_domain, groups, is_gone, is_applied)
    SELECT :tenant, id, revision, user_id, connector_id, email_domain,
        ARRAY(SELECT json_array_elements_text(CAST(groups AS json))), false, false
    FROM unnest(:ids, :revisions, :users, :connectors, :domains, :groups)
        AS given (id, revision, user_id, connector_id, email_domain, groups)
    ON CONFLICT (tenant_id, id) DO UPDATE SET revision = excluded.revision, user_id = excluded.user_id,
        connector_id = excluded.connector_id, email_domain = excluded.email_domain, groups = excluded.groups,
        is_gone = false, is_applied = false
    WHERE known.revision < excluded.revision
    """
).bindparams(_TENANT, *_SOURCES, *_texts("ids", "domains", "groups"), bindparam("revisions", type_=ARRAY(BigInteger)))
_END: Final = text(
    """
    UPDATE known_identities SET is_gone = true, is_applied = false WHERE tenant_id = :tenant AND id = ANY(:ids)
    """
).bindparams(_TENANT, *_texts("ids"))
_FORGET_USERS: Final = text(
    "DELETE FROM known_identities WHERE tenant_id = :tenant AND user_id = ANY(:ids)"
).bindparams(_TENANT, *_texts("ids"))
_TO_APPLY: Final = text(
    """
    SELECT user_id, connector_id, bool_or(NOT is_gone) AS has_signed_in FROM known_identities AS identity
    WHERE tenant_id = :tenant AND NOT is_applied
        AND EXISTS (SELECT FROM known_users WHERE tenant_id = :tenant AND id = identity.user_id OFFSET 0)
    GROUP BY user_id, connector_id
    """
).bindparams(_TENANT)
_APPLIED: Final = text(
    """
    WITH applied AS (
        SELECT identity.ctid, is_gone FROM unnest(:users, :connectors) AS requested (user_id, connector_id), LATERAL (
            SELECT ctid, is_gone FROM known_identities WHERE tenant_id = :tenant
                AND user_id = requested.user_id AND connector_id = requested.connector_id AND NOT is_applied OFFSET 0
        ) AS identity
    ), gone AS (
        DELETE FROM known_identities USING applied WHERE known_identities.ctid = applied.ctid AND applied.is_gone
    )
    UPDATE known_identities SET is_applied = true FROM applied
    WHERE known_identities.ctid = applied.ctid AND NOT applied.is_gone
    """
).bindparams(_TENANT, *_SOURCES)
# A role that was deleted, or is for applications by now, is not given to anyone.
_REASONS: Final = text(
    """
    WITH identity AS MATERIALIZED (
        SELECT requested.user_id, requested.connector_id, found.email_domain, found.groups
        FROM unnest(:users, :connectors) AS requested (user_id, connector_id), LATERAL (
            SELECT email_domain, groups FROM known_identities WHERE tenant_id = :tenant
                AND user_id = requested.user_id AND connector_id = requested.connector_id AND NOT is_gone OFFSET 0
        ) AS found
    )
    SELECT user_id, connector_id, organization_id, NULL AS role_id FROM identity, LATERAL (
        SELECT organization_id FROM jit_email_domains
        WHERE tenant_id = :tenant AND email_domain = identity.email_domain OFFSET 0
    ) AS domain
    UNION
    SELECT user_id, connector_id, organization_id, NULL FROM identity, LATERAL (
        SELECT organization_id FROM jit_sso_connectors
        WHERE tenant_id = :tenant AND connector_id = identity.connector_id OFFSET 0
    ) AS connector
    UNION
    SELECT user_id, connector_id, organization_id, role.id FROM identity, unnest(groups) AS named, LATERAL (
        SELECT organization_id, role_ids FROM jit_groups WHERE tenant_id = :tenant
            AND connector_id = identity.connector_id AND group_value = named OFFSET 0
    ) AS mapped, unnest(mapped.role_ids) AS role_id, LATERAL (
        SELECT id FROM roles WHERE tenant_id = :tenant AND id = role_id AND type = 'User' OFFSET 0
    ) AS role
    """
).bindparams(_TENANT, *_SOURCES)
_GIVEN_BEFORE: Final = text(
    """
    SELECT DISTINCT member.organization_id, requested.user_id
    FROM unnest(:users, :connectors) AS requested (user_id, connector_id), LATERAL (
        SELECT organization_id FROM members WHERE tenant_id = :tenant AND member_id = requested.user_id OFFSET 0
    ) AS member
    WHERE EXISTS (
        SELECT FROM member_roles AS held WHERE held.tenant_id = :tenant
            AND held.organization_id = member.organization_id AND held.member_id = requested.user_id
            AND requested.connector_id = ANY(held.origins) OFFSET 0
    )
    """
).bindparams(_TENANT, *_SOURCES)
_BY_GROUPS: Final = text(
    """
    SELECT organization_id, member_id FROM members
    WHERE tenant_id = :tenant AND member_id = ANY(:users) AND by_groups
    """
).bindparams(_TENANT, *_texts("users"))
_LOCK_ORGANIZATIONS: Final = text(
    """
    SELECT found.id FROM unnest(:ids) AS requested (id), LATERAL (
        SELECT id FROM organizations WHERE tenant_id = :tenant AND id = requested.id FOR KEY SHARE
    ) AS found
    """
).bindparams(_TENANT, *_texts("ids"))
_JOIN: Final = text(
    """
    INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at, by_groups)
    SELECT :tenant, organization_id, member_id, 'user', :now, by_groups
    FROM unnest(:organizations, :members, :by_groups) AS joining (organization_id, member_id, by_groups)
    ON CONFLICT DO NOTHING RETURNING organization_id, member_id
    """
).bindparams(_TENANT, *_MEMBERS, bindparam("by_groups", type_=ARRAY(Boolean)), bindparam("now", type_=BigInteger))
_MARK_REJOINED: Final = text(
    """
    UPDATE members SET rejoined = true FROM unnest(:organizations, :members) AS given (organization_id, member_id)
    WHERE tenant_id = :tenant AND members.organization_id = given.organization_id
        AND members.member_id = given.member_id
    """
).bindparams(_TENANT, *_MEMBERS)
_LOCK: Final = text(
    """
    SELECT requested.organization_id, requested.member_id, member.by_groups
    FROM unnest(:organizations, :members) AS requested (organization_id, member_id), LATERAL (
        SELECT by_groups FROM members WHERE tenant_id = :tenant AND organization_id = requested.organization_id
            AND member_id = requested.member_id AND member_type = 'user' FOR NO KEY UPDATE
    ) AS member
    """
).bindparams(_TENANT, *_MEMBERS)
_STAY: Final = text(
    """
    UPDATE members SET by_groups = false FROM unnest(:organizations, :members) AS given (organization_id, member_id)
    WHERE tenant_id = :tenant AND members.organization_id = given.organization_id
        AND members.member_id = given.member_id
    """
).bindparams(_TENANT, *_MEMBERS)
_LEAVE: Final = text(
    """
    DELETE FROM members USING unnest(:organizations, :members) AS given (organization_id, member_id)
    WHERE tenant_id = :tenant AND members.organization_id = given.organization_id
        AND members.member_id = given.member_id
    """
).bindparams(_TENANT, *_MEMBERS)
_HELD: Final = text(
    """
    SELECT requested.organization_id, requested.member_id, held.role_id, held.origins
    FROM unnest(:organizations, :members) AS requested (organization_id, member_id), LATERAL (
        SELECT role_id, origins FROM member_roles WHERE tenant_id = :tenant
            AND organization_id = requested.organization_id AND member_id = requested.member_id OFFSET 0
    ) AS held
    """
).bindparams(_TENANT, *_MEMBERS)
_GIVEN_ON_JOINING: Final = text(
    """
    SELECT organization_id, role_id FROM jit_roles WHERE tenant_id = :tenant AND organization_id = ANY(:ids)
    """
).bindparams(_TENANT, *_texts("ids"))
_LOCK_ROLES: Final = text(
    """
    SELECT found.id FROM unnest(:ids) AS requested (id), LATERAL (
        SELECT id FROM roles WHERE tenant_id = :tenant AND id = requested.id AND type = 'User' FOR KEY SHARE
    ) AS found
    """
).bindparams(_TENANT, *_texts("ids"))
_STORE_ORIGINS: Final = text(
    """
    INSERT INTO member_roles (tenant_id, organization_id, member_id, role_id, origins)
    SELECT :tenant, organization_id, member_id, role_id, string_to_array(origins, ' ')
    FROM unnest(:organizations, :members, :roles, :origins) AS given (organization_id, member_id, role_id, origins)
    ON CONFLICT (tenant_id, organization_id, member_id, role_id) DO UPDATE SET origins = excluded.origins
    """
).bindparams(_TENANT, *_MEMBERS, *_texts("roles", "origins"))
_TAKE: Final = text(
    """
    DELETE FROM member_roles
    USING unnest(:organizations, :members, :roles) AS given (organization_id, member_id, role_id)
    WHERE tenant_id = :tenant AND member_roles.organization_id = given.organization_id
        AND member_roles.member_id = given.member_id AND member_roles.role_id = given.role_id
    """
).bindparams(_TENANT, *_MEMBERS, *_texts("roles"))
_STATES: Final = text(
    """
    SELECT requested.organization_id, requested.member_id, member.joined_at, member.rejoined, ARRAY(
        SELECT role_id FROM member_roles AS held
        WHERE held.tenant_id = :tenant AND held.organization_id = requested.organization_id
            AND held.member_id = requested.member_id
            AND EXISTS (SELECT FROM roles WHERE roles.tenant_id = :tenant AND roles.id = held.role_id OFFSET 0)
        ORDER BY role_id
    ) AS role_ids
    FROM unnest(:organizations, :members) AS requested (organization_id, member_id), LATERAL (
        SELECT joined_at, rejoined FROM members WHERE tenant_id = :tenant
            AND organization_id = requested.organization_id AND member_id = requested.member_id OFFSET 0
    ) AS member
    """
).bindparams(_TENANT, *_MEMBERS)


async def put_identities(connection: AsyncConnection, tenant_id: str, given: Sequence[Known]) -> None:
    """Store what sign-ins said; each is to be applied, but for one that was stored before."""
    states: list[ProviderGroupsState] = [each.state for each in given]
    values = {
        "tenant": tenant_id,
        "revisions": [each.revision for each in given],
        "ids": [state.id for state in states],
        "users": [state.user_id for state in states],
        "connectors": [state.connector_id for state in states],
        "domains": [state.email_domain for state in states],
        "groups": [msgspec.json.encode(state.groups).decode() for state in states],
    }
    await connection.execute(_PUT, values)


async def end_identities(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> None:
    """Store that identities are gone, which is to be applied."""
    await connection.execute(_END, {"tenant": tenant_id, "ids": list(ids)})


async def forget_users(connection: AsyncConnection, tenant_id: str, user_ids: Collection[str]) -> None:
    """Delete the identities of deleted users."""
    await connection.execute(_FORGET_USERS, {"tenant": tenant_id, "ids": list(user_ids)})


async def to_apply(connection: AsyncConnection, tenant_id: str) -> dict[Source, bool]:
    """Return what is to be applied of the users that are known.

    Returns:
        Whose sign-ins through what, and whether there was one; else an identity has gone.
    """
    rows = await connection.execute(_TO_APPLY, {"tenant": tenant_id})
    return {Source(*source): has_signed_in for *source, has_signed_in in rows}


class SignIns:
    """Sign-ins that are applied within one transaction, and the members and roles that they concern.

    Rows are locked, added and removed in the order of their keys, so that transactions do not deadlock.
    """

    def __init__(self, connection: AsyncConnection, tenant_id: str, sources: Collection[Source]) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._of_sources = {
            "tenant": tenant_id,
            "users": [source.user_id for source in sources],
            "connectors": [source.connector_id for source in sources],
        }

    async def reasons(self) -> list[Reason]:
        """Return why their users belong to organizations."""
        rows = await self._connection.execute(_REASONS, self._of_sources)
        return [Reason(Source(*source), organization_id, role_id) for *source, organization_id, role_id in rows]

    async def concerned_before(self) -> set[MemberKey]:
        """Return the members whose roles come from these connectors, or that are members for groups alone."""
        rows = [
            *await self._connection.execute(_GIVEN_BEFORE, self._of_sources),
            *await self._connection.execute(_BY_GROUPS, {k: self._of_sources[k] for k in ("tenant", "users")}),
        ]
        return {MemberKey(*row) for row in rows}

    async def applied(self) -> None:
        """Store that they are applied; forget identities that are gone."""
        await self._connection.execute(_APPLIED, self._of_sources)

    async def lock_organizations(self, ids: Collection[str]) -> set[str]:
        """Lock organizations against deletion until the transaction ends; return those that exist."""
        values = {"tenant": self._tenant_id, "ids": sorted(ids)}
        return set(await self._connection.scalars(_LOCK_ORGANIZATIONS, values))

    async def join(self, by_groups: Mapping[MemberKey, bool], *, now: int) -> set[MemberKey]:
        """Add members, each with whether it is one for its groups alone; return the new ones."""
        keys = sorted(by_groups)
        values = {**self._of(keys), "by_groups": [by_groups[key] for key in keys], "now": now}
        return {MemberKey(*row) for row in await self._connection.execute(_JOIN, values)}

    async def mark_rejoined(self, keys: Collection[MemberKey]) -> None:
        """Store that these members were members before."""
        await self._connection.execute(_MARK_REJOINED, self._of(keys))

    async def lock(self, keys: Collection[MemberKey]) -> dict[MemberKey, bool]:
        """Lock the roles of members until the transaction ends.

        Returns:
            Those that are members, with whether each is one for its groups alone.
        """
        rows = await self._connection.execute(_LOCK, self._of(keys))
        return {MemberKey(*key): by_groups for *key, by_groups in rows}

    async def stay(self, keys: Collection[MemberKey]) -> None:
        """Store that members belong to their organizations whatever their groups are."""
        await self._connection.execute(_STAY, self._of(keys))

    async def leave(self, keys: Collection[MemberKey]) -> None:
        """Remove locked members and their roles."""
        await self._connection.execute(_LEAVE, self._of(keys))

    async def held(self, keys: Collection[MemberKey]) -> dict[MemberKey, dict[str, frozenset[str]]]:
        """Return the roles of members, deleted ones included, and the origins of each."""
        found: dict[MemberKey, dict[str, frozenset[str]]] = {key: {} for key in keys}
        for *key, role_id, origins in await self._connection.execute(_HELD, self._of(keys)):
            found[MemberKey(*key)][role_id] = frozenset(origins)
        return found

    async def given_on_joining(self, organization_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the roles that joining just in time gives in each organization."""
        found: dict[str, set[str]] = {organization_id: set() for organization_id in organization_ids}
        values = {"tenant": self._tenant_id, "ids": list(organization_ids)}
        for organization_id, role_id in await self._connection.execute(_GIVEN_ON_JOINING, values):
            found[organization_id].add(role_id)
        return found

    async def lock_roles(self, ids: Collection[str]) -> set[str]:
        """Lock roles against deletion until the transaction ends; return those that users can get."""
        return set(await self._connection.scalars(_LOCK_ROLES, {"tenant": self._tenant_id, "ids": sorted(ids)}))

    async def store_origins(self, roles: Mapping[tuple[MemberKey, str], frozenset[str]]) -> None:
        """Store the origins of roles of members."""
        keys = sorted(roles)
        values = {
            **self._of_roles(keys),
            "origins": [" ".join(sorted(roles[key])) for key in keys],
        }
        await self._connection.execute(_STORE_ORIGINS, values)

    async def take(self, roles: Collection[tuple[MemberKey, str]]) -> None:
        """Take roles from members."""
        await self._connection.execute(_TAKE, self._of_roles(sorted(roles)))

    async def states(self, keys: Collection[MemberKey]) -> list[MemberState]:
        """Return the states of members."""
        return [
            MemberState(
                organization_id=row.organization_id,
                member_id=row.member_id,
                joined_at=row.joined_at,
                rejoined=row.rejoined,
                role_ids=tuple(row.role_ids),
            )
            for row in await self._connection.execute(_STATES, self._of(keys))
        ]

    def _of(self, keys: Collection[MemberKey]) -> dict[str, object]:
        ordered = sorted(keys)
        return {
            "tenant": self._tenant_id,
            "organizations": [key.organization_id for key in ordered],
            "members": [key.member_id for key in ordered],
        }

    def _of_roles(self, roles: Sequence[tuple[MemberKey, str]]) -> dict[str, object]:
        return {
            "tenant": self._tenant_id,
            "organizations": [key.organization_id for key, _ in roles],
            "members": [key.member_id for key, _ in roles],
            "roles": [role_id for _, role_id in roles],
        }
