"""``/api/configs/jwt-customizer``: the versions of the custom-claims function."""

import asyncio
import json

import pytest

from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import CheckScript, SealedVariables
from management_service.commands import republish
from tests.support.captured_logs import captured_logs
from tests.support.claims_function import ScriptAnswers
from tests.support.claims_function_versions import MACHINES, SCRIPT, USERS, VARIABLES, counter, saved
from tests.support.management_api import Management, at_once, refusal, revision_of
from tests.support.waiting import WAIT_S


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
    event = await own.event("claims-function", "client-credentials")
    assert event is not None
    assert event.type == "claims-function.created"
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
            for _ in range(2):
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
        ({"environmentVariables": {"NEW": "1"}}, {"environmentVariables": ["NEW"]}),
        ({"environmentVariables": None}, {"environmentVariables": []}),
        ({"script": f"{SCRIPT}\n"}, {"script": f"{SCRIPT}\n"}),
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


async def test_a_republication_has_the_active_version_or_the_deletion(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own, ScriptAnswers(own):
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
