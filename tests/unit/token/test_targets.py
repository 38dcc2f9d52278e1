"""What a token is bound to, and who is a member: rules without a server."""

from __future__ import annotations

import pytest

from identity_common.oauth import OAuthError
from identity_common.wire.events import ResourceState, UserState
from stead.event_types import MemberState, MemberType, OrganizationState
from token_service.directory import Membership, Person
from token_service.grants.targets import Target, organization_roles, tokens_valid_after
from token_service.presented_tokens.liveness import why_no_member

RESOURCE = ResourceState(id="r", indicator="https://api.example.com")
TARGETS = [
    Target(audience="https://id.example.com/oidc/me", lifetime_s=3600),
    Target(audience="https://api.example.com", lifetime_s=60, resource=RESOURCE),
    Target(audience="urn:service:organization:o", lifetime_s=3600, organization_id="o"),
    Target(audience="https://api.example.com", lifetime_s=60, resource=RESOURCE, organization_id="o"),
]


def membership(member_type: MemberType, *, joined_at: int = 0) -> Membership:
    member = MemberState(
        organization_id="o", member_id="m", member_type=member_type, joined_at=joined_at, role_ids=("a", "b")
    )
    return Membership(OrganizationState(id="o"), member)


def test_only_a_token_for_a_resource_names_the_organization_in_a_claim() -> None:
    """The contract: the token for the organization itself names it in ``aud``."""
    assert [target.organization_claim for target in TARGETS] == [None, None, None, "o"]


def test_each_target_names_the_sources_that_decide_about_its_scopes() -> None:
    """A scope that is not held yet is looked up once more in every source that could grant it."""
    assert [target.sources for target in TARGETS] == [(), ("management",), ("template",), ("management", "template")]


def test_a_token_is_not_dated_before_the_membership_that_it_is_issued_for() -> None:
    """Whatever the clocks of two services say: presented, it would be refused as one from an earlier membership."""
    person = Person(UserState(id="u", tokens_valid_after=1_700_000_005_500), ())
    earlier, later = (membership("user", joined_at=1_700_000_000_700 + ahead) for ahead in (0, 9_000))

    assert tokens_valid_after(person, None) == 1_700_000_005_500
    assert tokens_valid_after(person, earlier) == 1_700_000_005_500
    assert tokens_valid_after(person, later) == 1_700_000_009_000
    assert tokens_valid_after(None, earlier) == 1_700_000_000_000
    assert tokens_valid_after(None, None) == 0


@pytest.mark.parametrize("member_type", ["user", "application"])
def test_the_roles_are_those_of_the_membership(member_type: MemberType) -> None:
    assert organization_roles(membership(member_type), member_type) == ("a", "b")
    assert why_no_member(membership(member_type), member_type) is None


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
    assert why_no_member(found, asked) is not None
