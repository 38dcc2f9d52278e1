"""``/api/configs/jwt-customizer``: versions of the custom-claims function, and what is asked about scripts."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import msgspec
import nats
import pytest
import pytest_asyncio

from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import (
    CheckScript,
    DryRun,
    DryRunAnswer,
    DryRunOfInput,
    Failure,
    Failures,
    Function,
    ReadFailures,
    ReadRecording,
    RecordingState,
    ScriptChecked,
    ScriptProblem,
    ScriptTested,
    SealedVariables,
    StartRecording,
    TestScript,
    Unavailable,
)
from management_service.app import create_app
from management_service.commands import republish
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs
from tests.support.claims_function import ScriptAnswers
from tests.support.issuer import Issuer
from tests.support.management_api import (
    Management,
    at_once,
    client_of,
    issues,
    refusal,
    revision_of,
    running,
    settings_for,
)
from tests.support.waiting import WAIT_S

USERS = "/api/configs/jwt-customizer/access-token"
MACHINES = "/api/configs/jwt-customizer/client-credentials"
TEST = "/api/configs/jwt-customizer/test"
SCRIPT = "const getCustomJwtClaims = async ({ context }) => ({ plan: context.user.customData.plan });"
VARIABLES = {"API_KEY": "correct-horse-battery", "REGION": "eu"}
GENERAL = (422, "jwt_customizer.general")


@pytest_asyncio.fixture(scope="module")
async def own(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Management]:
    """A tenant of its own: there is one function for each kind of token."""
    async with Management(servers, issuer) as own:
        yield own


@pytest_asyncio.fixture(scope="module")
async def answering(own: Management) -> AsyncIterator[ScriptAnswers]:
    async with ScriptAnswers(own) as answering:
        yield answering


@pytest.fixture
def answers(answering: ScriptAnswers) -> ScriptAnswers:
    answering.forget()
    return answering


async def saved(own: Management, path: str = USERS, **members: Any) -> Any:
    """Save a version and return the answer's body."""
    answer = await own.client.put(path, json={"script": SCRIPT, **members})
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()


async def counter(own: Management, kind: str) -> tuple[int, int | None, list[int]]:
    """Return the last and the active version as stored, and the numbers of all versions."""
    row = await own.database.fetchrow(
        "SELECT last_version, active_version FROM claims_functions WHERE tenant_id = $1 AND kind = $2",
        own.tenant_id,
        kind,
    )
    numbers = await own.database.fetch(
        "SELECT version FROM claims_function_versions WHERE tenant_id = $1 AND kind = $2 ORDER BY version",
        own.tenant_id,
        kind,
    )
    return row["last_version"], row["active_version"], [number["version"] for number in numbers]


async def test_the_life_of_a_function(own: Management, answers: ScriptAnswers) -> None:
    """Created, read, changed, rolled back, deleted and brought back: every answer, every event."""
    for method in ("GET", "PATCH", "DELETE"):
        expected = {"GET": "entity.not_exists_with_id", "PATCH": "entity.not_exists", "DELETE": "entity.not_found"}
        answer = await own.client.request(method, MACHINES, json={})
        assert refusal(answer) == (404, expected[method])
    body = {
        "script": SCRIPT,
        "environmentVariables": VARIABLES,
        "contextSample": {"application": {"id": "a"}},
        "tokenSample": {"aud": "https://api.example.com"},
        "blockIssuanceOnError": True,
    }
    created = await own.client.put(MACHINES, json=body)
    assert created.status_code == 201
    first = created.json()
    assert first == {
        "tenantId": own.tenant_id,
        "tokenType": "client-credentials",
        "version": 1,
        "isActive": True,
        "script": SCRIPT,
        "environmentVariables": ["API_KEY", "REGION"],
        "contextSample": {"application": {"id": "a"}},
        "tokenSample": {"aud": "https://api.example.com"},
        "blockIssuanceOnError": True,
        "createdAt": first["createdAt"],
        "createdBy": {"applicationId": own.credentials.client_id, "userId": None},
    }
    read = await own.client.get(MACHINES)
    assert read.json() == first
    assert (await own.client.get(MACHINES, headers={"If-None-Match": read.headers["ETag"]})).status_code == 304
    event = await own.event("claims-function", "client-credentials")
    assert event is not None
    assert (event.type, event.revision) == ("claims-function.created", revision_of(created))
    state = json.loads(bytes(event.data))
    sealed = state.pop("sealed_environment_variables")
    assert state == {
        "kind": "client-credentials", "version": 1, "script": SCRIPT, "block_issuance_on_error": True
    }  # fmt: skip
    keys = SealingKeys(own.settings.environment_variable_keys)
    opened = SealedVariables(keys, tenant_id=own.tenant_id).open(sealed, kind="client-credentials", version=1)
    assert opened == VARIABLES

    replaced = await own.client.put(MACHINES, json={"script": f"{SCRIPT} // two"})
    assert (replaced.status_code, replaced.json()["version"]) == (200, 2)
    assert replaced.json()["environmentVariables"] == []
    assert await own.event_data("claims-function", "client-credentials") == {
        "kind": "client-credentials", "version": 2, "script": f"{SCRIPT} // two"
    }  # fmt: skip

    listed = await own.client.get(f"{MACHINES}/versions")
    assert [(each["version"], each["isActive"]) for each in listed.json()] == [(2, True), (1, False)]
    assert all(each.keys() == first.keys() - {"script", "contextSample", "tokenSample"} for each in listed.json())
    found = await own.client.get(f"{MACHINES}/versions", params={"q": "// TWO", "page_size": 1})
    assert ([each["version"] for each in found.json()], found.headers["Total-Number"]) == ([2], "1")
    assert (await own.client.get(f"{MACHINES}/versions/1")).json() == {**first, "isActive": False}

    rolled_back = await own.client.post(f"{MACHINES}/versions/1/activate")
    assert (rolled_back.status_code, rolled_back.json()) == (200, first)
    assert revision_of(rolled_back) == revision_of(replaced) + 1
    assert (await own.event_data("claims-function", "client-credentials"))["sealed_environment_variables"] == sealed
    again = await own.client.post(f"{MACHINES}/versions/1/activate")
    assert revision_of(again) == revision_of(rolled_back)

    deleted = await own.client.delete(MACHINES)
    assert (deleted.status_code, revision_of(deleted)) == (204, revision_of(rolled_back) + 1)
    assert await own.event_data("claims-function", "client-credentials") == {
        "kind": "client-credentials", "deleted": True
    }  # fmt: skip
    assert (await own.client.get(MACHINES)).status_code == 404
    assert refusal(await own.client.delete(MACHINES)) == (404, "entity.not_found")
    assert [each["isActive"] for each in (await own.client.get(f"{MACHINES}/versions")).json()] == [False, False]
    assert (await own.client.post(f"{MACHINES}/versions/2/activate")).json()["version"] == 2
    assert (await own.client.delete(MACHINES)).status_code == 204
    assert (await own.client.put(MACHINES, json={"script": SCRIPT})).status_code == 201
    assert await counter(own, "client-credentials") == (3, 3, [1, 2, 3])
    assert {type(question) for question in answers.asked} == {CheckScript}


async def test_a_function_is_replaced_only_as_it_was_read(own: Management, answers: ScriptAnswers) -> None:
    """``If-Match``: no function is no version either."""
    await own.client.delete(USERS)
    mismatch = (412, "entity.version_mismatch")
    assert refusal(await own.client.put(USERS, json={"script": SCRIPT}, headers={"If-Match": "*"})) == mismatch
    assert (await own.client.get(USERS)).status_code == 404
    await saved(own)
    before = {"If-Match": (await own.client.get(USERS)).headers["ETag"]}
    changed = {"script": f"{SCRIPT}\n"}
    assert (await own.client.put(USERS, json=changed, headers=before)).is_success
    assert refusal(await own.client.put(USERS, json=changed, headers=before)) == mismatch
    assert refusal(await own.client.delete(USERS, headers=before)) == mismatch


async def test_a_version_says_which_user_saved_it(own: Management, answers: ScriptAnswers) -> None:
    """A token of a user names the application that asked for it, and the user."""
    user = (await own.created("users"))["id"]
    async with own.client_with(own.token(subject=user)) as client:
        answer = await client.put(USERS, json={"script": SCRIPT})
    expected = {"applicationId": own.credentials.client_id, "userId": user}
    assert answer.json()["createdBy"] == expected
    number = answer.json()["version"]
    assert (await own.client.get(f"{USERS}/versions/{number}")).json()["createdBy"] == expected


async def test_the_log_says_who_saved_activated_and_deleted_a_version(own: Management, answers: ScriptAnswers) -> None:
    user = (await own.created("users"))["id"]
    with captured_logs("management-service") as log:
        async with own.client_with(own.token(subject=user)) as client:
            first, second = [(await client.put(USERS, json={"script": SCRIPT})).json()["version"] for _ in range(2)]
            await client.patch(USERS, json={})
            await client.post(f"{USERS}/versions/{first}/activate")
            await client.delete(USERS)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [
        (line["event"].removeprefix("claims-function."), line["kind"], line["version"])
        for line in lines
        if line["event"].startswith("claims-function.")
        and (line["application_id"], line["user_id"]) == (own.credentials.client_id, user)
    ] == [
        ("saved", "access-token", first),
        ("saved", "access-token", second),
        ("activated", "access-token", first),
        ("deleted", "access-token", first),
    ]


async def test_a_patch_keeps_what_it_does_not_name_and_makes_a_version_only_of_a_change(
    own: Management, answers: ScriptAnswers
) -> None:
    first = await saved(own, environmentVariables=VARIABLES, contextSample={"a": 1}, blockIssuanceOnError=True)
    answers.forget()
    for members, changed in (
        ({"tokenSample": {"b": 2}}, {"tokenSample": {"b": 2}}),
        ({"contextSample": None, "blockIssuanceOnError": None}, {"contextSample": None, "blockIssuanceOnError": False}),
        ({"script": f"{SCRIPT}\n"}, {"script": f"{SCRIPT}\n"}),
        ({"environmentVariables": {"NEW": "1"}}, {"environmentVariables": ["NEW"]}),
        ({"environmentVariables": None}, {"environmentVariables": []}),
    ):
        before = (await own.client.get(USERS)).json()
        answer = await own.client.patch(USERS, json=members)
        after = answer.json()
        stamp = {"version": before["version"] + 1, "createdAt": after["createdAt"]}
        assert after == {**before, **changed, **stamp, "createdBy": after["createdBy"]}, members
    assert answers.asked == [CheckScript(script=f"{SCRIPT}\n")]
    revision = await own.revision()
    last = (await own.client.get(USERS)).json()
    for same in ({}, {"environmentVariables": {}}, {"script": last["script"]}, {"blockIssuanceOnError": False}):
        answer = await own.client.patch(USERS, json=same)
        assert (answer.json(), revision_of(answer)) == (last, revision)
    assert (await own.client.get(f"{USERS}/versions/{first['version']}")).json() == {**first, "isActive": False}


async def test_environment_variables_that_are_kept_are_sealed_for_the_new_version(
    own: Management, answers: ScriptAnswers
) -> None:
    await saved(own, environmentVariables=VARIABLES)
    patched = (await own.client.patch(USERS, json={"blockIssuanceOnError": True})).json()
    state = await own.event_data("claims-function", "access-token")
    variables = SealedVariables(SealingKeys(own.settings.environment_variable_keys), tenant_id=own.tenant_id)
    opened = variables.open(state["sealed_environment_variables"], kind="access-token", version=patched["version"])
    assert opened == VARIABLES


@pytest.mark.servers
async def test_concurrent_saves_make_versions_without_a_gap_and_one_is_active(
    own: Management, answers: ScriptAnswers
) -> None:
    before = await saved(own)
    script = "const getCustomJwtClaims = () => ({{ n: {} }});"
    replacements = [own.client.put(USERS, json={"script": script.format(number)}) for number in range(10)]
    changes = [own.client.patch(USERS, json={"script": script.format(number)}) for number in range(10, 15)]
    rollbacks = [own.client.post(f"{USERS}/versions/{before['version']}/activate") for _ in range(5)]
    got = await at_once(*replacements, *changes, *rollbacks)
    assert {answer.status_code for answer in got} == {200}
    last, active, numbers = await counter(own, "access-token")
    assert numbers == list(range(1, last + 1))
    new = [answer.json() for answer in got[:15]]
    assert sorted(each["version"] for each in new) == list(range(before["version"] + 1, last + 1))
    for each in new:  # a version is the one that its caller was shown
        assert (await own.client.get(f"{USERS}/versions/{each['version']}")).json()["script"] == each["script"]
    state = await own.event_data("claims-function", "access-token")
    assert state["version"] == active == (await own.client.get(USERS)).json()["version"]
    listed = (await own.client.get(f"{USERS}/versions", params={"page_size": 100})).json()
    assert [each["version"] for each in listed if each["isActive"]] == [active]


@pytest.mark.parametrize(
    ("problem", "data"),
    [
        (
            ScriptProblem(reason="syntax", message="expecting ';'", line=3, column=14),
            {"reason": "syntax", "line": 3, "column": 14},
        ),
        (
            ScriptProblem(reason="no-function", message="the script defines no getCustomJwtClaims"),
            {"reason": "no-function", "line": 1, "column": 1},
        ),
    ],
    ids=["syntax", "no-function"],
)
async def test_a_script_that_is_not_acceptable_is_not_saved(
    own: Management, answers: ScriptAnswers, problem: ScriptProblem, data: dict[str, Any]
) -> None:
    await saved(own)
    before = await counter(own, "access-token"), await own.revision()
    answers.check = ScriptChecked(problem=problem)
    for method, path in (("PUT", USERS), ("PATCH", USERS), ("POST", f"{USERS}/dry-run")):
        answer = await own.client.request(method, path, json={"script": "const"})
        assert refusal(answer) == GENERAL
        assert (answer.json()["message"], answer.json()["data"]) == (problem.message, data)
    assert (await counter(own, "access-token"), await own.revision()) == before


async def test_limits_of_size(own: Management, answers: ScriptAnswers) -> None:
    """64 KiB of script in UTF-8; 64 variables with 16 KiB together; 64 KiB of each sample."""
    at_limit = "é" * (32 * 1024)
    full = {"A": "x" * (16 * 1024 - 1)}
    assert (await saved(own, script=at_limit, environmentVariables=full))["script"] == at_limit
    assert len((await saved(own, environmentVariables={f"N{n}": "" for n in range(64)}))["environmentVariables"]) == 64
    before = await counter(own, "access-token")
    answers.forget()
    test = {"tokenType": "access-token", "token": {}, "context": {}}
    for large, place in (
        ({"script": f"{at_limit}x"}, {"line": 1, "column": 32 * 1024 + 1}),
        ({"script": f"a\n\n{at_limit}"}, {"line": 3, "column": 32 * 1024 - 1}),
        ({"script": SCRIPT, "environmentVariables": {**full, "B": ""}}, {}),
        ({"script": SCRIPT, "environmentVariables": {f"N{n}": "" for n in range(65)}}, {}),
    ):
        for method, path, more in (
            ("PUT", USERS, {}),
            ("PATCH", USERS, {}),
            ("POST", f"{USERS}/dry-run", {}),
            ("POST", TEST, test),
        ):
            answer = await own.client.request(method, path, json={**large, **more})
            assert refusal(answer) == GENERAL, (method, path)
            assert answer.json()["data"] == {"reason": "too-large", **place}
    for sample in ("contextSample", "tokenSample"):
        for method in ("PUT", "PATCH"):
            answer = await own.client.request(method, USERS, json={"script": SCRIPT, sample: {"a": "x" * 65_536}})
            assert refusal(answer) == (413, "request.too_large")
    huge = await own.client.post(TEST, json={**test, "script": SCRIPT, "context": {"a": "x" * 1_100_000}})
    assert refusal(huge) == (413, "request.too_large")
    assert (await counter(own, "access-token"), answers.asked) == (before, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "wrong"),
    [
        ("PUT", USERS, {}, {"script"}),
        ("PUT", USERS, {"script": None}, {"script"}),
        ("PUT", USERS, {"script": 1, "environmentVariables": []}, {"script", "environmentVariables"}),
        ("PUT", USERS, {"script": "", "environmentVariables": {"A": 1}}, {"environmentVariables[...]"}),
        ("PUT", USERS, {"script": "", "contextSample": [], "tokenSample": "x"}, {"contextSample", "tokenSample"}),
        ("PUT", USERS, {"script": "", "blockIssuanceOnError": "yes"}, {"blockIssuanceOnError"}),
        ("PATCH", USERS, {"script": None, "version": 3}, {"script", "version"}),
        ("POST", TEST, {"tokenType": "id-token", "script": ""}, {"tokenType", "token", "context"}),
        ("POST", f"{USERS}/dry-run", {"script": []}, {"script"}),
        ("POST", f"{USERS}/recording", {}, {"minutes"}),
        ("POST", f"{USERS}/recording", {"minutes": -1}, {"minutes"}),
        ("POST", f"{USERS}/recording", {"minutes": 1441}, {"minutes"}),
        ("POST", f"{USERS}/recording", {"minutes": 1.5}, {"minutes"}),
    ],
)
async def test_wrong_types_are_refused_member_by_member(
    own: Management, answers: ScriptAnswers, method: str, path: str, body: dict[str, Any], wrong: set[str]
) -> None:
    assert issues(await own.client.request(method, path, json=body)) == wrong
    assert answers.asked == []


async def test_unknown_kinds_and_versions_are_not_found(own: Management, answers: ScriptAnswers) -> None:
    await saved(own)
    for kind in ("id-token", "ACCESS-TOKEN", "x" * 300, "%20"):
        for method, rest in (
            ("GET", ""),
            ("PUT", ""),
            ("GET", "/versions"),
            ("POST", "/dry-run"),
            ("GET", "/failures"),
            ("GET", "/recording"),
        ):
            answer = await own.client.request(method, f"/api/configs/jwt-customizer/{kind}{rest}", json={"bad": 1})
            assert refusal(answer) == (404, "entity.not_found")
    for number in ("0", "-1", "1.0", "one", "999999999", "99999999999999999999", "\u0661", "%20"):
        assert refusal(await own.client.get(f"{USERS}/versions/{number}")) == (404, "entity.not_exists_with_id")
        activated = await own.client.post(f"{USERS}/versions/{number}/activate")
        assert refusal(activated) == (404, "entity.not_exists_with_id")


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


async def test_a_script_that_is_not_saved_gets_no_stored_variables(own: Management, answers: ScriptAnswers) -> None:
    """It could return their values, which are write-only. The text of the active version makes no difference."""
    await saved(own, environmentVariables=VARIABLES)
    answers.forget()
    answers.answer = DryRunAnswer()
    for script in (SCRIPT, "const getCustomJwtClaims = ({ environmentVariables }) => environmentVariables;"):
        assert (await own.client.post(f"{USERS}/dry-run", json={"script": script})).status_code == 200
    answers.answer = ScriptTested()
    test = {"tokenType": "access-token", "script": SCRIPT, "token": {}, "context": {}}
    assert (await own.client.post(TEST, json=test)).status_code == 200
    candidates = [each.candidate for each in answers.asked if isinstance(each, DryRun)]
    tested = [each.function for each in answers.asked if isinstance(each, TestScript)]
    assert [each.environment_variables for each in candidates + tested] == [{}, {}, {}]


@pytest.mark.servers
async def test_of_many_who_save_the_first_version_one_succeeds(own: Management, answers: ScriptAnswers) -> None:
    """``If-None-Match: *`` (RFC 9110 section 13.1.2): an active version is not replaced; a deleted function is none."""
    await saved(own)
    new = {"If-None-Match": "*"}
    last, active, _ = await counter(own, "access-token")
    assert refusal(await own.client.put(USERS, json={"script": SCRIPT}, headers=new)) == (
        412,
        "entity.version_mismatch",
    )
    assert (await counter(own, "access-token"))[:2] == (last, active)
    await own.client.delete(USERS)
    bodies = [{"script": f"{SCRIPT} // {writer}"} for writer in range(8)]
    saves = await at_once(*(own.client.put(USERS, json=body, headers=new) for body in bodies))
    assert sorted(answer.status_code for answer in saves) == [201] + [412] * 7
    written = next(body for body, answer in zip(bodies, saves, strict=True) if answer.status_code == 201)
    assert (await own.client.get(USERS)).json()["script"] == written["script"]
    assert (await counter(own, "access-token"))[:2] == (last + 1, last + 1)


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


def every_question(client: httpx.AsyncClient) -> list[Any]:
    """Return a request for every operation that asks token-service."""
    return [
        client.put(USERS, json={"script": SCRIPT}),
        client.patch(USERS, json={"script": f"{SCRIPT} "}),
        client.post(TEST, json={"tokenType": "access-token", "script": SCRIPT, "token": {}, "context": {}}),
        client.post(f"{USERS}/dry-run", json={"script": SCRIPT}),
        client.post(f"{USERS}/recording", json={"minutes": 1}),
        client.get(f"{USERS}/recording"),
        client.get(f"{USERS}/failures"),
    ]


async def require_503(own: Management, requests: list[Any], retry_after: str = "1") -> None:
    before = await counter(own, "access-token"), await own.revision()
    for answer in await at_once(*requests):
        assert refusal(answer) == (503, "temporarily_unavailable")
        assert answer.headers["Retry-After"] == retry_after
    assert (await counter(own, "access-token"), await own.revision()) == before


async def test_a_busy_token_service_is_a_503_and_nothing_is_saved(own: Management, answers: ScriptAnswers) -> None:
    await saved(own)
    answers.answer = answers.check = Unavailable(retry_after_s=7)
    await require_503(own, every_question(own.client), retry_after="7")


async def test_an_answer_of_the_wrong_kind_or_to_another_request_is_a_503(
    own: Management, answers: ScriptAnswers
) -> None:
    await saved(own)
    answers.answer = answers.check = RecordingState(until=1)
    requests = every_question(own.client)
    for _ in range(2):
        requests.pop(4).close()  # for which it is the right kind
    await require_503(own, requests)


async def test_without_token_service_there_is_a_503_and_the_rest_works(
    servers: ServerAddresses, issuer: Issuer
) -> None:
    """There is no listener, then one that is too slow or has other keys. A rollback needs none."""
    async with Management(servers, issuer) as alone:
        async with ScriptAnswers(alone):
            await saved(alone)
            await saved(alone, script=f"{SCRIPT} // two")
        await require_503(alone, every_question(alone.client))
        rolled_back = await alone.client.post(f"{USERS}/versions/1/activate")
        assert (rolled_back.status_code, rolled_back.json()["version"]) == (200, 1)
        assert (await alone.client.patch(USERS, json={"blockIssuanceOnError": True})).json()["version"] == 3
        assert (await alone.client.delete(USERS)).status_code == 204
        bus = await nats.connect(alone.addresses.token_nats_url, inbox_prefix="_INBOX_token")
        try:
            silent = await bus.subscribe(f"identity-rpc.{alone.tenant_id}.claims-function")
            await bus.flush()
            await require_503(alone, [alone.client.put(USERS, json={"script": SCRIPT})])
            await silent.unsubscribe()

            async def babble(message: nats.aio.msg.Msg) -> None:
                await message.respond(b"not sealed")

            await bus.subscribe(f"identity-rpc.{alone.tenant_id}.claims-function", cb=babble)
            await bus.flush()
            await require_503(alone, [alone.client.put(USERS, json={"script": SCRIPT})])
        finally:
            await bus.close()


async def test_environment_variables_are_nowhere_in_the_clear(own: Management, answers: ScriptAnswers) -> None:
    """Not in an answer, the log, the database, an event, or the requests to token-service."""
    secret = "d0nt-sh0w-this-anywhere"
    answers.answer = ScriptTested(problem=ScriptProblem(reason="exception", message="boom"))
    variables = {"SECRET": secret}
    with captured_logs("management-service") as log:
        shown = [
            await own.client.put(USERS, json={"script": SCRIPT, "environmentVariables": variables}),
            await own.client.patch(USERS, json={"environmentVariables": {**variables, "MORE": secret}}),
            await own.client.get(USERS),
            await own.client.get(f"{USERS}/versions"),
            await own.client.post(
                TEST,
                json={
                    "tokenType": "access-token",
                    "script": SCRIPT,
                    "environmentVariables": variables,
                    "token": {},
                    "context": {},
                },
            ),
            await own.client.put(USERS, json={"script": SCRIPT, "environmentVariables": {"A": secret * 1000}}),
            await own.client.put(USERS, json={"script": 1, "environmentVariables": variables}),
        ]
    assert [answer.status_code for answer in shown] == [200, 200, 200, 200, 422, 422, 400]
    rows = await own.database.fetch("SELECT * FROM claims_function_versions WHERE tenant_id = $1", own.tenant_id)
    event = await own.event("claims-function", "access-token")
    assert event is not None
    seen = [*(answer.text for answer in shown), log.getvalue(), repr([dict(row) for row in rows]), repr(event)]
    assert all(secret not in text for text in seen)
    assert answers.received
    assert all(SCRIPT.encode() not in each and secret.encode() not in each for each in answers.received)
    assert secret not in repr(answers.asked)


async def test_a_new_key_takes_over_at_the_next_start(servers: ServerAddresses, issuer: Issuer) -> None:
    """Every version is sealed anew, the active one is published, and the old key can be taken out of the ring."""
    async with Management(servers, issuer) as before:
        async with ScriptAnswers(before):
            await saved(before, environmentVariables=VARIABLES)
            await saved(before)
            await saved(before, environmentVariables={"B": "2"})
        (old,) = before.settings.environment_variable_keys
        new = base64.b64encode(os.urandom(32)).decode()
        changed = {"environment_variable_keys": (new, old), "tenant_id": before.tenant_id}
        async with running(create_app(settings_for(servers, issuer, **changed))):
            pass
        rows = await before.database.fetch(
            "SELECT version, sealed_environment_variables FROM claims_function_versions "
            "WHERE tenant_id = $1 ORDER BY version",
            before.tenant_id,
        )
        renewed = SealedVariables(SealingKeys([new]), tenant_id=before.tenant_id)
        opened = [
            renewed.open(row["sealed_environment_variables"], kind="access-token", version=row["version"])
            for row in rows
        ]
        assert opened == [VARIABLES, {}, {"B": "2"}]
        state = await before.event_data("claims-function", "access-token")
        assert state["sealed_environment_variables"] == rows[2]["sealed_environment_variables"]


async def test_variables_that_no_key_opens_are_a_422_and_can_be_replaced(
    servers: ServerAddresses, issuer: Issuer
) -> None:
    """Their key was taken out of the ring too early."""
    async with Management(servers, issuer) as before, ScriptAnswers(before):
        await saved(before, environmentVariables=VARIABLES)
        await saved(before, MACHINES, environmentVariables=VARIABLES)
        await before.client.delete(MACHINES)
        other = (base64.b64encode(os.urandom(32)).decode(),)
        settings = msgspec.structs.replace(before.settings, environment_variable_keys=other)
        app = create_app(settings)
        async with running(app), client_of(app, before.token()) as client:
            test = {"tokenType": "access-token", "version": 1, "token": {}, "context": {}}
            for request in (
                client.patch(USERS, json={"blockIssuanceOnError": True}),
                client.post(TEST, json=test),
                client.post(f"{USERS}/dry-run", json={"version": 1}),
                client.post(f"{USERS}/dry-run", json={"script": SCRIPT}),
                client.post(f"{MACHINES}/versions/1/activate"),
            ):
                answer = await request
                assert refusal(answer) == GENERAL
                assert answer.json()["data"] == {"reason": "unreadable-variables"}
                assert "version 1" in answer.json()["message"]
            assert (await client.get(MACHINES)).status_code == 404
            answer = await client.patch(USERS, json={"environmentVariables": {"REGION": "us"}})
            assert (answer.status_code, answer.json()["environmentVariables"]) == (200, ["REGION"])


@pytest.mark.servers
async def test_a_republication_has_the_active_version_or_the_deletion(own: Management, answers: ScriptAnswers) -> None:
    active = await saved(own)
    await saved(own, MACHINES)
    await own.client.delete(MACHINES)
    before = await own.revision()
    await asyncio.to_thread(republish, own.settings)
    async with asyncio.timeout(WAIT_S):
        while await own.database.fetchval(  # noqa: ASYNC110 - seen from outside only
            "SELECT count(*) FROM republication WHERE tenant_id = $1", own.tenant_id
        ):
            await asyncio.sleep(0.02)
    events = [await own.event("claims-function", kind) for kind in ("access-token", "client-credentials")]
    assert all(event is not None and event.revision > before for event in events)
    states = [json.loads(bytes(event.data)) for event in events if event is not None]
    assert (states[0]["version"], states[1]) == (active["version"], {"kind": "client-credentials", "deleted": True})


async def test_another_scope_another_tenant_and_no_token(
    own: Management, answers: ScriptAnswers, management: Management
) -> None:
    await saved(own)
    for token, expected in ((None, 401), (own.token(scope="subject-tokens"), 403)):
        async with own.client_with(token) as client:
            got = await at_once(*every_question(client), client.delete(USERS), client.get(f"{USERS}/versions"))
            assert {answer.status_code for answer in got} == {expected}
    assert answers.asked == [CheckScript(script=SCRIPT)]
    listed = (await management.client.get(f"{USERS}/versions", params={"page_size": 100})).json()
    assert {each["tenantId"] for each in listed} <= {management.tenant_id}
    async with client_of(own.app, own.token()) as client:
        assert (await client.get(USERS)).status_code == 200
