"""Organization tokens: ``organization_id`` at the token endpoint, alone and together with ``resource`` (RFC 8707).

The interface: an organization token carries the member's organization permissions and has a fixed lifetime; within an
organization a token for a resource carries the API permissions of the member's organization roles.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from identity_common.identifiers import new_short_id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, OIDC_SCOPES, TOKEN_TYPE_ACCESS_TOKEN
from tests.support.organization_tokens import NOT_A_MEMBER, Caller
from tests.support.world import MANAGEMENT_API, NOT_ACCEPTABLE, World, error_body, outcome


class TestAnswer:
    """The tokens that are issued."""

    def test_by_client_credentials_for_an_organization(self, world: World) -> None:
        before = int(time.time())
        names = [world.permission(name) for name in ("write:invoices", "read:invoices", "sign:invoices")]
        answer = world.client_credentials(
            organization_id=world.organization, resource=None, scope=" ".join([*names, "openid", "read:things"])
        )

        assert answer.status_code == 200
        body = answer.json()
        claims = world.claims(body.pop("access_token"), world.organization_audience())
        scope = f"{world.permission('read:invoices')} {world.permission('write:invoices')}"
        assert body == {"token_type": "Bearer", "expires_in": 3600, "scope": scope}
        issued_at = claims.pop("iat")
        assert before <= issued_at <= int(time.time())
        assert len(claims.pop("jti")) == 32
        assert claims.pop("pv").keys() == {"template"}
        assert claims == {
            "iss": world.stack.issuer,
            "sub": world.machine.id,
            "aud": world.organization_audience(),
            "client_id": world.machine.id,
            "exp": issued_at + 3600,
            "scope": scope,
        }
        assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")

    def test_by_client_credentials_for_a_resource_within_an_organization(self, world: World) -> None:
        """The contract: audience and lifetime of the resource, claim ``organization_id``, organization roles only."""
        answer = world.client_credentials(
            organization_id=world.organization, scope=f"read:things write:things {world.permission('read:invoices')}"
        )

        assert answer.status_code == 200
        body = answer.json()
        claims = world.claims(body.pop("access_token"), world.resource)
        assert body == {"token_type": "Bearer", "expires_in": world.resource_ttl_s, "scope": "write:things"}
        issued_at = claims.pop("iat")
        claims.pop("jti")
        assert claims.pop("pv").keys() == {"management", "template"}
        assert claims == {
            "iss": world.stack.issuer,
            "sub": world.machine.id,
            "aud": world.resource,
            "client_id": world.machine.id,
            "exp": issued_at + world.resource_ttl_s,
            "scope": "write:things",
            "organization_id": world.organization,
        }

    def test_by_exchange_for_an_organization(self, world: World) -> None:
        """The subject's membership; ``openid`` does not turn it into a userinfo token."""
        scope = world.permission("read:invoices")
        answer = world.exchange(
            world.subject_token(),
            organization_id=world.organization,
            resource=None,
            scope=f"openid {scope} write:things",
        )

        assert answer.status_code == 200
        body = answer.json()
        claims = world.claims(body.pop("access_token"), world.organization_audience())
        assert body == {
            "issued_token_type": TOKEN_TYPE_ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": scope,
        }
        issued_at = claims.pop("iat")
        claims.pop("jti")
        assert claims.pop("pv").keys() == {"template"}
        assert claims == {
            "iss": world.stack.issuer,
            "sub": world.customer,
            "aud": world.organization_audience(),
            "client_id": world.traditional.id,
            "exp": issued_at + 3600,
            "scope": scope,
            "gty": GRANT_TOKEN_EXCHANGE,
        }

    def test_by_exchange_for_a_resource_within_an_organization(self, world: World) -> None:
        """With an actor, who need not be a member: the actor's rights are never the subject's."""
        answer = world.with_actor(
            world.userinfo_token(), organization_id=world.organization, scope="read:things write:things purge:things"
        )

        assert answer.status_code == 200
        body = answer.json()
        claims = world.claims(body.pop("access_token"), world.resource)
        assert (body["expires_in"], body["scope"]) == (world.resource_ttl_s, "purge:things write:things")
        assert {name: claims[name] for name in ("sub", "aud", "act", "organization_id", "gty", "scope")} == {
            "sub": world.customer,
            "aud": world.resource,
            "act": {"sub": world.agent},
            "organization_id": world.organization,
            "gty": GRANT_TOKEN_EXCHANGE,
            "scope": "purge:things write:things",
        }

    def test_the_lifetime_is_fixed(self, caller: Caller) -> None:
        """The interface: an organization token has a fixed expiry that cannot be changed, not even by a parameter."""
        caller.join()
        answer = caller(expires_in="60", lifetime="60", requested_lifetime="60")

        claims = caller.world.claims(
            answer.json()["access_token"], caller.world.organization_audience(caller.organization)
        )
        assert (answer.json()["expires_in"], claims["exp"] - claims["iat"]) == (3600, 3600)

    def test_a_token_without_an_organization_does_not_name_one(self, world: World) -> None:
        answers = [world.client_credentials(), world.exchange(world.subject_token())]

        for answer in answers:
            assert "organization_id" not in world.claims(answer.json()["access_token"], world.resource)


class TestScopes:
    """Section 3.3 of RFC 6749: a requested scope is granted if it is held in *this* organization now."""

    def test_granted_scopes_never_widen(self, caller: Caller) -> None:
        """Unknown scopes are dropped, OIDC scopes never granted, names compared byte for byte."""
        world = caller.world
        caller.join(caller.clerk_role)
        read, write, sign = (world.permission(name) for name in ("read:invoices", "write:invoices", "sign:invoices"))
        requests = {
            None: "",
            "": "",
            read: read,
            f"{write} {read}": f"{read} {write}",
            f"{read} {read}": read,
            sign: "",
            f"{read} {sign} unknown": read,
            read.upper(): "",
            read[:-1]: "",
            "*": "",
            "all": "",
            "write:things": "",
            " ".join(sorted(OIDC_SCOPES)): "",
            f"openid offline_access {read}": read,
            f"urn:service:scope:organizations {read}": read,
        }

        assert {scope: caller(scope).json()["scope"] for scope in requests} == requests

    def test_within_an_organization_a_resource_has_its_own_scopes_only(self, caller: Caller) -> None:
        """Neither organization permissions nor another resource's scopes of the same name."""
        world = caller.world
        caller.join(caller.role("read:invoices", scopes=("read:things",)))
        requested = f"read:things write:things {world.permission('read:invoices')} openid"

        answers = [caller(requested, resource=resource) for resource in (world.resource, world.other_resource)]
        assert [answer.json()["scope"] for answer in answers] == ["read:things", ""]

    def test_api_roles_do_not_count_in_an_organization(self, caller: Caller) -> None:
        """And organization roles do not count outside of it."""
        world = caller.world
        api_role = world.role("read:things", kind="User" if caller.how == "exchange" else "MachineToMachine")
        if caller.how == "exchange":
            world.management.users.assign_roles(caller.member, [api_role])
        else:
            world.management.applications.assign_roles(caller.member, [api_role])
        caller.join(caller.clerk_role)
        requested = "read:things write:things"

        inside = caller(requested, resource=world.resource)
        outside = caller(requested, resource=world.resource, organization_id=None)
        assert [answer.json()["scope"] for answer in (inside, outside)] == ["write:things", "read:things"]

    def test_permissions_in_one_organization_do_not_count_in_another(self, caller: Caller) -> None:
        """CVE-2026-9094: roles belong to a membership, not to a person."""
        other = caller.world.template.organization()
        caller.join(caller.clerk_role)
        caller.join(organization_id=other)
        read = caller.world.permission("read:invoices")

        answers = [caller(read, organization_id=each) for each in (caller.organization, other)]
        assert [answer.json()["scope"] for answer in answers] == [read, ""]

    def test_permissions_are_the_union_over_the_roles(self, caller: Caller) -> None:
        reader, signer = caller.role("read:invoices"), caller.role("sign:invoices")
        caller.join(reader, signer)

        assert caller.granted("read:invoices", "write:invoices", "sign:invoices") == {"read:invoices", "sign:invoices"}

    def test_a_member_without_roles_gets_a_token_without_scopes(self, caller: Caller) -> None:
        caller.join()

        assert caller.granted("read:invoices") == set()
        assert caller.granted("read:things", resource=True) == set()


class TestMembership:
    """A non-member gets nothing, and does not learn whether the organization exists."""

    @pytest.mark.parametrize("within", ["the organization", "a resource"])
    def test_a_non_member_is_refused(self, caller: Caller, within: str) -> None:
        """CVE-2026-2366: one answer, whether the organization exists or not."""
        changes: dict[str, Any] = {"resource": caller.world.resource} if within == "a resource" else {}
        ended = caller.world.template.organization()
        caller.join(caller.clerk_role, organization_id=ended)
        caller.world.template.delete_organization(ended)
        caller.join(caller.clerk_role)
        organizations = (
            caller.organization,
            caller.world.other_organization,
            caller.world.organization,
            ended,
            new_short_id(),
            caller.organization.upper(),
            f"{caller.organization}:{caller.member}",
            f" {caller.organization}",
            "*",
            "x" * 64,
        )

        refused = [caller.is_refused(organization_id=each, **changes) for each in organizations]
        assert refused == [False] + [True] * (len(organizations) - 1)

    def test_another_users_membership_does_not_count_for_the_subject(self, world: World) -> None:
        """Nor does the actor's."""
        organization = world.template.organization()
        world.template.member(organization, world.agent, world.clerk_roles["user"])
        world.template.member(organization, world.machine.id, world.clerk_roles["application"], kind="application")
        answer = world.with_actor(world.userinfo_token(), organization_id=organization, resource=None)

        assert (answer.status_code, answer.json()) == (403, NOT_A_MEMBER["exchange"])

    def test_the_refusal_spends_the_subject_token(self, world: World) -> None:
        """The check needs the subject; the refusal is the same whether the organization exists or not."""
        for organization_id in (world.other_organization, new_short_id()):
            subject_token = world.subject_token()
            answer = world.exchange(subject_token, organization_id=organization_id, resource=None)
            assert (answer.status_code, answer.json()) == (403, NOT_A_MEMBER["exchange"])
            assert not world.is_usable(subject_token)

    def test_a_suspended_or_deleted_member_is_refused(self, world: World) -> None:
        """CVE-2025-14559: membership does not help, and the answer is that for a bad token."""
        for end in (world.management.users.suspend, world.management.users.delete):
            user = world.user()
            world.template.member(world.organization, user, world.clerk_roles["user"])
            subject_token = world.subject_token(user)
            end(user)
            answer = world.exchange(
                subject_token,
                organization_id=world.organization,
                resource=None,
                headers={"Identity_Revision": world.management.last_revision or ""},
            )
            assert (answer.status_code, answer.json()) == (400, error_body("invalid_request", NOT_ACCEPTABLE))

    def test_a_deleted_application_is_refused(self, world: World) -> None:
        """CVE-2025-64521: whatever it was a member of."""
        machine = world.client("MachineToMachine", exchange=False)
        world.template.member(world.organization, machine.id, world.clerk_roles["application"], kind="application")
        ask: dict[str, Any] = {"organization_id": world.organization, "resource": None}
        before = world.client_credentials(machine, **ask)
        world.management.applications.delete(machine.id)
        headers = {"Identity_Revision": world.management.last_revision or ""}

        assert [outcome(before), outcome(world.client_credentials(machine, headers=headers, **ask))] == [
            (200, None),
            (401, "invalid_client"),
        ]


class TestTheRequest:
    """Parameters that name the target are neither repeated nor ignored."""

    def test_a_repeated_organization_is_refused(self, caller: Caller) -> None:
        """RFC 6749 section 3.2; also the same one, and an empty one beside it."""
        caller.join()
        for values in ([caller.organization] * 2, [caller.organization, ""], ["", caller.organization]):
            answer = caller(organization_id=values)
            assert (answer.status_code, answer.json()) == (
                400,
                error_body("invalid_request", "a parameter is repeated"),
            )

    def test_an_empty_organization_is_an_absent_one(self, world: World) -> None:
        """RFC 6749 section 3.2: as if it had been omitted."""
        answers = [
            world.client_credentials(organization_id="", resource=None),
            world.exchange(world.subject_token(), organization_id="", resource=None),
            world.client_credentials(organization_id=""),
        ]

        assert [outcome(answer) for answer in answers] == [(400, "invalid_target")] * 2 + [(200, None)]
        assert "organization_id" not in world.claims(answers[2].json()["access_token"], world.resource)

    def test_the_management_api_belongs_to_no_organization(self, caller: Caller) -> None:
        """Permissions in one organization do not extend to the whole tenant."""
        caller.join(caller.clerk_role)
        answer = caller("all subject-tokens", resource=MANAGEMENT_API)

        assert outcome(answer) == (400, "invalid_target")

    def test_an_organization_is_not_a_resource(self, caller: Caller) -> None:
        """Its audience cannot be requested as a resource."""
        caller.join()
        answer = caller(resource=caller.world.organization_audience(caller.organization), organization_id=None)

        assert outcome(answer) == (400, "invalid_target")

    @pytest.mark.parametrize("name", ["resource", "audience"])
    def test_other_targets_are_refused_beside_it(self, caller: Caller, name: str) -> None:
        """RFC 8707 section 2: one target."""
        caller.join()
        value = [caller.world.resource, caller.world.other_resource] if name == "resource" else caller.world.resource

        assert outcome(caller(**{name: value})) == (400, "invalid_target")

    @pytest.mark.parametrize("name", ["traditional", "spa", "native", "third_party"])
    def test_only_machines_act_for_themselves(self, world: World, name: str) -> None:
        """Other clients are refused before their membership is looked up."""
        client = getattr(world, name)
        form = {"grant_type": "client_credentials", "organization_id": world.organization, "client_id": client.id}
        answer = world.stack.token_request(form, auth=client.basic if client.secret else None)

        assert outcome(answer) == (400, "unauthorized_client")
