"""Who holds the scopes of a target: roles, membership, and from when on tokens are valid; rules without a server."""

from __future__ import annotations

import pytest

from identity_common.wire.events import UserState
from stead.event_types import MemberState, MemberType, OrganizationState
from token_service.directory import Membership, Person
from token_service.grants.holders import ScopeHolder, UserHolder, organization_roles
from token_service.grants.oauth_errors import OAuthError
from token_service.grants.targets import Target
from token_service.presented_tokens.liveness import why_not_member

USERINFO = Target(audience="https://id.example.com/oidc/me", lifetime_s=3600)
ORGANIZATION = Target(audience="urn:service:organization:o", lifetime_s=3600, organization_id="o")
PERSON = Person(UserState(id="u", tokens_valid_after=1_700_000_005_500), ("api",))


def membership(member_type: MemberType, *, joined_at: int = 0) -> Membership:
    member = MemberState(
        organization_id="o", member_id="m", member_type=member_type, joined_at=joined_at, role_ids=("a", "b")
    )
    return Membership(OrganizationState(id="o"), member)


def test_a_user_holds_scopes_by_its_api_roles_or_by_its_roles_in_the_organization_of_the_target() -> None:
    member, seen = membership("user"), {"management": 4}

    assert UserHolder.of(USERINFO, PERSON, member, None) == UserHolder(
        person=PERSON, role_ids=("api",), permissions_as_of=None
    )
    assert UserHolder.of(ORGANIZATION, PERSON, member, seen) == UserHolder(
        person=PERSON, role_ids=("a", "b"), permissions_as_of=seen, membership=member
    )
    with pytest.raises(OAuthError):
        UserHolder.of(ORGANIZATION, PERSON, None, seen)


def test_a_token_is_not_dated_before_the_membership_that_it_is_issued_for() -> None:
    """Whatever the clocks of two services say: presented, it would be refused as one from an earlier membership."""
    earlier, later = (membership("user", joined_at=1_700_000_000_700 + ahead) for ahead in (0, 9_000))

    def valid_after(member: Membership | None) -> tuple[int, int]:
        user = UserHolder(person=PERSON, role_ids=(), permissions_as_of=None, membership=member)
        client = ScopeHolder(role_ids=(), permissions_as_of=None, membership=member)
        return user.tokens_valid_after, client.tokens_valid_after

    assert valid_after(None) == (1_700_000_005_500, 0)
    assert valid_after(earlier) == (1_700_000_005_500, 1_700_000_000_000)
    assert valid_after(later) == (1_700_000_009_000, 1_700_000_009_000)


@pytest.mark.parametrize("member_type", ["user", "application"])
def test_the_roles_are_those_of_the_membership(member_type: MemberType) -> None:
    assert organization_roles(membership(member_type), member_type) == ("a", "b")
    assert why_not_member(membership(member_type), member_type) is None


@pytest.mark.parametrize(
    ("found", "asked", "description"),
    [
        (None, "user", "the subject is not a member of this organization"),
        (None, "application", "the application is not a member of this organization"),
        (membership("application"), "user", "the subject is not a member of this organization"),
        (membership("user"), "application", "the application is not a member of this organization"),
    ],
)
def test_a_non_member_is_denied_access(found: Membership | None, asked: MemberType, description: str) -> None:
    """One function for every path; the answer does not reveal whether the organization exists."""
    with pytest.raises(OAuthError) as refused:
        organization_roles(found, asked)

    assert (refused.value.error, refused.value.status, refused.value.description) == ("access_denied", 403, description)
    assert why_not_member(found, asked) is not None
