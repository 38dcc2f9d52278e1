"""Organization tokens after changes of members, roles and permissions, which a request may await."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.lengths import length
from tests.support.organization_tokens import Caller
from tests.support.retrying import SOON
from tests.support.world import World, outcome

ROUNDS = length(short=2, long=5)


class TestChanges:
    """The next token reflects a change."""

    @pytest.mark.heavy
    def test_objects_created_a_moment_ago_count_without_a_header(self, caller: Caller) -> None:
        """The design: an unknown organization, or a scope that is not held, is looked up once more before a refusal."""
        world = caller.world
        for number in range(ROUNDS):
            name = f"made:{caller.organization}:{number}"
            permission = world.template.permission(name)
            role = world.template.role(caller.kind, permission_ids=[permission])
            caller.organization = world.template.organization()
            caller.join(role)
            assert caller(name).json()["scope"] == name
            second = caller.role("sign:invoices")
            caller.join(role, second)
            assert caller.granted("sign:invoices") == {"sign:invoices"}
            contents = world.organization_role_contents("write:invoices", scopes=("read:things",))
            world.template.replace_contents(second, **contents)
            assert caller.granted("write:invoices", "sign:invoices") == {"write:invoices"}
            assert caller.granted("read:things", resource=True) == {"read:things"}

    REVOCATIONS: tuple[tuple[str, Callable[[Caller, str, str], object]], ...] = (
        ("the role is taken from the member", lambda caller, role, permission: caller.join()),
        (
            "the role loses the permission",
            lambda caller, role, permission: caller.world.template.replace_contents(role),
        ),
        ("the role is deleted", lambda caller, role, permission: caller.world.template.delete_role(role)),
        (
            "the permission is deleted",
            lambda caller, role, permission: caller.world.template.delete_permission(permission),
        ),
    )

    @pytest.mark.heavy
    @pytest.mark.parametrize("revoke", [each[1] for each in REVOCATIONS], ids=[each[0] for each in REVOCATIONS])
    def test_a_revoked_permission_is_not_in_a_token_that_awaits_the_revision(
        self, caller: Caller, revoke: Callable[[Caller, str, str], object]
    ) -> None:
        """``Identity-Revision: template:…`` is awaited before anything is judged or spent."""
        world = caller.world
        for number in range(ROUNDS):
            name = f"passing:{caller.organization}:{number}"
            permission = world.template.permission(name)
            role = world.template.role(caller.kind, permission_ids=[permission])
            caller.join(role)
            before = caller(name).json()["scope"]
            revoke(caller, role, permission)
            after = caller(name, headers={"Identity_Revision": world.template.last_revision}).json()["scope"]
            assert (before, after) == (name, "")

    def test_a_removed_member_is_refused_in_the_next_request(self, caller: Caller) -> None:
        for _ in range(5):
            caller.join(caller.clerk_role)
            assert not caller.is_refused()
            caller.world.template.remove_member(caller.organization, caller.member, kind=caller.kind)
            assert caller.is_refused(headers={"Identity_Revision": caller.world.template.last_revision})

    @pytest.mark.heavy
    def test_the_deletion_of_an_organization_counts_before_its_members_are_removed(self, caller: Caller) -> None:
        """CVE-2026-55670: an organization that is created afterwards inherits nothing."""
        for _ in range(ROUNDS):
            caller.join(caller.clerk_role)
            assert caller.granted("read:invoices") == {"read:invoices"}
            caller.world.template.delete_organization(caller.organization)
            assert caller.is_refused(headers={"Identity_Revision": caller.world.template.last_revision})
            caller.organization = caller.world.template.organization()
            assert caller.is_refused()

    def test_a_deleted_scope_is_not_granted_by_any_organization_role(self, caller: Caller) -> None:
        """The deletion comes from the other source; a later scope of the same name is not granted either."""
        world = caller.world
        resource = world.management.resources.create("Passing", f"https://{caller.organization}.example.com/api")
        scope = world.management.resources.create_scope(resource.id, "read:it")
        caller.join(world.template.role(caller.kind, scope_ids=[scope.id]))
        ask: dict[str, Any] = {"resource": resource.indicator}

        granted = [caller("read:it", **ask).json()["scope"]]
        world.management.resources.delete_scope(resource.id, scope.id)
        headers = {"Identity_Revision": world.management.last_revision or ""}
        granted.append(caller("read:it", headers=headers, **ask).json()["scope"])
        world.management.resources.create_scope(resource.id, "read:it")
        granted.append(caller("read:it", **ask).json()["scope"])
        assert granted == ["read:it", "", ""]

    def test_a_renamed_permission_has_its_new_name_only(self, caller: Caller) -> None:
        world = caller.world
        old, new = (f"{each}:{caller.organization}" for each in ("old", "new"))
        permission = world.template.permission(old)
        caller.join(world.template.role(caller.kind, permission_ids=[permission]))
        assert caller(f"{old} {new}").json()["scope"] == old
        world.template.rename_permission(permission, new)
        headers = {"Identity_Revision": world.template.last_revision}

        assert caller(f"{old} {new}", headers=headers).json()["scope"] == new

    def test_issued_tokens_stay_as_they_are(self, caller: Caller) -> None:
        """The interface, limit 5: existing organization tokens stay valid until they expire."""
        world = caller.world
        caller.join(caller.clerk_role)
        token = caller(world.permission("read:invoices")).json()["access_token"]
        world.template.remove_member(caller.organization, caller.member, kind=caller.kind)

        claims = world.claims(token, world.organization_audience(caller.organization))
        assert claims["scope"] == world.permission("read:invoices")


class TestTheAwaitedRevision:
    """``Identity-Revision`` with the source ``template``, on every request."""

    def test_a_known_revision_changes_nothing(self, caller: Caller) -> None:
        caller.join()
        assert {"management", "template"} <= set(re.split(r"[:, ]+", caller.world.template.last_revision))

        for revision in ("template:0", caller.world.template.last_revision):
            assert outcome(caller(headers={"Identity_Revision": revision})) == (200, None)

    @pytest.mark.heavy
    def test_a_revision_that_does_not_arrive_is_503_and_nothing_is_spent(self, world: World) -> None:
        headers = {"Identity_Revision": "template:999999999"}
        organization: dict[str, Any] = {"organization_id": world.organization, "resource": None}
        subject_token = world.subject_token()
        answers = [
            world.exchange(subject_token, headers=headers, **organization),
            world.exchange(subject_token, headers=headers),
            world.client_credentials(headers=headers, **organization),
            world.client_credentials(headers=headers),
        ]

        assert [outcome(answer) for answer in answers] == [(503, "temporarily_unavailable")] * 4
        assert all(answer.headers["Retry-After"] in SOON for answer in answers)
        assert world.is_usable(subject_token)

    @pytest.mark.heavy
    def test_a_refused_client_does_not_wait(self, world: World) -> None:
        """Waiting begins after authentication and validation."""
        headers = {"Identity_Revision": "template:999999999"}
        unknown = world.client_credentials(
            organization_id=world.organization, resource="https://unknown.example.com", headers=headers
        )
        wrong_grant = world.client_credentials(grant_type="x", organization_id=world.organization, headers=headers)

        assert [outcome(unknown), outcome(wrong_grant)] == [(400, "invalid_target"), (400, "unsupported_grant_type")]
