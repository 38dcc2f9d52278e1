"""Ends of memberships of impersonated users, and of organizations, from the audit trail.

They explain why tokens were refused. Organizations and members themselves are template-service's.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import ARRAY, Text, any_, bindparam, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.wire.audit import AuditEntry
from management_service.audit.schema import audit_entries, audit_targets, has_audit_hash_of_any, has_audit_members
from management_service.party_ends import PartyEnd

_DELETION: Final = "DeleteOrganization"
_REMOVALS: Final = ("RemoveOrganizationUser", "ReplaceOrganizationUsers")

_PLACE: Final = ("tenant_id", "occurred_at", "number")
_TENANT: Final = bindparam("tenant", type_=Text)
_ORGANIZATIONS: Final = bindparam("organizations", type_=ARRAY(Text))
_DELETIONS: Final = select(audit_entries.c.entry).where(
    has_audit_members(_TENANT, operation=_DELETION),
    has_audit_hash_of_any(_TENANT, "organization_id", _ORGANIZATIONS),
    audit_entries.c.organization_id == any_(_ORGANIZATIONS),
    audit_entries.c.occurred_at.between(bindparam("first"), bindparam("last")),
)
_CHANGES_OF_MEMBERS: Final = select(audit_entries.c.entry).where(
    audit_targets.c.tenant_id == _TENANT,
    audit_targets.c.target_id == any_(bindparam("users", type_=ARRAY(Text))),
    audit_targets.c.occurred_at.between(bindparam("first"), bindparam("last")),
    *(audit_entries.c[name] == audit_targets.c[name] for name in _PLACE),
    audit_entries.c.operation.in_(_REMOVALS),
)
_FIND: Final = union_all(_DELETIONS, _CHANGES_OF_MEMBERS)

_decode = msgspec.json.Decoder(AuditEntry).decode


class Membership(NamedTuple):
    """The organization that a token is for, and its member."""

    organization_id: str
    user_id: str

    @property
    def organization(self) -> str:
        """The organization as a party of an impersonation."""
        return f"organization:{self.organization_id}"

    @property
    def member(self) -> str:
        """The member as a party of an impersonation."""
        return f"member:{self.organization_id}/{self.user_id}"


async def find_membership_ends(
    connection: AsyncConnection, tenant_id: str, memberships: Collection[Membership], *, first: int, last: int
) -> dict[str, list[PartyEnd]]:
    """Return the ends of organizations and members between two times, by party, oldest first.

    A user that was changed by a request that replaces all users of an organization was removed, or was not a member
    before. An entry lists only some of very many changed users: the ends of the others are unknown.
    """
    values = {
        "tenant": tenant_id,
        "organizations": [*{each.organization_id for each in memberships}],
        "users": [*{each.user_id for each in memberships}],
        "first": first,
        "last": last,
    }
    entries = {(each := _decode(row.entry)).id: each for row in await connection.execute(_FIND, values)}
    found: dict[str, list[PartyEnd]] = {}
    for entry in sorted(entries.values(), key=lambda each: each.occurred_at):
        for party, cause in _ended_by(entry):
            found.setdefault(party, []).append(
                PartyEnd(entry.occurred_at, cause, entry.user_id or entry.application_id)
            )
    return found


def _ended_by(entry: AuditEntry) -> Iterator[tuple[str, str]]:
    """Yield each party that a request ended, and the cause."""
    if entry.operation == _DELETION:
        yield f"organization:{entry.ids['organization_id']}", "deleted"
        return
    for aggregate in entry.aggregates:
        kind, _, ids = aggregate.partition("/")
        if kind == "member":
            yield f"member:{ids}", "removed"
