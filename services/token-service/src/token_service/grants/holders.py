"""Who holds the scopes of a target: a user or a client, by its API roles or by its roles in an organization.

Owns which roles count, the refusal of those that are not members, and the second look before a scope is left out.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from identity_common.oauth import OAuthError, access_denied
from identity_common.telemetry.logs import get_logger
from stead.event_types import MemberType
from token_service.directory import Directory, InMemoryDirectory, Membership, Person
from token_service.grants.targets import Target
from token_service.presented_tokens.liveness import why_no_member
from token_service.tokens.scopes import grantable_scopes, may_be_newly_held

_log = get_logger(__name__)


class ScopeHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a token as of one moment: a client that requests one for itself, or a ``UserHolder``.

    Attributes:
        role_ids: Roles that grant the target's scopes: API roles, or those in the organization of the target.
        permissions_as_of: Revisions that the roles and what they grant include; none if no scope comes from a role.
        membership: In the organization of the target, if it is in one.
    """

    role_ids: tuple[str, ...]
    permissions_as_of: Mapping[str, int] | None
    membership: Membership | None = None

    @property
    def tokens_valid_after(self) -> int:
        """From when on tokens are valid, milliseconds; a new one must not be dated before.

        Another machine's clock may be ahead.
        """
        return self.membership.tokens_valid_after if self.membership else 0


class UserHolder(ScopeHolder, frozen=True, kw_only=True):
    """A user that is live.

    Attributes:
        memberships: In all organizations, as of the same moment; none if not read.
    """

    person: Person
    memberships: Sequence[Membership] | None = None

    @classmethod
    def of(
        cls,
        target: Target,
        person: Person,
        membership: Membership | None,
        permissions_as_of: Mapping[str, int] | None,
        memberships: Sequence[Membership] | None = None,
    ) -> "UserHolder":
        """Return the user as a holder of the target's scopes.

        Raises:
            OAuthError: ``access_denied`` if the target is in an organization that the user is not a member of.
        """
        if target.organization_id is None:
            role_ids, membership = person.role_ids, None
        else:
            role_ids = organization_roles(membership, "user")
        return cls(
            person=person,
            role_ids=role_ids,
            permissions_as_of=permissions_as_of,
            membership=membership,
            memberships=memberships,
        )

    @property
    def tokens_valid_after(self) -> int:
        """As for any holder, and of the user."""
        of_user = self.person.user.tokens_valid_after
        return max(of_user, self.membership.tokens_valid_after) if self.membership else of_user


HolderType = TypeVar("HolderType", bound=ScopeHolder)


async def granted_scopes(
    directory: Directory,
    target: Target,
    requested: frozenset[str],
    holder: HolderType,
    look_again: Callable[[], Awaitable[HolderType]],
) -> tuple[HolderType, frozenset[str]]:
    """Return the requested scopes that the holder has, and the holder as of then.

    If one seems to be missing, it may have been granted a moment ago: catch up, and look at the holder again.

    Args:
        directory: Knows what the roles grant.
        target: What the token is bound to.
        requested: Scope tokens.
        holder: As of the first look.
        look_again: Reads and judges the holder once more.

    Raises:
        OAuthError: As ``look_again`` does; ``temporarily_unavailable``.
    """
    held = _held_scopes(directory.in_memory, target, holder.role_ids, requested)
    if target.sources and may_be_newly_held(requested=requested, held=held):
        await directory.catch_up(*target.sources)
        holder = await look_again()
        held = _held_scopes(directory.in_memory, target, holder.role_ids, requested)
    return holder, grantable_scopes(requested=requested, held=held)


def _held_scopes(
    in_memory: InMemoryDirectory, target: Target, role_ids: tuple[str, ...], requested: frozenset[str]
) -> frozenset[str]:
    if target.organization_id is not None:
        return in_memory.held_in_organization(target.resource, role_ids, requested)
    if target.resource is not None:
        return in_memory.held_scopes(target.resource, role_ids, requested)
    return requested & target.open_scopes


def organization_roles(membership: Membership | None, member_type: MemberType) -> tuple[str, ...]:
    """Return the roles of a member in its organization.

    Args:
        membership: From records that are fresh enough.
        member_type: A user, or an application that requests a token for itself.

    Raises:
        OAuthError: ``access_denied``, with the same description if there is no such organization.
    """
    reason = why_no_member(membership, member_type)
    if membership is None or reason is not None:
        _log.info("organization.refused", reason=reason, member_type=member_type)
        raise no_member(member_type)
    return membership.member.role_ids


def no_member(member_type: MemberType) -> OAuthError:
    """The refusal of an organization, whether it exists or not."""
    who = "application" if member_type == "application" else "subject"
    return access_denied(f"the {who} is not a member of this organization", reason="organization.not_a_member")
