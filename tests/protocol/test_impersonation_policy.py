"""The policy of impersonations at the token endpoint: what it requires before the take, and judges after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from identity_common.authentication import FactorMethod, UsedFactor
from identity_common.clock import now_ms
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from tests.support.signing_in import SignIn, tokens_valid_after
from tests.support.waiting import eventually
from tests.support.world import REFUSED, World, error_body, last_revision, outcome

MFA = "urn:service:acr:mfa"
MUST_SIGN_IN = error_body("access_denied", "the actor must sign in again, or more strongly")
ACTOR_REQUIRED = error_body("invalid_request", "an actor_token is required")


@pytest.fixture
def policied(world: World) -> Iterator[World]:
    """All worlds share one policy: it is off again, and known to be, after each test."""
    yield world
    world.management.impersonation_policy.update(
        require_actor=None, excluded_roles=None, actor_max_age_s=None, actor_acr=None
    )
    world.caught_up()


class TestRequiredActor:
    def test_an_exchange_without_an_actor_is_refused_and_spends_nothing(self, policied: World) -> None:
        """RFC 8693 section 2.2.2: ``invalid_request`` for what is unacceptable based on policy."""
        world, subject_token = policied, policied.subject_token()
        world.management.impersonation_policy.update(require_actor=True)

        for actor_token in (None, ""):
            answer = world.exchange(subject_token, actor_token=actor_token, headers=last_revision(world))
            assert (answer.status_code, answer.json()) == (400, ACTOR_REQUIRED)
        assert world.is_usable(subject_token)
        given = {"actor_token": world.userinfo_token(), "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
        answer = world.exchange(subject_token, **given)
        assert world.claims(answer.json()["access_token"], world.resource)["act"] == {"sub": world.agent}

    def test_other_grants_need_no_actor(self, policied: World) -> None:
        policied.management.impersonation_policy.update(require_actor=True)
        assert outcome(policied.client_credentials(headers=last_revision(policied))) == (200, None)

    def test_the_refusal_is_in_the_audit_trail(self, policied: World) -> None:
        world = policied
        world.management.impersonation_policy.update(require_actor=True)
        refused = world.exchange(world.subject_token(), headers=last_revision(world))

        def reasons() -> list[str | None]:
            entries = world.management.logs.list(application_id=world.traditional.id, key="token.exchange.refused")
            return [entry.reason for entry in entries if entry.request_id == refused.headers["X-Request-Id"]]

        eventually(lambda: reasons() == ["actor_token.required"])


class TestActorAssurance:
    """RFC 9470 section 3's parameters tell the application how the actor must sign in; the subject token stays."""

    def actor_token(self, world: World, *methods: FactorMethod, ago_s: int = 0) -> dict[str, Any]:
        at = max(now_ms(), tokens_valid_after(world, world.agent)) - ago_s * 1000
        factors = tuple(UsedFactor(method, at) for method in methods)
        sign_in = SignIn(world, user_id=world.agent, scope="openid", auth_time=at, factors=factors)
        return {"actor_token": sign_in.tokens()["access_token"], "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}

    @pytest.mark.parametrize(
        ("policy", "refused", "accepted", "told"),
        [
            ({"actor_acr": "mfa"}, (("password",), 0), (("password", "authenticator"), 0), {"acr_values": MFA}),
            ({"actor_acr": "mfa"}, (("password",), 0), (("password", "recovery-code"), 0), {"acr_values": MFA}),
            ({"actor_acr": "phr"}, (("password", "authenticator"), 0), (("passkey",), 0), {"acr_values": "phr"}),
            ({"actor_max_age_s": 600}, (("password",), 660), (("password",), 540), {"max_age": 600}),
            (
                {"actor_max_age_s": 600, "actor_acr": "mfa"},
                (("passkey",), 660),
                (("passkey",), 540),
                {"acr_values": MFA, "max_age": 600},
            ),
        ],
        ids=["no second factor", "recovery code", "no passkey", "long ago", "strong but long ago"],
    )
    def test_an_actor_who_must_sign_in_first_spends_nothing(
        self,
        policied: World,
        policy: dict[str, Any],
        refused: tuple[tuple[FactorMethod, ...], int],
        accepted: tuple[tuple[FactorMethod, ...], int],
        told: dict[str, Any],
    ) -> None:
        world, subject_token = policied, policied.subject_token()
        weak, strong = (self.actor_token(world, *methods, ago_s=ago_s) for methods, ago_s in (refused, accepted))
        world.management.impersonation_policy.update(**policy)

        for _ in range(2):
            answer = world.exchange(subject_token, **weak, headers=last_revision(world))
            assert (answer.status_code, answer.json()) == (403, {**MUST_SIGN_IN, **told})
        assert outcome(world.exchange(subject_token, **strong)) == (200, None)
        assert outcome(world.exchange(world.subject_token())) == (200, None), "there is no actor to judge"

    def test_a_token_that_does_not_say_how_the_actor_signed_in_is_not_enough(self, policied: World) -> None:
        world = policied
        silent = world.forger.access_token(
            sub=world.agent, aud=f"{world.stack.issuer}/me", client_id=world.traditional.id, scope="openid"
        )
        assert outcome(world.with_actor(silent)) == (200, None)
        policies: tuple[dict[str, Any], ...] = ({"actor_acr": "mfa"}, {"actor_acr": None, "actor_max_age_s": 2_592_000})
        for policy in policies:
            world.management.impersonation_policy.update(**policy)
            answer = world.with_actor(silent, headers=last_revision(world))
            assert outcome(answer) == (403, "access_denied")

    def test_the_refusal_is_in_the_audit_trail(self, policied: World) -> None:
        world = policied
        world.management.impersonation_policy.update(actor_acr="phr")
        refused = world.with_actor(world.userinfo_token(), headers=last_revision(world))

        def entries() -> list[tuple[str | None, str | None]]:
            found = world.management.logs.list(application_id=world.traditional.id, key="token.exchange.refused")
            of_request = [entry for entry in found if entry.request_id == refused.headers["X-Request-Id"]]
            return [(entry.reason, entry.actor_id) for entry in of_request]

        eventually(lambda: entries() == [("sign_in.insufficient", world.agent)])


class TestExcludedRoles:
    def test_a_role_from_after_the_minting_excludes_and_the_attempt_spends(self, policied: World) -> None:
        world, excluded = policied, policied.role("read:things")
        world.management.impersonation_policy.update(excluded_roles=[excluded])
        user = world.user()
        subject_token = world.subject_token(user)
        world.management.users.assign_roles(user, [excluded])

        answer = world.exchange(subject_token, headers=last_revision(world))
        assert (answer.status_code, answer.json()) == (400, REFUSED)
        assert not world.is_usable(subject_token)
        assert outcome(world.exchange(world.subject_token())) == (200, None)

    def test_a_policy_from_after_the_minting_excludes_whatever_the_target_is(self, policied: World) -> None:
        world = policied
        targets: tuple[dict[str, Any], ...] = (
            {},
            {"organization_id": world.organization},
            {"resource": None, "scope": "openid"},
        )
        for target in targets:
            subject_token = world.subject_token()
            world.management.impersonation_policy.update(excluded_roles=[world.keeper_role])
            answer = world.exchange(subject_token, headers=last_revision(world), **target)
            assert (answer.status_code, answer.json()) == (400, REFUSED)
            assert not world.is_usable(subject_token)
            world.management.impersonation_policy.update(excluded_roles=None)

    def test_an_excluded_user_may_still_act(self, policied: World) -> None:
        """And signs in: the policy is about being impersonated."""
        world, excluded = policied, policied.role()
        agent = world.user(excluded)
        world.management.impersonation_policy.update(excluded_roles=[excluded])

        answer = world.with_actor(world.userinfo_token(agent), headers=last_revision(world))
        assert outcome(answer) == (200, None)
