"""``/api/configs/jwt-customizer``: refusals, also while token-service is busy or away."""

from typing import Any

import httpx2 as httpx
import nats
import pytest

from identity_common.wire.claims_function import CheckScript, RecordingState, ScriptChecked, ScriptProblem, Unavailable
from provision import ServerAddresses
from tests.support.claims_function import ScriptAnswers
from tests.support.claims_function_versions import GENERAL, SCRIPT, TEST, USERS, counter, saved
from tests.support.issuer import Issuer
from tests.support.management_api import Management, at_once, client_of, issues, refusal
from tests.support.retrying import soon_after


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


async def require_503(own: Management, requests: list[Any], least_s: int = 1) -> None:
    before = await counter(own, "access-token"), await own.revision()
    for answer in await at_once(*requests):
        assert refusal(answer) == (503, "temporarily_unavailable")
        assert answer.headers["Retry-After"] in soon_after(least_s)
    assert (await counter(own, "access-token"), await own.revision()) == before


async def test_a_busy_token_service_is_a_503_and_nothing_is_saved(own: Management, answers: ScriptAnswers) -> None:
    await saved(own)
    answers.answer = answers.check = Unavailable(retry_after_s=7)
    await require_503(own, every_question(own.client), least_s=7)


async def test_an_answer_of_the_wrong_kind_or_to_another_request_is_a_503(
    own: Management, answers: ScriptAnswers
) -> None:
    await saved(own)
    answers.answer = answers.check = RecordingState(until=1)
    requests = every_question(own.client)
    for _ in range(2):
        requests.pop(4).close()  # for which it is the right kind
    await require_503(own, requests)


@pytest.mark.heavy
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
