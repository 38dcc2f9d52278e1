"""The custom-claims function from its save to the claims of tokens, over the API, the bus and the workers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stead import Conflict, Forbidden, ManagementClient, NotFound, TestedClaims
from tests.support.waiting import eventually
from tests.support.world import World

CLIENTS = "client-credentials"
TIER = "const getCustomJwtClaims = ({{ context, environmentVariables }}) => ({{ {members} }});"


def script(members: str) -> str:
    return TIER.format(members=members)


@pytest.fixture
def management(world: World) -> Iterator[ManagementClient]:
    """The Management API; the test's function is deleted and its recording ended."""
    yield world.management
    world.management.custom_claims.record(CLIENTS, 0)
    world.management.custom_claims.delete(CLIENTS)


@pytest.fixture
def claims(world: World) -> Callable[[], dict[str, Any]]:
    """Return the custom claims of a new token, which is requested with the newest revision."""

    def custom() -> dict[str, Any]:
        answer = world.client_credentials(headers={"Identity-Revision": str(world.management.last_revision)})
        assert answer.status_code == 200, answer.text
        found = world.claims(answer.json()["access_token"], world.resource)
        return {name: found[name] for name in ("tier", "region", "name") if name in found}

    return custom


def test_every_save_rollback_and_deletion_is_in_force_with_its_revision(
    management: ManagementClient, claims: Callable[[], dict[str, Any]]
) -> None:
    functions = management.custom_claims
    first = functions.save(
        CLIENTS,
        script("tier: 'batch', region: environmentVariables.REGION"),
        environment_variables={"REGION": "eu"},
    )
    assert claims() == {"tier": "batch", "region": "eu"}
    for number in range(5):
        functions.save(CLIENTS, script(f"tier: {number}"))
        assert claims() == {"tier": number}
    functions.activate(CLIENTS, first.version)
    assert claims() == {"tier": "batch", "region": "eu"}
    changed = script("region: environmentVariables.REGION + '!'")
    functions.update(CLIENTS, script=changed, environment_variables={"REGION": "eu"})
    assert claims() == {"region": "eu!"}
    functions.delete(CLIENTS)
    assert claims() == {}
    functions.activate(CLIENTS, first.version)
    assert claims() == {"tier": "batch", "region": "eu"}


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("const a = 1;\nconst getCustomJwtClaims = ({ => ({});", "syntax", 2),
        ("const getCustomClaims = () => ({});", "no-function", 1),
        ("", "no-function", 1),
    ],
    ids=["syntax", "no-function", "empty"],
)
def test_a_script_that_cannot_be_called_is_refused_with_its_place(
    world: World, text: str, reason: str, line: int
) -> None:
    with pytest.raises(Conflict) as refused:
        world.management.custom_claims.save(CLIENTS, text)
    assert (refused.value.code, refused.value.data["reason"]) == ("jwt_customizer.general", reason)
    assert refused.value.data["line"] == line
    assert refused.value.data["column"] >= 1
    with pytest.raises(NotFound):
        world.management.custom_claims.get(CLIENTS)


def test_a_name_without_a_function_is_saved_and_its_test_fails(world: World) -> None:
    """A script is parsed when it is saved, and not run."""
    functions = world.management.custom_claims
    saved = functions.save(CLIENTS, "const getCustomJwtClaims = 42;")
    with pytest.raises(Conflict) as failed:
        functions.test(CLIENTS, version=saved.version, token={}, context={})
    assert failed.value.data["reason"] == "no-function"
    functions.delete(CLIENTS)


def test_a_test_answers_claims_dropped_names_denials_and_errors(world: World) -> None:
    test = world.management.custom_claims.test
    given: dict[str, Any] = {"token": {"aud": "a"}, "context": {"n": 1}}
    assert test(CLIENTS, script("sub: 'me', aud: 'you', n: context.n"), **given) == TestedClaims(
        claims={"n": 1}, dropped=["aud", "sub"]
    )
    with pytest.raises(Forbidden) as denied:
        test(CLIENTS, "const getCustomJwtClaims = ({ api }) => api.denyAccess('Not today.');", **given)
    assert denied.value.message == "Not today."
    with pytest.raises(Conflict) as failed:
        test(CLIENTS, "const getCustomJwtClaims = () => {\n  throw new Error('boom');\n};", **given)
    assert (failed.value.data["reason"], failed.value.data["line"]) == ("exception", 2)
    assert "boom" in failed.value.message


def test_a_dry_run_says_what_a_candidate_would_change_for_real_inputs(
    world: World, management: ManagementClient, claims: Callable[[], dict[str, Any]]
) -> None:
    functions = management.custom_claims
    functions.save(CLIENTS, script("tier: 'batch', region: 'eu'"))
    candidate = script("tier: 'interactive', name: context.application.id")
    assert functions.dry_run(CLIENTS, candidate).runs == []
    functions.record(CLIENTS, minutes=1)

    def is_recorded() -> bool:
        claims()
        return bool(functions.dry_run(CLIENTS, candidate).runs)

    eventually(is_recorded)
    run = functions.dry_run(CLIENTS, candidate).runs[0]
    assert (run.added, run.changed) == ({"name": world.machine.id}, {"tier": "interactive"})
    assert (run.removed, run.denied, run.problem) == (["region"], None, None)
    failing = functions.dry_run(CLIENTS, script("tier: context.user.id")).runs[0]
    assert failing.problem is not None
    assert (failing.problem.reason, failing.problem.line) == ("exception", 1)
    assert functions.record(CLIENTS, 0).expires_at is None
    assert functions.dry_run(CLIENTS, candidate).runs == []


def test_a_failure_is_listed_with_its_version_and_line_and_without_personal_data(
    management: ManagementClient, claims: Callable[[], dict[str, Any]]
) -> None:
    functions = management.custom_claims
    saved = functions.save(CLIENTS, "const getCustomJwtClaims = ({ context }) => {\n  throw new Error(context);\n};")
    assert claims() == {}

    def listed() -> list[tuple[int, str, int | None]]:
        return [(each.version, each.reason, each.line) for each in functions.failures(CLIENTS)]

    eventually(lambda: (saved.version, "exception", 2) in listed())
