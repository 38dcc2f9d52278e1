"""``/api/configs/jwt-customizer``: environment variables, which are write-only and sealed."""

import base64
import os

import msgspec
import pytest

from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import (
    DryRun,
    DryRunAnswer,
    ScriptProblem,
    ScriptTested,
    SealedVariables,
    TestScript,
)
from management_service.app import create_app
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs
from tests.support.claims_function import ScriptAnswers
from tests.support.claims_function_versions import GENERAL, MACHINES, SCRIPT, TEST, USERS, VARIABLES, saved
from tests.support.issuer import Issuer
from tests.support.management_api import Management, client_of, refusal, running, settings_for


async def test_environment_variables_that_are_kept_are_sealed_for_the_new_version(
    own: Management, answers: ScriptAnswers
) -> None:
    await saved(own, environmentVariables=VARIABLES)
    patched = (await own.client.patch(USERS, json={"blockIssuanceOnError": True})).json()
    state = await own.event_data("claims-function", "access-token")
    variables = SealedVariables(SealingKeys(own.settings.environment_variable_keys), tenant_id=own.tenant_id)
    opened = variables.open(state["sealed_environment_variables"], kind="access-token", version=patched["version"])
    assert opened == VARIABLES


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


@pytest.mark.parametrize(
    "script",
    [
        "const getCustomJwtClaims = ({ environmentVariables }) => environmentVariables;",
        f"{SCRIPT}\n",
        f" {SCRIPT}",
        SCRIPT.replace("plan", "Plan"),
        SCRIPT.replace("a", "\u0430", 1),
    ],
)
async def test_a_changed_script_needs_its_variables_anew(own: Management, answers: ScriptAnswers, script: str) -> None:
    """It could return the stored values, which are write-only."""
    before = await saved(own, environmentVariables=VARIABLES)
    revision = await own.revision()

    refused = await own.client.patch(USERS, json={"script": script, "blockIssuanceOnError": True})

    assert refusal(refused) == GENERAL
    assert refused.json()["data"] == {"reason": "variables-needed", "missing": ["API_KEY", "REGION"]}
    assert "API_KEY, REGION" in refused.json()["message"]
    assert ((await own.client.get(USERS)).json(), await own.revision()) == (before, revision)
    for given, names in (({"REGION": "us"}, ["REGION"]), ({}, []), (None, [])):
        await saved(own, environmentVariables=VARIABLES)
        answer = await own.client.patch(USERS, json={"script": script, "environmentVariables": given})
        assert (answer.status_code, answer.json()["environmentVariables"]) == (200, names)
        state = await own.event_data("claims-function", "access-token")
        keys = SealingKeys(own.settings.environment_variable_keys)
        opened = SealedVariables(keys, tenant_id=own.tenant_id).open(
            state.get("sealed_environment_variables", ""), kind="access-token", version=answer.json()["version"]
        )
        assert opened == (given or {})
        assert (await own.client.patch(USERS, json={"script": f"{script}\n\n"})).status_code == (422 if names else 200)


async def test_an_unchanged_script_keeps_its_variables(own: Management, answers: ScriptAnswers) -> None:
    """A version that is activated again has its own script and its own variables."""
    first = await saved(own, environmentVariables=VARIABLES)
    patched = (await own.client.patch(USERS, json={"script": SCRIPT, "blockIssuanceOnError": True})).json()
    assert (patched["version"], patched["environmentVariables"]) == (first["version"] + 1, ["API_KEY", "REGION"])
    other = "const getCustomJwtClaims = ({ environmentVariables }) => environmentVariables;"
    replaced = await saved(own, script=other)
    assert replaced["environmentVariables"] == []
    activated = (await own.client.post(f"{USERS}/versions/{first['version']}/activate")).json()
    assert (activated["script"], activated["environmentVariables"]) == (SCRIPT, ["API_KEY", "REGION"])
    refused = await own.client.patch(USERS, json={"script": other})
    assert refusal(refused) == GENERAL
    activated = (await own.client.post(f"{USERS}/versions/{replaced['version']}/activate")).json()
    assert (activated["script"], activated["environmentVariables"]) == (other, [])


async def test_environment_variables_are_nowhere_in_the_clear(own: Management, answers: ScriptAnswers) -> None:
    """Not in an answer, the log, the database, an event, or the requests to token-service."""
    await saved(own)
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


@pytest.mark.heavy
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


@pytest.mark.heavy
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
