"""Organization tokens of users: by the refresh token of a sign-in, within the consent."""

from __future__ import annotations

from typing import Any

import pytest

from identity_common.identifiers import new_short_id
from tests.support.organization_tokens import NOT_A_MEMBER
from tests.support.signing_in import SignIn, scope_of
from tests.support.world import World, outcome


class TestForPeople:
    """By refresh token or code: the consented scopes that the user holds as a member."""

    SCOPE = "openid offline_access urn:service:scope:organizations"

    def sign_in(self, world: World, **changes: Any) -> SignIn:
        permissions = " ".join(world.permission(name) for name in ("read:invoices", "write:invoices", "sign:invoices"))
        return SignIn(world, **{"scope": self.SCOPE, "organization_permissions": permissions, **changes})

    def test_an_organization_token(self, world: World) -> None:
        """Consented ∩ held through organization roles; the fixed lifetime; of the same family."""
        sign_in = self.sign_in(world)
        tokens = sign_in.tokens()
        refreshed = sign_in.refreshed(tokens["refresh_token"], organization_id=world.organization)
        claims = world.claims(refreshed["access_token"], world.organization_audience())
        scope = f"{world.permission('read:invoices')} {world.permission('write:invoices')}"

        assert (refreshed["scope"], claims["scope"]) == (scope, scope)
        assert refreshed["expires_in"] == 3600
        assert (claims["sub"], claims["exp"] - claims["iat"]) == (world.customer, 3600)
        assert claims["jti"].startswith(f"{sign_in.authorization_id}.")
        assert "organization_id" not in claims

    def test_with_the_code_at_once(self, world: World) -> None:
        tokens = self.sign_in(world).tokens(organization_id=world.organization)

        assert world.claims(tokens["access_token"], world.organization_audience())["sub"] == world.customer

    def test_a_resource_within_an_organization(self, world: World) -> None:
        """API permissions of organization roles only: the customer's API role does not count there."""
        sign_in = self.sign_in(world, resource_scopes={world.resource: "read:things write:things"})
        tokens = sign_in.tokens()
        refreshed = sign_in.refreshed(
            tokens["refresh_token"], organization_id=world.organization, resource=world.resource
        )
        claims = world.claims(refreshed["access_token"], world.resource)

        assert (claims["scope"], claims["organization_id"]) == ("write:things", world.organization)
        assert refreshed["expires_in"] == world.resource_ttl_s

    def test_a_permission_without_consent_is_not_in_it(self, world: World) -> None:
        """The interface, limit 5: a permission reaches tokens once the client lists it and the user consents."""
        sign_in = self.sign_in(world, organization_permissions=world.permission("read:invoices"))
        refreshed = sign_in.refreshed(sign_in.tokens()["refresh_token"], organization_id=world.organization)

        assert scope_of(refreshed) == world.permission("read:invoices")

    @pytest.mark.heavy
    @pytest.mark.parametrize("with_scope", [False, True])
    @pytest.mark.parametrize("by", ["code", "refresh token"])
    def test_a_permission_and_scopes_of_the_same_name_are_consented_to_one_by_one(
        self, world: World, by: str, with_scope: bool
    ) -> None:
        """The user holds them all, in the organization and outside; only the consent for the target counts."""
        name, management = f"read:{new_short_id()}", world.management
        resources = [management.resources.create(each, f"https://{each}.{name[5:]}.example.com") for each in "ab"]
        a, b = (resource.indicator for resource in resources)
        scope_ids = [management.resources.create_scope(resource.id, name).id for resource in resources]
        person = world.user(management.roles.create(f"role {name}", "reads", "User", scope_ids).id)
        organization = world.template.organization()
        role = world.template.role(permission_ids=[world.template.permission(name)], scope_ids=scope_ids)
        world.template.member(organization, person, role)
        targets = {
            "organization": {"organization_id": organization},
            "a in the organization": {"organization_id": organization, "resource": a},
            "b in the organization": {"organization_id": organization, "resource": b},
            "a": {"resource": a},
            "b": {"resource": b},
        }
        consents: dict[str, dict[str, Any]] = {
            "the permission": {"organization_permissions": name, "resource_scopes": {a: "", b: ""}},
            "the scope of a": {"organization_permissions": "", "resource_scopes": {a: name, b: ""}},
            "the scope of b": {"organization_permissions": "", "resource_scopes": {a: "", b: name}},
        }

        def is_granted(consent: str, target: str) -> bool:
            sign_in = self.sign_in(world, user_id=person, **consents[consent])
            granted = sign_in.granted(by, scope=name if with_scope else None, **targets[target])
            assert granted in {name, ""}
            return granted == name

        assert {consent: [target for target in targets if is_granted(consent, target)] for consent in consents} == {
            "the permission": ["organization"],
            "the scope of a": ["a in the organization", "a"],
            "the scope of b": ["b in the organization", "b"],
        }

    def test_a_change_of_roles_is_in_the_next_token(self, world: World) -> None:
        organization, person = world.template.organization(), world.user()
        reader, writer = world.organization_role("read:invoices"), world.organization_role("write:invoices")
        world.template.member(organization, person, reader)
        sign_in = self.sign_in(world, user_id=person)
        first = sign_in.refreshed(sign_in.tokens()["refresh_token"], organization_id=organization)
        world.template.member(organization, person, writer)
        answer = world.stack.token_request(
            {
                "grant_type": "refresh_token",
                "refresh_token": first["refresh_token"],
                "organization_id": organization,
            },
            auth=sign_in.client.basic,
            Identity_Revision=world.template.last_revision,
        )

        assert [scope_of(first), scope_of(answer.json())] == [
            world.permission("read:invoices"),
            world.permission("write:invoices"),
        ]

    @pytest.mark.parametrize("resource", [True, False])
    def test_a_non_member_is_denied_and_the_refresh_token_stays_good(self, world: World, resource: bool) -> None:
        """Whether the organization exists or not."""
        sign_in = self.sign_in(world)
        refresh_token = sign_in.tokens()["refresh_token"]
        changes = {"resource": world.resource} if resource else {}
        for organization_id in (world.other_organization, "o12345678901", "*", "a.b", "x" * 64):
            answer = sign_in.refresh(refresh_token, organization_id=organization_id, **changes)
            assert (answer.status_code, answer.json()) == (403, NOT_A_MEMBER["exchange"])
        assert outcome(sign_in.refresh(refresh_token)) == (200, None)

    def test_a_third_party_gets_the_organizations_that_were_picked(self, world: World) -> None:
        """And is not told whether the user is a member of another one."""
        second = world.template.organization()
        world.template.member(second, world.customer, world.clerk_roles["user"])
        sign_in = self.sign_in(world, client=world.third_party, organizations=frozenset({second}))
        refresh_token = sign_in.tokens()["refresh_token"]
        refused = sign_in.refresh(refresh_token, organization_id=world.organization)

        assert (refused.status_code, refused.json()) == (403, NOT_A_MEMBER["exchange"])
        assert outcome(sign_in.refresh(refresh_token, organization_id=second)) == (200, None)

    def test_without_the_scope_it_is_refused(self, world: World) -> None:
        sign_in = self.sign_in(world, scope="openid offline_access")
        answer = sign_in.refresh(sign_in.tokens()["refresh_token"], organization_id=world.organization)

        assert outcome(answer) == (403, "insufficient_scope")
