"""The directory: the next token request sees every write, and a lost directory is rebuilt automatically."""

from __future__ import annotations

import pytest

from identity_common.identifiers import new_secret
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from tests.support.lengths import length
from tests.support.retrying import SOON
from tests.support.waiting import eventually
from tests.support.world import World, create_then_use, outcome

ROUNDS = length(short=4, long=20)


EMPTIED = """
for _, key in ipairs(redis.call('KEYS', 'identity:default:*')) do
    if not string.find(key, ':revocation', 1, true) then redis.call('DEL', key) end
end
"""
"""Deletes every key of the tenant atomically, except the revocations, which minting requires."""


@pytest.mark.heavy
def test_a_new_entity_can_be_used_in_the_very_next_request(world: World) -> None:
    """Unknown ids are looked up again: no header is needed, and nothing is refused or dropped."""
    assert [create_then_use(world) for _ in range(ROUNDS)] == [{}] * ROUNDS


@pytest.mark.heavy
class TestWithTheRevisionOfTheWrite:
    """A request that carries the revision never sees an older state."""

    @pytest.mark.parametrize("how", ["suspend", "delete", "set_password"])
    def test_a_subject_is_refused_in_the_next_exchange(self, world: World, how: str) -> None:
        for _ in range(ROUNDS):
            user = world.user()
            subject_token = world.subject_token(user)
            getattr(world.management.users, how)(user, *([new_secret()] if how == "set_password" else []))
            answer = world.exchange(subject_token, headers={"Identity_Revision": world.management.last_revision or ""})
            assert outcome(answer) == (400, "invalid_request")

    def test_an_actor_is_refused_in_the_next_exchange(self, world: World) -> None:
        """A decision that was made while the change was in flight is made again."""
        for _ in range(ROUNDS):
            actor = world.user()
            actor_token = world.userinfo_token(actor)
            subject_token = world.subject_token()
            world.management.users.suspend(actor)
            answer = world.exchange(
                subject_token,
                actor_token=actor_token,
                actor_token_type=TOKEN_TYPE_ACCESS_TOKEN,
                headers={"Identity_Revision": world.management.last_revision or ""},
            )
            assert outcome(answer) == (400, "invalid_request")
            assert world.is_usable(subject_token)

    def test_a_permission_is_gone_in_the_next_token(self, world: World) -> None:
        """For users, and for applications."""
        machine = world.client("MachineToMachine", exchange=False)
        for _ in range(ROUNDS):
            user = world.user(world.keeper_role)
            subject_token = world.subject_token(user)
            world.management.users.remove_role(user, world.keeper_role)
            headers = {"Identity_Revision": world.management.last_revision or ""}
            assert world.exchange(subject_token, headers=headers).json()["scope"] == ""

            world.management.applications.assign_roles(machine.id, [world.machine_role])
            assert world.client_credentials(machine).json()["scope"] == "read:things"
            world.management.applications.remove_role(machine.id, world.machine_role)
            headers = {"Identity_Revision": world.management.last_revision or ""}
            assert world.client_credentials(machine, headers=headers).json()["scope"] == ""

    def test_a_deleted_scope_is_never_granted(self, world: World) -> None:
        """Neither is a new scope of the same name."""
        resource = world.management.resources.create("Passing", f"https://{new_secret()}.example.com/api".lower())
        scope = world.management.resources.create_scope(resource.id, "read:it")
        role = world.management.roles.create(f"role {resource.id}", "reads", "User", [scope.id])
        user = world.user(role.id)

        def granted() -> str:
            headers = {"Identity_Revision": world.management.last_revision or ""}
            answer = world.exchange(
                world.subject_token(user), resource=resource.indicator, scope="read:it", headers=headers
            )
            return str(answer.json()["scope"])

        seen = [granted()]
        world.management.resources.delete_scope(resource.id, scope.id)
        seen.append(granted())
        world.management.resources.create_scope(resource.id, "read:it")
        seen.append(granted())
        assert seen == ["read:it", "", ""]

    def test_a_recreated_resource_inherits_nothing(self, world: World) -> None:
        """CVE-2026-55670: a reused indicator is a new resource; scopes and assignments do not come back."""
        indicator = f"https://{new_secret()}.example.com/api".lower()
        first = world.management.resources.create("First", indicator, 100)
        scope = world.management.resources.create_scope(first.id, "read:it")
        role = world.management.roles.create(f"role {first.id}", "reads", "User", [scope.id])
        user = world.user(role.id)
        before = world.exchange(world.subject_token(user), resource=indicator, scope="read:it").json()
        world.management.resources.delete(first.id)
        second = world.management.resources.create("Second", indicator, 200)
        world.management.resources.create_scope(second.id, "read:it")
        after = world.exchange(world.subject_token(user), resource=indicator, scope="read:it").json()

        assert (before["scope"], before["expires_in"]) == ("read:it", 100)
        assert (after["scope"], after["expires_in"]) == ("", 200)


@pytest.mark.heavy
def test_a_request_waits_for_a_fresh_revision_and_is_not_refused(world: World) -> None:
    for _ in range(ROUNDS):
        world.user()
        headers = {"Identity_Revision": world.management.last_revision or ""}
        assert outcome(world.client_credentials(headers=headers)) == (200, None)
        assert outcome(world.exchange(world.subject_token(), headers=headers)) == (200, None)


@pytest.mark.heavy
def test_an_emptied_redis_causes_no_wrong_grant_and_is_rebuilt(world: World) -> None:
    """Between the loss and the rebuild every answer is 503; a suspended user stays suspended."""
    suspended = world.user(world.keeper_role)
    world.management.users.suspend(suspended)
    deleted = world.user(world.keeper_role)
    world.management.users.delete(deleted)
    actor_token, ended_actor_token = (
        world.forger.access_token(
            sub=user, client_id=world.traditional.id, aud=f"{world.stack.issuer}/me", scope="openid"
        )
        for user in (world.agent, suspended)
    )
    lost = world.subject_token()
    refusals = {(503, "temporarily_unavailable"), (400, "invalid_request")}
    seen: list[tuple[int, str | None]] = []

    def is_missed() -> bool:
        """Empty Redis again until a request arrives before the rebuild, which may be immediate."""
        world.redis.eval(EMPTIED, 0)
        seen.append(outcome(world.exchange(lost)))
        return outcome(world.with_actor(actor_token)) == (503, "temporarily_unavailable")

    eventually(is_missed)
    assert set(seen) <= refusals
    seen.clear()

    def works() -> bool:
        assert outcome(world.with_actor(ended_actor_token)) in refusals
        answer = world.with_actor(actor_token)
        seen.append(outcome(answer))
        if answer.status_code == 503:
            assert answer.headers["Retry-After"] in SOON
        assert answer.status_code == 503 or answer.json()["scope"] == "read:things"
        assert outcome(world.client_credentials()) == (200, None)
        return answer.status_code == 200

    eventually(works)
    assert set(seen) <= {(503, "temporarily_unavailable"), (200, None)}
    assert outcome(world.exchange(lost)) == (400, "invalid_request")
    assert outcome(world.with_actor(ended_actor_token)) == (400, "invalid_request")
