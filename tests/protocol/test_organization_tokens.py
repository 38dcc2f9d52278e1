"""Organization tokens: ``organization_id`` at the token endpoint, alone and together with ``resource`` (RFC 8707).

The interface: an organization token carries the member's organization permissions and has a fixed lifetime; within an
organization a token for a resource carries the API permissions of the member's organization roles.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.identifiers import new_short_id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, OIDC_SCOPES, TOKEN_TYPE_ACCESS_TOKEN
from stead.event_types import MemberType
from tests.support.signing_in import SignIn, scope_of
from tests.support.world import MANAGEMENT_API, NOT_ACCEPTABLE, World, error_body, outcome

NOT_A_MEMBER = {
    "exchange": error_body("access_denied", "the subject is not a member of this organization"),
    "client credentials": error_body("access_denied", "the application is not a member of this organization"),
}


class Caller:
    """Requests tokens in one organization, by one of the two grants, for a member of its own."""

    def __init__(self, world: World, how: str) -> None:
        self.world = world
        self.how = how
        self.kind: MemberType = "user" if how == "exchange" else "application"
        self.organization = world.template.organization()
        self.machine = world.client("MachineToMachine", exchange=False)
        self.member = world.user() if how == "exchange" else self.machine.id
        self.clerk_role = world.clerk_roles[self.kind]

    def role(self, *permissions: str, scopes: Sequence[str] = ()) -> str:
        """Create an organization role that this kind of member may hold."""
        return self.world.organization_role(*permissions, scopes=scopes, kind=self.kind)

    def join(self, *role_ids: str, organization_id: str | None = None) -> None:
        """Become a member, or hold other roles."""
        self.world.template.member(organization_id or self.organization, self.member, *role_ids, kind=self.kind)

    def __call__(self, scope: str | None = None, **changes: Any) -> httpx.Response:
        """Ask for an organization token, unless something else is named."""
        form = {"organization_id": self.organization, "resource": None, "scope": scope, **changes}
        if self.how == "exchange":
            return self.world.exchange(self.world.subject_token(self.member), **form)
        return self.world.client_credentials(self.machine, **form)

    def granted(self, *names: str, resource: bool = False, revision: bool = False) -> set[str]:
        """Return which of these organization permissions, or scopes of the resource, a token carries."""
        full = {name if resource else self.world.permission(name): name for name in names}
        changes: dict[str, Any] = {"resource": self.world.resource} if resource else {}
        if revision:
            changes["headers"] = {"Identity_Revision": self.world.template.last_revision}
        answer = self(" ".join(full), **changes)
        assert answer.status_code == 200, answer.text
        return {full[name] for name in answer.json()["scope"].split()}

    def is_refused(self, **changes: Any) -> bool:
        """Tell whether the request is refused as a non-member's; any other refusal fails the test."""
        answer = self(**changes)
        if answer.status_code == 200:
            return False
        assert (answer.status_code, answer.json()) == (403, NOT_A_MEMBER[self.how])
        return True


@pytest.fixture(params=["exchange", "client credentials"])
def caller(world: World, request: pytest.FixtureRequest) -> Caller:
    return Caller(world, request.param)


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
            "x" * 10_000,
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


class TestChanges:
    """The next token reflects a change."""

    @pytest.mark.heavy
    def test_objects_created_a_moment_ago_count_without_a_header(self, caller: Caller) -> None:
        """The design: an unknown organization, or a scope that is not held, is looked up once more before a refusal."""
        world = caller.world
        for number in range(5):
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

    @pytest.mark.parametrize("revoke", [each[1] for each in REVOCATIONS], ids=[each[0] for each in REVOCATIONS])
    def test_a_revoked_permission_is_not_in_a_token_that_awaits_the_revision(
        self, caller: Caller, revoke: Callable[[Caller, str, str], object]
    ) -> None:
        """``Identity-Revision: template:…`` is awaited before anything is judged or spent."""
        world = caller.world
        for number in range(5):
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

    def test_the_deletion_of_an_organization_counts_before_its_members_are_removed(self, caller: Caller) -> None:
        """CVE-2026-55670: an organization that is created afterwards inherits nothing."""
        for _ in range(5):
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
        assert [answer.headers["Retry-After"] for answer in answers] == ["1"] * 4
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

        assert (refreshed["scope"], claims["scope"]) == (f"offline_access {scope}", scope)
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
        for organization_id in (world.other_organization, "o12345678901", "*", "a.b", "x" * 10_000):
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
