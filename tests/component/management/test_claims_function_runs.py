"""``/api/configs/jwt-customizer``: tests and dry runs of a script, recordings and failures."""

from typing import Any

import pytest

from identity_common.wire.claims_function import (
    DryRun,
    DryRunAnswer,
    DryRunOfInput,
    Failure,
    Failures,
    Function,
    ReadFailures,
    ReadRecording,
    RecordingState,
    ScriptProblem,
    ScriptTested,
    StartRecording,
    TestScript,
)
from tests.support.claims_function import ScriptAnswers
from tests.support.claims_function_versions import GENERAL, MACHINES, SCRIPT, TEST, USERS, VARIABLES, saved
from tests.support.management_api import Management, refusal


async def test_a_test_of_a_script_sends_everything_and_answers_the_claims(
    own: Management, answers: ScriptAnswers
) -> None:
    body = {
        "tokenType": "client-credentials",
        "script": SCRIPT,
        "environmentVariables": VARIABLES,
        "token": {"aud": "https://api.example.com", "scope": "read"},
        "context": {"application": {"id": "a", "name": "Ä"}},
    }
    claims = {"plan": "gold", "n": 1.5, "deep": {"a": [None, True]}}
    answers.answer = ScriptTested(claims=claims, dropped=["aud", "sub"])
    revision = await own.revision()
    answer = await own.client.post(TEST, json=body)
    assert (answer.status_code, answer.json()) == (200, claims)
    assert answer.headers["Dropped-Claims"] == "aud, sub"
    assert await own.revision() == revision
    (asked,) = answers.asked
    assert asked == TestScript(
        kind="client-credentials",
        function=Function(script=SCRIPT, environment_variables=VARIABLES),
        token=body["token"],
        context=body["context"],
    )
    answers.answer = ScriptTested()
    answer = await own.client.post(TEST, json=body)
    assert (answer.json(), answer.headers.get("Dropped-Claims")) == ({}, None)


@pytest.mark.parametrize(
    ("tested", "expected", "message", "data"),
    [
        (ScriptTested(denied="Not from there."), (403, "jwt_customizer.general"), "Not from there.", None),
        (ScriptTested(denied=""), (403, "jwt_customizer.general"), "The script denied access.", None),
        (
            ScriptTested(problem=ScriptProblem(reason="exception", message="x is not defined", line=1, column=9)),
            GENERAL,
            "x is not defined",
            {"reason": "exception", "line": 1, "column": 9},
        ),
        (ScriptTested(problem=ScriptProblem(reason="time")), GENERAL, "The script failed.", {"reason": "time"}),
    ],
    ids=["denied", "denied-without-a-message", "exception", "time"],
)
async def test_a_script_that_denies_or_fails_a_test(
    own: Management,
    answers: ScriptAnswers,
    tested: ScriptTested,
    expected: tuple[int, str],
    message: str,
    data: dict[str, Any] | None,
) -> None:
    answers.answer = tested
    body = {"tokenType": "access-token", "script": SCRIPT, "token": {}, "context": {}}
    answer = await own.client.post(TEST, json=body)
    assert refusal(answer) == expected
    assert (answer.json()["message"], answer.json().get("data")) == (message, data)


async def test_a_dry_run_compares_a_candidate_with_the_active_version(own: Management, answers: ScriptAnswers) -> None:
    active = await saved(own, environmentVariables=VARIABLES)
    in_force = Function(version=active["version"], script=SCRIPT, environment_variables=VARIABLES)
    problem = ScriptProblem(reason="exception", message="boom", line=2)
    answers.answer = DryRunAnswer(
        runs=[
            DryRunOfInput(recorded_at=1764547200000, added={"a": 1}, changed={"b": [2]}, removed=["c"]),
            DryRunOfInput(recorded_at=1764547100000, denied="no", active_problem=problem),
            DryRunOfInput(recorded_at=1764547000000, problem=problem, active_denied="", dropped=["sub"]),
        ],
        omitted=7,
    )
    shown = {"reason": "exception", "message": "boom", "line": 2, "column": None}
    nothing = {"added": {}, "changed": {}, "removed": [], "dropped": []}
    nothing |= dict.fromkeys(("denied", "problem", "activeDenied", "activeProblem"))
    answer = await own.client.post(f"{USERS}/dry-run", json={"script": "candidate"})
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "runs": [
                {**nothing, "recordedAt": 1764547200000, "added": {"a": 1}, "changed": {"b": [2]}, "removed": ["c"]},
                {**nothing, "recordedAt": 1764547100000, "denied": "no", "activeProblem": shown},
                {**nothing, "recordedAt": 1764547000000, "problem": shown, "activeDenied": "", "dropped": ["sub"]},
            ],
            "omitted": 7,
        },
    )
    await own.client.post(f"{USERS}/dry-run", json={"script": "candidate", "environmentVariables": {"A": "1"}})
    await own.client.delete(USERS)
    await own.client.post(f"{USERS}/dry-run", json={"script": "candidate"})
    asked = [question for question in answers.asked if isinstance(question, DryRun)]
    assert [(each.candidate, each.active) for each in asked] == [
        (Function(script="candidate"), in_force),
        (Function(script="candidate", environment_variables={"A": "1"}), in_force),
        (Function(script="candidate"), None),
    ]
    assert {each.kind for each in asked} == {"access-token"}


async def test_a_saved_version_is_run_with_its_own_variables(own: Management, answers: ScriptAnswers) -> None:
    first = await saved(own, environmentVariables=VARIABLES)
    second = await saved(own, script=f"{SCRIPT} // two", environmentVariables={"REGION": "us"})
    answers.forget()
    arguments = {"tokenType": "access-token", "token": {}, "context": {}}
    answers.answer = ScriptTested(claims={"a": 1})
    tested = await own.client.post(TEST, json={**arguments, "version": first["version"]})
    assert (tested.status_code, tested.json()) == (200, {"a": 1})
    other = {"version": first["version"], "environmentVariables": {"REGION": "ap"}}
    await own.client.post(TEST, json={**arguments, **other})
    answers.answer = DryRunAnswer()
    assert (await own.client.post(f"{USERS}/dry-run", json={"version": first["version"]})).status_code == 200
    await own.client.post(f"{USERS}/dry-run", json=other)
    old = Function(version=first["version"], script=SCRIPT, environment_variables=VARIABLES)
    changed = Function(version=first["version"], script=SCRIPT, environment_variables={"REGION": "ap"})
    active = Function(version=second["version"], script=f"{SCRIPT} // two", environment_variables={"REGION": "us"})
    assert answers.asked == [
        *(TestScript(kind="access-token", function=each, token={}, context={}) for each in (old, changed)),
        *(DryRun(kind="access-token", candidate=each, active=active) for each in (old, changed)),
    ]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, (400, "guard.invalid_input")),
        ({"script": SCRIPT, "version": 1}, (400, "guard.invalid_input")),
        ({"version": None}, (400, "guard.invalid_input")),
        ({"version": 0}, (400, "guard.invalid_input")),
        ({"version": "1"}, (400, "guard.invalid_input")),
        ({"version": 999_999_999}, (422, "entity.relation_foreign_key_not_found")),
        ({"version": 1, "environmentVariables": {"A": "x" * 17_000}}, GENERAL),
    ],
    ids=["neither", "both", "null", "zero", "text", "unknown", "large-variables"],
)
async def test_a_script_or_a_saved_version_is_run(
    own: Management, answers: ScriptAnswers, chosen: dict[str, Any], expected: tuple[int, str]
) -> None:
    await saved(own)
    answers.forget()
    tested = await own.client.post(TEST, json={"tokenType": "access-token", "token": {}, "context": {}, **chosen})
    assert refusal(tested) == expected
    assert refusal(await own.client.post(f"{USERS}/dry-run", json=chosen)) == expected
    assert answers.asked == []


async def test_recording_and_failures(own: Management, answers: ScriptAnswers) -> None:
    revision = await own.revision()
    answers.answer = RecordingState(until=1764547200000, inputs=4)
    started = await own.client.post(f"{USERS}/recording", json={"minutes": 1440})
    assert (started.status_code, started.json()) == (200, {"expiresAt": 1764547200000, "inputCount": 4})
    async with own.client_with(own.token(scope="read")) as reader:
        assert (await reader.get(f"{USERS}/recording")).json() == started.json()
        assert (await reader.post(f"{USERS}/recording", json={"minutes": 0})).status_code == 403
    answers.answer = RecordingState(until=0)
    assert (await own.client.post(f"{USERS}/recording", json={"minutes": 0})).json() == {
        "expiresAt": None,
        "inputCount": 0,
    }
    answers.answer = Failures(
        failures=[
            Failure(at=1764547200000, version=3, reason="exception", line=2, column=5),
            Failure(at=1764547100000, version=2, reason="worker-died"),
        ]
    )
    failures = await own.client.get(f"{MACHINES}/failures")
    assert (failures.status_code, failures.json()) == (
        200,
        [
            {"time": 1764547200000, "version": 3, "reason": "exception", "line": 2, "column": 5},
            {"time": 1764547100000, "version": 2, "reason": "worker-died", "line": None, "column": None},
        ],
    )
    assert answers.asked == [
        StartRecording(kind="access-token", minutes=1440),
        ReadRecording(kind="access-token"),
        StartRecording(kind="access-token", minutes=0),
        ReadFailures(kind="client-credentials"),
    ]
    assert await own.revision() == revision
