"""Permissions that are lost end earlier tokens, at verifiers that opted in, and there only (docs/decisions/0025)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import jwt
import pytest

from identity_common.revisions import parse_revisions
from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid
from stead.event_types import MemberType
from tests.support.waiting import WAIT_S, eventually
from tests.support.world import Client, World

SCOPE = "read:things"
PERMISSION = "read:invoices"


@pytest.fixture(scope="module")
def feed(world: World) -> Iterator[NotValidFeed]:
    world.caught_up()
    client_id, secret = world.machine.basic
    with NotValidFeed.over_http(world.stack.base_url, client_id=client_id, client_secret=secret) as feed:
        assert feed.wait_until_fresh(WAIT_S)
        yield feed


class Holder:
    """A user or application with one API role, and its tokens."""

    kind: MemberType
    client: Client | None

    def __init__(self, world: World, kind: MemberType = "user") -> None:
        self.world, self.kind = world, kind
        self.client = world.client("MachineToMachine", exchange=False) if kind == "application" else None
        self.id = self.client.id if self.client else world.user()
        self.audience = world.resource
        self.role = self.give_role()

    def give_role(self) -> str:
        role = self.world.role(SCOPE, kind="User" if self.kind == "user" else "MachineToMachine")
        group = self.world.management.users if self.kind == "user" else self.world.management.applications
        group.assign_roles(self.id, [role])
        return role

    def token(self) -> str:
        """Return a new token; it knows of every write so far."""
        named = {"Identity_Revision": self.world.template.last_revision}
        if self.client:
            answer = self.world.client_credentials(self.client, headers=named, **self.target())
        else:
            answer = self.world.exchange(self.world.subject_token(self.id), headers=named, **self.target())
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def target(self) -> dict[str, str | None]:
        return {"scope": SCOPE}


class Member(Holder):
    """A member of an organization with one organization role, and the organization's tokens for it."""

    def give_role(self) -> str:
        role = self.world.organization_role(PERMISSION, kind=self.kind)
        self.organization = self.world.template.organization()
        self.audience = self.world.organization_audience(self.organization)
        self.world.template.member(self.organization, self.id, role, kind=self.kind)
        return role

    def target(self) -> dict[str, str | None]:
        return {
            "resource": None,
            "organization_id": self.organization,
            "scope": self.world.permission(PERMISSION),
        }


def a_role_loses_a_scope(holder: Holder) -> None:
    holder.world.management.roles.remove_scope(holder.role, holder.world.scope_ids[SCOPE])


def a_role_is_deleted(holder: Holder) -> None:
    holder.world.management.roles.delete(holder.role)


def a_user_loses_a_role(holder: Holder) -> None:
    holder.world.management.users.remove_role(holder.id, holder.role)


def an_application_loses_all_roles(holder: Holder) -> None:
    holder.world.management.applications.replace_roles(holder.id, [])


def an_organization_role_loses_a_permission(holder: Holder) -> None:
    holder.world.template.replace_contents(holder.role)


def an_organization_role_is_deleted(holder: Holder) -> None:
    holder.world.template.delete_role(holder.role)


def a_member_loses_a_role(holder: Holder) -> None:
    assert isinstance(holder, Member)
    holder.world.template.member(holder.organization, holder.id, kind=holder.kind)


def verifiers_of(holder: Holder, feed: NotValidFeed) -> tuple[AccessTokenVerifier, AccessTokenVerifier]:
    """Return a verifier that opted in and one that did not."""
    base_url = holder.world.stack.base_url
    strict = AccessTokenVerifier(base_url=base_url, audience=holder.audience, feed=feed, reject_stale_permissions=True)
    return strict, AccessTokenVerifier(base_url=base_url, audience=holder.audience, feed=feed)


def refusal(verifier: AccessTokenVerifier, token: str) -> str | None:
    try:
        verifier.verify(token)
    except TokenInvalid as invalid:
        return invalid.reason
    return None


@pytest.mark.parametrize(
    ("holder_type", "kind", "lose"),
    [
        (Holder, "user", a_role_loses_a_scope),
        (Holder, "user", a_user_loses_a_role),
        (Holder, "application", a_role_is_deleted),
        (Holder, "application", an_application_loses_all_roles),
        (Member, "user", an_organization_role_loses_a_permission),
        (Member, "user", an_organization_role_is_deleted),
        (Member, "user", a_member_loses_a_role),
        (Member, "application", a_member_loses_a_role),
    ],
)
def test_a_lost_permission_ends_earlier_tokens_where_that_was_asked_for(
    world: World, feed: NotValidFeed, holder_type: type[Holder], kind: MemberType, lose: Callable[[Holder], None]
) -> None:
    holder = holder_type(world, kind)
    strict, lenient = verifiers_of(holder, feed)
    token = holder.token()
    eventually(lambda: refusal(strict, token) is None)

    lose(holder)
    eventually(lambda: refusal(strict, token) == "stale_permissions")
    assert refusal(lenient, token) is None
    # An organization's permissions are recomputed behind the request: a token from before that is refused as well.
    eventually(lambda: refusal(strict, holder.token()) is None)


def test_a_deleted_scope_or_permission_is_lost(world: World, feed: NotValidFeed) -> None:
    management = world.management
    things = next(each.id for each in management.resources.list() if each.indicator == world.resource)
    scope = management.resources.create_scope(things, "lend:things")
    permission = world.template.permission(world.permission("lend:invoices"))
    user = world.user(management.roles.create("Lender", "lends", "User", [scope.id]).id)
    world.template.member(world.other_organization, user, world.template.role(permission_ids=[permission]))
    headers = {"Identity_Revision": world.template.last_revision}
    base_url = world.stack.base_url
    of_organization = {"resource": None, "organization_id": world.other_organization}
    tokens = [
        world.exchange(world.subject_token(user), headers=headers, scope=name, **target).json()["access_token"]
        for name, target in (("lend:things", {}), (world.permission("lend:invoices"), of_organization))
    ]
    audiences = (world.resource, world.organization_audience(world.other_organization))
    strict = [
        AccessTokenVerifier(base_url=base_url, audience=each, feed=feed, reject_stale_permissions=True)
        for each in audiences
    ]
    assert [refusal(*each) for each in zip(strict, tokens, strict=True)] == [None, None]
    management.resources.delete_scope(things, scope.id)
    world.template.delete_permission(permission)
    eventually(lambda: [refusal(*each) for each in zip(strict, tokens, strict=True)] == ["stale_permissions"] * 2)


def test_a_removed_member_is_refused_everywhere_and_accepted_after_it_returned(
    world: World, feed: NotValidFeed
) -> None:
    member = Member(world)
    strict, lenient = verifiers_of(member, feed)
    token = member.token()
    world.template.remove_member(member.organization, member.id)
    eventually(lambda: refusal(lenient, token) == "ended_member")
    time.sleep(1 - time.time() % 1)  # ``iat`` has whole seconds
    world.template.member(member.organization, member.id, member.role)
    eventually(lambda: refusal(strict, member.token()) is None)
    assert refusal(strict, token) is not None


def test_what_only_adds_permissions_ends_nothing(world: World, feed: NotValidFeed) -> None:
    holder, member, sentinel = Holder(world), Member(world), Member(world, "application")
    told = {each: (each.token(), verifiers_of(each, feed)[0]) for each in (holder, member, sentinel)}
    world.management.roles.assign_scopes(holder.role, [world.scope_ids["write:things"]])
    holder.give_role()
    world.management.organization_roles.assign_permissions(
        member.role, [world.permission_ids[world.permission("sign:invoices")]]
    )
    world.template.member(member.organization, member.id, member.role, world.clerk_roles["user"])
    world.management.roles.delete(world.role("purge:things"))  # another scope than the token's

    a_member_loses_a_role(sentinel)
    eventually(lambda: refusal(told[sentinel][1], told[sentinel][0]) == "stale_permissions")
    assert [refusal(verifier, token) for token, verifier in (told[holder], told[member])] == [None, None]


def test_tokens_say_what_their_scopes_were_computed_from(world: World) -> None:
    def revisions_of(token: str) -> object:
        return jwt.decode(token, options={"verify_signature": False}).get("pv")

    member, holder = Member(world), Holder(world)
    of_member, of_holder = revisions_of(member.token()), revisions_of(holder.token())
    written = parse_revisions([world.template.last_revision])
    assert isinstance(of_member, dict) and isinstance(of_holder, dict)
    assert of_member.keys() == {"template"} and of_member["template"] >= written["template"]
    assert of_holder.keys() == {"management"} and of_holder["management"] >= written["management"]
    assert revisions_of(world.userinfo_token()) is None
