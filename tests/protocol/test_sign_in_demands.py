"""How strongly users must have signed in for tokens: by the tenant, the application, the organization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from identity_common.authentication import FactorMethod, UsedFactor
from identity_common.clock import now_ms
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from tests.support.organization_tokens import NOT_A_MEMBER
from tests.support.signing_in import SignIn, tokens_valid_after
from tests.support.world import World, error_body, last_revision, outcome

MFA = "urn:service:acr:mfa"
USER_MUST = {**error_body("access_denied", "the user must sign in more strongly"), "acr_values": MFA}
ACTOR_MUST = {
    **error_body("access_denied", "the organization needs the actor to sign in with a second factor"),
    "acr_values": MFA,
}
ACTOR_NEEDED = {
    **error_body("access_denied", "the organization needs an actor who has signed in with a second factor"),
    "acr_values": MFA,
}
SCOPE = "openid offline_access urn:service:scope:organizations"


def signed_in(world: World, *methods: FactorMethod, **changes: Any) -> SignIn:
    at = max(now_ms(), tokens_valid_after(world, changes.get("user_id", world.customer)))
    factors = tuple(UsedFactor(method, at) for method in methods)
    return SignIn(world, **{"scope": SCOPE, "auth_time": at, "factors": factors, **changes})


@pytest.fixture
def by_tenant(world: World) -> Iterator[World]:
    """The tenant requires a second factor; all worlds share its policy."""
    yield world
    world.management.sign_in_policy.update(second_factor="optional")
    world.caught_up()


class TestTenantAndApplication:
    """Judged at each issuance, so that a session or a refresh token from before does not go on."""

    def test_a_sign_in_without_a_second_factor_ends_when_the_tenant_requires_one(self, by_tenant: World) -> None:
        world = by_tenant
        redeemed, waiting, strong = signed_in(world, "password"), signed_in(world), signed_in(world, "passkey")
        tokens = redeemed.tokens()
        world.management.sign_in_policy.update(second_factor="required")
        world.caught_up()

        for answer in (redeemed.refresh(tokens["refresh_token"]), waiting.redeem()):
            assert (answer.status_code, answer.json()) == (403, USER_MUST)
        assert strong.refreshed(strong.tokens()["refresh_token"])["id_token"]
        assert outcome(world.client_credentials()) == (200, None)
        world.management.sign_in_policy.update(second_factor="optional")
        world.caught_up()
        assert redeemed.refreshed(tokens["refresh_token"])["id_token"], "the refusal has not spent it"

    @pytest.mark.parametrize(
        ("minimum", "weak", "strong"),
        [
            ("mfa", ("password",), ("password", "authenticator")),
            ("phr", ("password", "authenticator"), ("password", "passkey")),
        ],
    )
    def test_an_application_has_a_minimum(
        self, world: World, minimum: str, weak: tuple[FactorMethod, ...], strong: tuple[FactorMethod, ...]
    ) -> None:
        client = world.client("Traditional")
        sign_ins = [signed_in(world, *methods, client=client) for methods in (weak, strong)]
        refresh_token = sign_ins[0].tokens()["refresh_token"]
        world.management.applications.update(client.id, custom_client_metadata={"minimumAcr": minimum})
        world.caught_up()

        told = {**USER_MUST, "acr_values": MFA if minimum == "mfa" else "phr"}
        answer = sign_ins[0].refresh(refresh_token)
        assert (answer.status_code, answer.json()) == (403, told)
        assert sign_ins[1].tokens()["id_token"]


class TestOrganization:
    """``isMfaRequired``."""

    @pytest.fixture
    def strict(self, world: World) -> Iterator[World]:
        world.management.organizations.update(world.organization, is_mfa_required=True)
        yield world
        world.management.organizations.update(world.organization, is_mfa_required=False)
        world.caught_up()

    @pytest.mark.parametrize("has_resource", [False, True])
    def test_its_tokens_for_people_need_a_second_factor(self, strict: World, has_resource: bool) -> None:
        world = strict
        target: dict[str, Any] = {
            "organization_id": world.organization,
            **({"resource": world.resource} if has_resource else {}),
        }
        weak, strong = signed_in(world, "password"), signed_in(world, "password", "authenticator")
        world.caught_up()

        answer = weak.refresh(weak.tokens()["refresh_token"], **target)
        assert (answer.status_code, answer.json()) == (403, USER_MUST)
        assert outcome(signed_in(world, "password").redeem(**target)) == (403, "access_denied")
        assert outcome(strong.redeem(**target)) == (200, None)
        of_itself = world.client_credentials(organization_id=world.organization, resource=None)
        assert outcome(of_itself) == (200, None), "an application is not a person"

    @pytest.mark.parametrize("has_resource", [False, True])
    def test_an_exchange_needs_an_actor_with_a_second_factor_and_spends_nothing_before(
        self, strict: World, has_resource: bool
    ) -> None:
        world, subject_token = strict, strict.subject_token()
        target: dict[str, Any] = {"organization_id": world.organization, **({} if has_resource else {"resource": None})}
        world.caught_up()

        def actor(*methods: FactorMethod) -> dict[str, Any]:
            token = signed_in(world, *methods, user_id=world.agent, scope="openid").tokens()["access_token"]
            return {"actor_token": token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}

        for given, refusal in (({}, ACTOR_NEEDED), (actor("password"), ACTOR_MUST)):
            answer = world.exchange(subject_token, **target, **given)
            assert (answer.status_code, answer.json()) == (403, refusal)
        elsewhere = world.exchange(world.subject_token(), **actor("password"))
        assert outcome(elsewhere) == (200, None), "outside of the organization the subject's own roles count"
        assert outcome(world.exchange(subject_token, **target, **actor("password", "recovery-code"))) == (200, None)

    def test_what_it_requires_is_told_to_members_alone(self, strict: World) -> None:
        world = strict
        stranger = world.user()
        world.caught_up()
        sign_in = signed_in(world, "password", user_id=stranger)

        for answer in (
            sign_in.redeem(organization_id=world.organization),
            world.exchange(world.subject_token(stranger), organization_id=world.organization, resource=None),
        ):
            assert (answer.status_code, answer.json()) == (403, NOT_A_MEMBER["exchange"])

    def test_a_requirement_from_after_the_minting_counts(self, world: World) -> None:
        subject_token = world.subject_token()
        world.management.organizations.update(world.organization, is_mfa_required=True)
        try:
            answer = world.exchange(
                subject_token, organization_id=world.organization, resource=None, headers=last_revision(world)
            )
            assert (answer.status_code, answer.json()) == (403, ACTOR_NEEDED)
        finally:
            world.management.organizations.update(world.organization, is_mfa_required=False)
            world.caught_up()
        assert world.is_usable(subject_token)
