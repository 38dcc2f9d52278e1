"""``/api/configs/impersonation``, and what minting makes of it."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
import pytest_asyncio

from identity_common.serving import CommandError
from identity_common.wire.events import ImpersonationPolicyState
from management_service.commands import bootstrap
from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management, at_once, issues, refusal, unique
from tests.support.waiting import WAIT_S

PATH = "/api/configs/impersonation"
OFF = {"requireActor": False, "requireContext": [], "excludedRoles": [], "actorMaxAgeS": None, "actorAcr": None}


@pytest_asyncio.fixture(scope="module", autouse=True)
async def clean(own: Management) -> AsyncIterator[None]:
    """The first to read the policy of this tenant finds none."""
    assert (await own.client.get(PATH)).json() == {"tenantId": own.tenant_id, **OFF}
    yield


@pytest_asyncio.fixture(autouse=True)
async def off(own: Management) -> AsyncIterator[None]:
    yield
    await changed(own, **dict.fromkeys(OFF))


async def changed(own: Management, **members: Any) -> dict[str, Any]:
    answer = await own.client.patch(PATH, json=members)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def role(own: Management, kind: str = "User") -> str:
    return str((await own.created("roles", name=unique("r"), description="", type=kind))["id"])


async def minted(own: Management, user: str, **context: Any) -> httpx.Response:
    return await own.client.post("/api/subject-tokens", json={"userId": user, "context": context})


async def published(own: Management) -> tuple[int, ImpersonationPolicyState]:
    event = (await own.last_events())["impersonation-policy.tenant"]
    return event.revision, msgspec.json.decode(event.data, type=ImpersonationPolicyState)


async def test_a_change_is_answered_kept_and_published_and_null_restores_the_default(own: Management) -> None:
    first, second = await role(own), await role(own)
    policy = {
        "requireActor": True,
        "requireContext": ["reason", "ticketId"],
        "excludedRoles": sorted([first, second]),
        "actorMaxAgeS": 2_592_000,
        "actorAcr": "phr",
    }
    sent = {**policy, "requireContext": ["reason", "ticketId", "reason"], "excludedRoles": [second, first, second]}
    assert await changed(own, **sent) == {"tenantId": own.tenant_id, **policy}

    revision = await own.revision()
    assert await changed(own) == await changed(own, **policy) == (await own.client.get(PATH)).json()
    assert await own.revision() == revision
    assert await published(own) == (
        revision,
        ImpersonationPolicyState(
            require_actor=True,
            excluded_role_ids=tuple(sorted([first, second])),
            actor_max_age_s=2_592_000,
            actor_acr="phr",
        ),
    )
    assert await changed(own, actorMaxAgeS=1) == {"tenantId": own.tenant_id, **policy, "actorMaxAgeS": 1}
    assert await changed(own, **dict.fromkeys(OFF)) == {"tenantId": own.tenant_id, **OFF}


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"requireActor": "yes", "requireContext": "reason"}, {"requireActor", "requireContext"}),
        ({"requireContext": ["reason", 1]}, {"requireContext[1]"}),
        ({"requireContext": ["reason", ""]}, {"requireContext[1]"}),
        ({"requireContext": ["reason", " \t", "ticketId "]}, {"requireContext[1]", "requireContext[2]"}),
        ({"requireContext": ["rea\u200bson", "\u2800"]}, {"requireContext[0]", "requireContext[1]"}),
        ({"requireContext": ["x" * 65]}, {"requireContext[0]"}),
        ({"requireContext": [str(number) for number in range(33)]}, {"requireContext"}),
        ({"excludedRoles": [str(number) for number in range(101)]}, {"excludedRoles"}),
        ({"excludedRoles": {"id": "x"}}, {"excludedRoles"}),
        *(({"actorMaxAgeS": given}, {"actorMaxAgeS"}) for given in (0, -1, 2_592_001, 2**63 - 1, 600.5, "600", True)),
        *(({"actorAcr": given}, {"actorAcr"}) for given in ("password", "", "urn:identity:acr:mfa", 1, ["mfa"])),
        ({"requireReason": True}, {"requireReason"}),
    ],
)
async def test_what_is_not_a_policy_is_refused_and_nothing_is_lost(
    own: Management, body: dict[str, Any], paths: set[str]
) -> None:
    before = await changed(own, requireActor=True, requireContext=["reason"])
    assert issues(await own.client.patch(PATH, json=body)) == paths
    assert (await own.client.get(PATH)).json() == before


async def test_only_existing_roles_of_users_are_excluded(own: Management, management: Management) -> None:
    known, of_machines, elsewhere = await role(own), await role(own, "MachineToMachine"), await role(management)
    for role_ids, code in (
        ([known, "none"], "entity.relation_foreign_key_not_found"),
        ([known, elsewhere], "entity.relation_foreign_key_not_found"),
        ([known, of_machines], "entity.db_constraint_violated"),
    ):
        assert refusal(await own.client.patch(PATH, json={"excludedRoles": role_ids})) == (422, code)
    assert (await own.client.get(PATH)).json()["excludedRoles"] == []


async def test_a_stale_change_and_one_without_the_right_are_refused(own: Management) -> None:
    stale = (await own.client.get(PATH)).headers["ETag"]
    await changed(own, requireActor=True)
    answer = await own.client.patch(PATH, json={"requireActor": False}, headers={"If-Match": stale})
    assert refusal(answer) == (412, "entity.version_mismatch")
    for scope, expected in (("read", (200, 403)), ("subject-tokens", (403, 403))):
        async with own.client_with(own.token(scope=scope)) as client:
            answers = await client.get(PATH), await client.patch(PATH, json={"requireActor": False})
        assert tuple(answer.status_code for answer in answers) == expected
    assert (await own.client.get(PATH)).json()["requireActor"]


async def test_a_required_context_is_refused_unless_each_member_is_text(own: Management) -> None:
    user = (await own.created("users"))["id"]
    await changed(own, requireContext=["reason", "ticketId"])
    for context, missing in (
        ({}, ["reason", "ticketId"]),
        ({"reason": "Order does not arrive"}, ["ticketId"]),
        ({"reason": "", "ticketId": " \t"}, ["reason", "ticketId"]),
        ({"reason": "\u200b \u2060", "ticketId": "\u2800\u3164"}, ["reason", "ticketId"]),
        ({"reason": None, "ticketId": 4711}, ["reason", "ticketId"]),
        ({"reason": ["x"], "ticketId": "T-1", "ticketid": "x"}, ["reason"]),
    ):
        refused = await minted(own, user, **context)
        assert refusal(refused) == (422, "subject_token.context_required")
        assert refused.json()["data"] == {"missing": missing}
    assert (await minted(own, user, reason="Order does not arrive", ticketId="T-1", more=1)).status_code == 201
    async with own.client_with(None) as anonymous:
        assert (await anonymous.post("/api/subject-tokens", json={"userId": user})).status_code == 401


async def test_holders_of_an_excluded_role_cannot_be_impersonated_and_the_attempt_is_recorded(own: Management) -> None:
    excluded, other = await role(own), await role(own)
    users = [(await own.created("users"))["id"] for _ in range(3)]
    for user, role_id in zip(users, (excluded, other), strict=False):
        await own.client.post(f"/api/users/{user}/roles", json={"roleIds": [role_id]})
    await changed(own, excludedRoles=[excluded])

    answers = [await minted(own, user) for user in users]
    assert [answer.status_code for answer in answers] == [422, 201, 201]
    assert refusal(answers[0]) == (422, "user.excluded_from_impersonation")

    of_user = {"logKey": "subject-token.refused", "userId": users[0]}
    async with asyncio.timeout(WAIT_S):
        while not (found := (await own.client.get("/api/logs", params=of_user)).json()):  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.05)
    (entry,) = found
    assert {name: entry[name] for name in ("outcome", "reason", "operation", "applicationId", "requestId")} == {
        "outcome": "refused",
        "reason": "user.excluded_from_impersonation",
        "operation": "CreateSubjectToken",
        "applicationId": own.credentials.client_id,
        "requestId": answers[0].headers["X-Request-Id"],
    }
    await own.client.delete(f"/api/users/{users[0]}/roles/{excluded}")
    assert (await minted(own, users[0])).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "roles/{excluded}", None),
        ("DELETE", "users/{user}/roles/{excluded}", None),
        ("DELETE", "roles/{excluded}/users/{user}", None),
        ("PUT", "users/{user}/roles", {"roleIds": []}),
        ("PUT", "roles/{excluded}/users", {"userIds": []}),
    ],
)
async def test_a_write_that_ends_the_protection_of_a_user_needs_config_too(
    own: Management, method: str, path: str, body: Any
) -> None:
    excluded, other, user = await role(own), await role(own), (await own.created("users"))["id"]
    await own.client.put(f"/api/users/{user}/roles", json={"roleIds": [excluded, other]})
    await changed(own, excludedRoles=[excluded])
    target = f"/api/{path.format(excluded=excluded, user=user)}"
    async with own.client_with(own.token(scope="roles subject-tokens users config:read")) as lead:
        refused = await lead.request(method, target, json=body)
        assert (*refusal(refused), refused.json()["data"]) == (403, "auth.scopes_missing", {"missing": ["config"]})
        assert refusal(await lead.post("/api/subject-tokens", json={"userId": user, "context": {}})) == (
            422,
            "user.excluded_from_impersonation",
        )
        assert (await lead.put(f"/api/users/{user}/roles", json={"roleIds": [excluded]})).is_success
    async with own.client_with(own.token(scope="roles config")) as allowed:
        assert (await allowed.request(method, target, json=body)).is_success


async def test_a_deleted_role_leaves_the_policy_in_the_same_write(own: Management) -> None:
    kept, deleted = await role(own), await role(own)
    await changed(own, excludedRoles=[kept, deleted])
    assert (await own.client.delete(f"/api/roles/{deleted}")).status_code == 204
    assert (await own.client.get(PATH)).json()["excludedRoles"] == [kept]
    assert await published(own) == (await own.revision(), ImpersonationPolicyState(excluded_role_ids=(kept,)))


async def test_a_role_that_is_excluded_while_it_is_deleted_is_not_named_afterwards(own: Management) -> None:
    for _ in range(5):
        role_id = await role(own)
        change, deletion = await at_once(
            own.client.patch(PATH, json={"excludedRoles": [role_id]}), own.client.delete(f"/api/roles/{role_id}")
        )
        assert (change.status_code in {200, 422}, deletion.status_code) == (True, 204)
        assert (await own.client.get(PATH)).json()["excludedRoles"] == []


async def run(own: Management, **settings: Any) -> None:
    await asyncio.to_thread(bootstrap, msgspec.structs.replace(own.settings, **settings))


async def policy_of(own: Management, tenant_id: str) -> Any:
    query = "SELECT require_actor, require_context, excluded_roles FROM impersonation_policies WHERE tenant_id = $1"
    row = await own.database.fetchrow(query, tenant_id)
    return row and tuple(row)


async def test_bootstrap_turns_on_what_its_options_name_for_a_tenant_that_never_had_a_policy(own: Management) -> None:
    tenant_id = f"t{secrets.token_hex(6)}"
    await run(own, tenant_id=tenant_id)
    assert await policy_of(own, tenant_id) is None
    with pytest.raises(CommandError, match="there is no role 'Nobody'"):
        await run(own, tenant_id=tenant_id, bootstrap_excluded_roles=("Nobody",))
    with pytest.raises(CommandError, match="must be of the type User"):
        await run(own, tenant_id=tenant_id, bootstrap_excluded_roles=("Management API access",))
    assert await policy_of(own, tenant_id) is None

    await run(own, tenant_id=tenant_id, bootstrap_require_actor=True, bootstrap_require_context=("reason", "reason"))
    assert await policy_of(own, tenant_id) == (True, ["reason"], [])
    await run(own, tenant_id=tenant_id, bootstrap_require_context=("ticketId",), bootstrap_excluded_roles=("Nobody",))
    assert await policy_of(own, tenant_id) == (True, ["reason"], [])


@pytest.mark.heavy
async def test_where_there_are_no_passkeys_none_is_demanded(servers: ServerAddresses, issuer: Issuer) -> None:
    """No sign-in could meet it: the host of BASE_URL is an IP address, which passkeys cannot belong to."""
    base_url = issuer.base_url.replace("localhost", "127.0.0.1")
    async with Management(servers, issuer, base_url=base_url) as management:
        token, refused = management.token(iss=f"{base_url}/oidc"), (422, "factor.no_passkeys")
        async with management.client_with(token) as client:
            assert refusal(await client.patch(PATH, json={"actorAcr": "phr"})) == refused
            application = {"name": "Shop", "type": "SPA", "customClientMetadata": {"minimumAcr": "phr"}}
            assert refusal(await client.post("/api/applications", json=application)) == refused
            application["customClientMetadata"] = {"minimumAcr": "mfa"}
            created = await client.post("/api/applications", json=application)
            assert created.status_code == 200, created.text
            path = f"/api/applications/{created.json()['id']}"
            assert refusal(await client.patch(path, json={"customClientMetadata": {"minimumAcr": "phr"}})) == refused
