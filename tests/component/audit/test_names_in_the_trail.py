"""The trail is asked by name, answers with names beside its entries, and never takes an unknown name for nothing."""

import asyncio
import csv
import io
from functools import partial
from typing import Any

import httpx2 as httpx
import msgspec
import nats
import pytest
from nats.aio.msg import Msg

from identity_common.identifiers import new_id
from identity_common.wire.organization_names import organization_names_subject
from management_service.audit.reading.names import MAX_MATCHES
from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S


async def listed(client: httpx.AsyncClient, count: int, **params: str) -> list[dict[str, Any]]:
    """Return the entries that match, oldest first, once there are so many."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await client.get("/api/logs", params=params)
            if answer.is_success and len(found := answer.json()) >= count:
                return list(found[::-1])
            await asyncio.sleep(0.05)


async def keys(client: httpx.AsyncClient, count: int, **params: str) -> list[str]:
    return [each["key"] for each in await listed(client, count, **params)]


async def test_entries_are_found_by_the_names_and_ids_of_what_they_concern(template: Template) -> None:
    management, name = template.management, unique("Zoë Straße")
    client = management.client
    user = await management.created(
        "users", name=name, username=unique("kim").replace("-", "_"), primaryEmail=f"{unique('Kim')}@example.com"
    )
    application = await management.created("applications", name=unique("Support desk"), type="MachineToMachine")
    organization = await template.organization(name=unique("Acme"))
    created, app_created = "management.user.create", "management.application.create"
    for text in (user["id"], user["username"].upper(), user["primaryEmail"].upper(), name, f"  {name}  "):
        assert await keys(client, 1, q=text) == await keys(client, 1, person=text) == [created], text
    for text in (application["id"], application["name"]):
        assert await keys(client, 1, q=text) == await keys(client, 1, application=text) == [app_created]
    for text in (organization["id"], organization["name"]):
        created_in_template = ["template.organization.create"]
        assert await keys(client, 1, q=text) == await keys(client, 1, organization=text) == created_in_template

    alike = await management.created("applications", name=name, type="MachineToMachine")
    assert await keys(client, 2, q=name) == [created, app_created]
    assert await keys(client, 1, q=name, logKey=app_created) == [app_created]
    assert await keys(client, 1, q=name, targetId=alike["id"]) == [app_created]
    assert await keys(client, 1, q=name, person=user["id"]) == await keys(client, 1, person=name) == [created]
    exported = await client.get("/api/logs/export", params={"q": name})
    assert [msgspec.json.decode(line)["key"] for line in exported.content.splitlines()] == [created, app_created]


async def test_what_the_trail_cannot_know_by_this_name_is_refused(template: Template, management: Management) -> None:
    client, name = management.client, unique("Twin")
    await asyncio.gather(*(management.created("users", name=name) for _ in range(MAX_MATCHES + 1)))
    for path in ("/api/logs", "/api/logs/export"):
        for parameter in ("q", "person", "application", "organization", "ticketId"):
            for text in (unique("nobody"), "nobody@example.com", "x" * 256, name.upper(), "%", "' OR true --"):
                answer = await client.get(path, params={parameter: text})
                assert refusal(answer) == (422, "log.unknown_name")
                assert answer.json()["message"].startswith(f"{parameter}: ")
                assert [each["path"] for each in answer.json()["data"]["issues"]] == [parameter]
            ambiguous = "ambiguous" if parameter in {"q", "person"} else "unknown"
            assert refusal(await client.get(path, params={parameter: name})) == (422, f"log.{ambiguous}_name")
            for query in ("", "%00", "x" * 257, f"a&{parameter}=b"):
                assert issues(await client.get(f"{path}?{parameter}={query}")) == {parameter}, query
    application = await management.created("applications", name=unique("app"), type="MachineToMachine")
    assert refusal(await client.get("/api/logs", params={"person": application["name"]})) == (422, "log.unknown_name")


@pytest.mark.heavy
async def test_a_name_of_another_tenant_is_unknown(
    template: Template, servers: ServerAddresses, issuer: Issuer
) -> None:
    user = await template.management.created("users", name=unique("Elsewhere"))
    organization = await template.organization()
    async with Management(servers, issuer) as other, Template(other):
        for text in (user["name"], user["id"], organization["name"], organization["id"]):
            answer = await other.client.get("/api/logs", params={"q": text})
            assert refusal(answer) == (422, "log.unknown_name")


@pytest.mark.heavy
async def test_a_name_is_not_unknown_while_template_service_does_not_answer(
    servers: ServerAddresses, issuer: Issuer
) -> None:
    """There is no listener, then one whose database is down, then one that makes no sense."""
    async with Management(servers, issuer) as alone:
        user = await alone.created("users", name="Kim", username="kim", primaryEmail="kim@example.com")
        bus = await nats.connect(servers.template_nats_url, inbox_prefix="_INBOX_template")
        try:
            for reply in (None, b'{"unavailable":true}', b'{"ids":[1]}', b"nonsense"):
                if reply is not None:
                    subject = organization_names_subject(alone.tenant_id)
                    listener = await bus.subscribe(subject, cb=partial(_respond, reply))
                    await bus.flush()
                for text in ("Acme", "Kim", "kim"):
                    answer = await alone.client.get("/api/logs", params={"q": text})
                    assert refusal(answer) == (503, "temporarily_unavailable")
                    assert "organization" in answer.json()["message"]
                for text in (user["id"], "kim@example.com"):
                    assert len(await listed(alone.client, 1, q=text)) == 1
                assert len(await listed(alone.client, 1, person="Kim")) == 1
                assert refusal(await alone.client.get("/api/logs?person=Ann")) == (422, "log.unknown_name")
                if reply is not None:
                    await listener.unsubscribe()
        finally:
            await bus.close()


async def _respond(reply: bytes, message: Msg) -> None:
    await message.respond(reply)


async def test_names_are_beside_the_entry_until_their_object_is_deleted(template: Template) -> None:
    """An administrator uses an application; the entry says who it was, and through what."""
    management = template.management
    administrator = await management.created("users", name='=Ada, "the" admin')
    console = await management.created("applications", name="@Console;=1", type="SPA")
    customer = await management.created("users", name="Customer")
    token = management.token(subject=administrator["id"], client_id=console["id"])
    async with management.client_with(token) as client:
        await client.patch(f"/api/users/{customer['id']}", json={"name": "Renamed"})
    filters = {"person": customer["id"], "operation": "UpdateUser"}
    (entry,) = await listed(management.client, 1, **filters)
    assert (entry["userId"], entry["applicationId"]) == (administrator["id"], console["id"])
    names = {administrator["id"]: administrator["name"], console["id"]: "@Console;=1", customer["id"]: "Renamed"}
    assert entry["names"] == names
    assert (await management.client.get(f"/api/logs/{entry['id']}")).json() == entry
    exported = await management.client.get("/api/logs/export", params=filters)
    assert "names" not in msgspec.json.decode(exported.content)
    table = await management.client.get("/api/logs/export", params={**filters, "format": "csv"})
    (row,) = csv.DictReader(io.StringIO(table.text))
    assert (row["user"], row["application"]) == ('\'=Ada, "the" admin', "'@Console;'=1")

    assert (await management.client.delete(f"/api/users/{administrator['id']}")).status_code == 204
    del names[administrator["id"]]
    (nameless,) = await listed(management.client, 1, **filters)
    assert (nameless["userId"], nameless["names"]) == (administrator["id"], names)
    history = [f"management.user.{verb}" for verb in ("create", "update", "delete")]
    for parameter in ("person", "q"):
        assert await keys(management.client, 3, **{parameter: administrator["id"]}) == history
    assert refusal(await management.client.get("/api/logs", params={"person": new_id()})) == (422, "log.unknown_name")


async def test_names_are_for_callers_that_may_read_what_they_name(management: Management) -> None:
    user, application = await management.created("users", name=unique("Ada")), management.credentials.client_id
    await management.client.patch(f"/api/users/{user['id']}", json={"avatar": "https://example.com/a.png"})
    filters = {"userId": user["id"], "operation": "UpdateUser"}
    (entry,) = await listed(management.client, 1, **filters)
    assert entry["names"].keys() == {user["id"], application}
    for scope, named in (
        ("audit:read", set()),
        ("audit:read users:read", {user["id"]}),
        ("audit:read applications", {application}),
        ("read", {user["id"], application}),
    ):
        async with management.client_with(management.token(scope=scope)) as client:
            (found,) = await listed(client, 1, **filters)
            assert found.get("names", {}).keys() == named, scope
            assert (await client.get(f"/api/logs/{entry['id']}")).json() == found
    async with management.client_with(management.token(scope="audit:export applications:read")) as client:
        exported = await client.get("/api/logs/export", params={**filters, "format": "csv"})
    assert user["name"] not in exported.text
    assert user["id"] in exported.text


@pytest.mark.parametrize(
    ("operation", "parameter", "scopes", "missing"),
    [
        ("ListLogs", "person", "audit:read organizations:read", "users:read"),
        ("ListLogs", "q", "audit:read users:read applications:read", "organizations:read"),
        ("ExportLogs", "q", "audit:export", "users:read applications:read organizations:read"),
        ("ListUsers", "excludeRoleId", "users", "roles:read"),
        ("ListUsers", "excludeOrganizationId", "users:read", "organizations:read"),
        ("ListApplications", "excludeRoleId", "applications organizations:read", "roles:read"),
        ("ListApplications", "excludeOrganizationId", "applications", "organizations:read"),
    ],
)
async def test_a_parameter_that_tells_more_than_the_response_needs_more(
    management: Management, operation: str, parameter: str, scopes: str, missing: str
) -> None:
    paths = {"ListLogs": "logs", "ExportLogs": "logs/export", "ListUsers": "users", "ListApplications": "applications"}
    path = f"/api/{paths[operation]}"
    async with management.client_with(management.token(scope=scopes)) as narrow:
        assert (await narrow.get(path)).status_code == 200
        refused = await narrow.get(path, params={parameter: "nothing"})
        assert refusal(refused) == (403, "auth.forbidden")
        assert f"the parameter {parameter} needs the scope" in refused.json()["message"]
    async with management.client_with(management.token(scope=f"{scopes} {missing}")) as wide:
        assert (await wide.get(path, params={parameter: "nothing"})).status_code in {200, 422, 503}
