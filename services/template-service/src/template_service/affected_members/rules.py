"""What a new template changes for a member, by the roles that it holds. No I/O."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from identity_common.fields import Answer
from stead.event_types import GrantedPermission, MemberType, permission_order
from template_service.document.rules import Role, Template
from template_service.roles.store import Named

COLUMNS: Final = (
    *("organization", "organizationId", "memberType", "member", "memberId", "change", "permission", "resource"),
)

_REMEMBERED: Final = 1024

Permissions = tuple[GrantedPermission, ...]


class AffectedMember(Answer, kw_only=True):
    """A member that gains or loses permissions.

    Attributes:
        type: Kind of the member.
        id: Its id.
        name: Its name, or else what it signs in with; absent if there is none, or the caller may not see it.
        organization: The organization in which its permissions change.
        gaining: Permissions that it did not hold, sorted.
        losing: Permissions that it no longer holds by any of its roles, sorted.
    """

    type: MemberType
    id: str
    name: str | UnsetType = UNSET
    organization: Named
    gaining: Permissions
    losing: Permissions


class AffectedMembers(Answer):
    """Members that gain or lose permissions.

    Attributes:
        members: The first of them, by the ids of the organization and of the member.
        has_more: Whether there may be others: they are sought among the first 5,000 holders of the roles that change.
    """

    members: tuple[AffectedMember, ...]
    has_more: bool


class MemberChange(NamedTuple):
    """The permissions that a member gains and loses, each sorted."""

    gaining: Permissions
    losing: Permissions


class Comparison:
    """Two templates, and what the second changes for the holders of roles.

    Attributes:
        changed_roles: Ids of the roles that grant something else: no other role's holders are affected.
    """

    def __init__(self, before: Template, role_ids: Mapping[str, str], after: Template) -> None:
        self._before = {role_ids[name]: role.grants for name, role in before.roles.items()}
        self._after = {role_ids[name]: _grants(after.roles.get(name)) for name in before.roles}
        self.changed_roles = sorted(each for each in self._before if self._before[each] != self._after[each])
        # Many members hold the same roles.
        self.of_holder = functools.lru_cache(_REMEMBERED)(self._of_holder)

    def _of_holder(self, role_ids: tuple[str, ...]) -> MemberChange:
        """Return what changes for a member with these roles; a role that was created meanwhile does not count."""
        held = [each for each in role_ids if each in self._before]
        before = frozenset[GrantedPermission]().union(*(self._before[each] for each in held))
        after = frozenset[GrantedPermission]().union(*(self._after[each] for each in held))
        return MemberChange(_sorted(after - before), _sorted(before - after))


def table_rows(member: AffectedMember) -> Iterator[Sequence[str]]:
    """Yield a row of the exported table for each permission that a member gains or loses."""
    of_member = (member.organization.name, member.organization.id, member.type, member.name or "", member.id)
    for change, permissions in (("gains", member.gaining), ("loses", member.losing)):
        for permission in permissions:
            yield (*of_member, change, permission.name, permission.resource or "")


def _grants(role: Role | None) -> frozenset[GrantedPermission]:
    return frozenset() if role is None else role.grants


def _sorted(permissions: Iterable[GrantedPermission]) -> Permissions:
    return tuple(sorted(permissions, key=permission_order))
