"""Which organizations a sign-in joins and leaves, and which roles it gives and takes away. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from identity_common.fields import MAX_RELATED

MANUAL: Final = "manual"
"""The origin of a role that an administrator or an invitation gave."""

JIT: Final = "jit"
"""The origin of a role that joining just in time gave, once."""


class MemberKey(NamedTuple):
    """Identifies a member."""

    organization_id: str
    member_id: str


class Source(NamedTuple):
    """A user's sign-ins through one connector: with one identity, or with several."""

    user_id: str
    connector_id: str


class Reason(NamedTuple):
    """Why a user belongs to an organization.

    Attributes:
        role_id: A role that one of its groups gives it there; None for its domain or its connector.
    """

    source: Source
    organization_id: str
    role_id: str | None

    @property
    def member(self) -> MemberKey:
        """The member that it makes."""
        return MemberKey(self.organization_id, self.source.user_id)


Origins = Mapping[str, frozenset[str]]
"""The roles of a member by id, and the origins of each."""


def lasting(reasons: Iterable[Reason]) -> set[MemberKey]:
    """Return those who belong to an organization whatever their groups will be."""
    return {reason.member for reason in reasons if reason.role_id is None}


def given_by_groups(reasons: Iterable[Reason]) -> dict[MemberKey, dict[str, frozenset[str]]]:
    """Return the roles that groups give each member, and the connectors that they come from."""
    found: dict[MemberKey, dict[str, frozenset[str]]] = defaultdict(dict)
    for reason in reasons:
        if reason.role_id is not None:
            roles = found[reason.member]
            roles[reason.role_id] = roles.get(reason.role_id, frozenset()) | {reason.source.connector_id}
    return found


def origins_afterwards(
    held: Origins, given: Origins, signed_in_through: Collection[str], joining: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return the roles of a member after sign-ins. What other connectors and administrators gave stays.

    Args:
        held: The roles before.
        given: The roles that the groups of these sign-ins give.
        signed_in_through: The connectors of these sign-ins.
        joining: The roles that joining gives; none for those who were members before.
    """
    kept = {role_id: origins.difference(signed_in_through) for role_id, origins in held.items()}
    found = {role_id: origins for role_id, origins in kept.items() if origins}
    new = {
        role_id: given.get(role_id, frozenset()) | ({JIT} if role_id in joining else frozenset())
        for role_id in {*given, *joining}
    }
    for role_id in sorted(new):
        # A member with more roles than any request may give it could not be published.
        if role_id in found or len(found) < MAX_RELATED:
            found[role_id] = found.get(role_id, frozenset()) | new[role_id]
    return found


def holds_for_groups_alone(roles: Origins) -> bool:
    """Return whether nothing but having joined holds a member that belongs to an organization for its groups."""
    return all(origins == {JIT} for origins in roles.values())
