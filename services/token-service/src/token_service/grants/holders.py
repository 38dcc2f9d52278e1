"""Who holds the scopes of a target: a user or a client, by its API roles or by its roles in an organization.

Owns which roles count, the refusal of non-members, and the second read before a scope is withheld.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from identity_common.oauth import OIDC_SCOPES
from identity_common.telemetry.logs import get_logger
from stead.event_types import MemberType
from token_service.directory import Directory, InMemoryDirectory, Membership, Person
from token_service.grants.oauth_errors import OAuthError, access_denied
from token_service.grants.targets import Target
from token_service.presented_tokens.liveness import why_not_member
from token_service.tokens.lengths import require_scopes_fit
from token_service.tokens.scopes import grantable_scopes

_log = get_logger(__name__)


class ScopeHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a token at one moment: a client that requests a token for itself, or a ``UserHolder``.

    Attributes:
        role_ids: Roles that grant the target's scopes: API roles, or roles in the target's organization.
        permissions_as_of: Revisions by source that the roles and their scopes include; none if no scope comes from a
            role.
        membership: The membership in the target's organization, if the target has one.
    """

    role_ids: tuple[str, ...]
    permissions_as_of: Mapping[str, int] | None
    membership: Membership | None = None

    @property
    def tokens_valid_after(self) -> int:
        """The time from which the holder's tokens are valid, milliseconds; a new token's ``iat`` must not be earlier.

        It may be in the future: the clock that set it may be ahead.
        """
        return self.membership.tokens_valid_after if self.membership else 0


class UserHolder(ScopeHolder, frozen=True, kw_only=True):
    """A live user.

    Attributes:
        memberships: The memberships in all organizations, at the same moment; none if not read.
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
        """The later of the user's and the membership's time, as for any holder."""
        of_user = self.person.user.tokens_valid_after
        return max(of_user, self.membership.tokens_valid_after) if self.membership else of_user


HolderType = TypeVar("HolderType", bound=ScopeHolder)


async def granted_scopes(
    directory: Directory,
    target: Target,
    requested: frozenset[str],
    holder: HolderType,
    read_again: Callable[[], Awaitable[HolderType]],
) -> tuple[HolderType, frozenset[str]]:
    """Return the requested scopes that the holder has, and the holder they were read from.

    A missing scope may have been granted a moment ago: catch up with the bus, then read the holder again.

    Args:
        directory: Resolves roles to scopes.
        target: What the token is bound to.
        requested: Scope tokens.
        holder: The holder as first read.
        read_again: Reads and validates the holder again.

    Raises:
        OAuthError: As ``read_again`` does.
        TooLarge: A token cannot hold the scopes.
    """
    held = _held_scopes(directory.in_memory, target, holder.role_ids, requested)
    missing = requested - held
    if missing and target.sources and _may_be_newly_held(directory.in_memory, target, missing):
        await directory.catch_up(*target.sources)
        holder = await read_again()
        held = _held_scopes(directory.in_memory, target, holder.role_ids, requested)
    granted = grantable_scopes(requested=requested, held=held)
    require_scopes_fit(granted, audience=target.audience)
    return holder, granted


def _may_be_newly_held(in_memory: InMemoryDirectory, target: Target, missing: frozenset[str]) -> bool:
    """Return whether any of these scopes may have been granted a moment ago.

    Clients request OIDC scopes everywhere, and only the Management API has one of such a name.
    """
    return not missing <= OIDC_SCOPES or (
        target.resource is not None and bool(in_memory.existing_scopes(target.resource, missing))
    )


def _held_scopes(
    in_memory: InMemoryDirectory, target: Target, role_ids: tuple[str, ...], requested: frozenset[str]
) -> frozenset[str]:
    if target.organization_id is not None:
        return in_memory.held_in_organization(target.resource, role_ids, requested)
    if target.resource is not None:
        return in_memory.held_scopes(target.resource, role_ids, requested)
    return requested & target.open_scopes


def organization_roles(membership: Membership | None, member_type: MemberType) -> tuple[str, ...]:
    """Return the ids of a member's roles in its organization.

    Args:
        membership: From records that are fresh enough.
        member_type: A user, or an application that requests a token for itself.

    Raises:
        OAuthError: ``access_denied``, with the same description if there is no such organization.
    """
    reason = why_not_member(membership, member_type)
    if membership is None or reason is not None:
        _log.info("organization.refused", reason=reason, member_type=member_type)
        raise not_a_member(member_type)
    return membership.member.role_ids


def not_a_member(member_type: MemberType) -> OAuthError:
    """Return the refusal of a non-member, the same whether or not the organization exists."""
    who = "application" if member_type == "application" else "subject"
    return access_denied(f"the {who} is not a member of this organization", reason="organization.not_a_member")
