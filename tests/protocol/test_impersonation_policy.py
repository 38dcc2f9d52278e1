"""The policy of impersonations at the token endpoint: what it requires before the take, and judges after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from tests.support.waiting import eventually
from tests.support.world import REFUSED, World, error_body, last_revision, outcome

ACTOR_REQUIRED = error_body("invalid_request", "an actor_token is required")


@pytest.fixture
def policied(world: World) -> Iterator[World]:
    """All worlds share one policy: it is off again, and known to be, after each test."""
    yield world
    world.management.impersonation_policy.update(require_actor=None, excluded_roles=None)
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
