"""Events about the template agree with the database after concurrent changes; requests while a store is down."""

import asyncio
import random
from typing import Any

import msgspec
import nats
import pytest

from identity_common.wire.events import STREAM_EVENTS
from stead.event_types import CloudEvent
from tests.support.lengths import length
from tests.support.management_api import Management, refusal, unique
from tests.support.streams import messages_of
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S

CLIENTS = 8
CHANGES = length(short=30, long=60)


async def everything_published(template: Template) -> list[tuple[str, CloudEvent]]:
    """Return every event about the tenant's template with its subject, in order."""
    bus = await nats.connect(template.management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    found = []
    try:
        prefix = f"identity.{template.tenant_id}."
        for message in await messages_of(bus.jetstream(), STREAM_EVENTS, f"{prefix}>"):
            kind, _, of = message.subject.removeprefix(prefix).partition(".")
            if kind in {"permission", "role", "organization"}:
                found.append((f"{kind}.{of}", msgspec.json.decode(message.data, type=CloudEvent)))
    finally:
        await bus.close()
    return found


class Administrator:
    """Makes random changes to what all administrators have created."""

    def __init__(self, template: Template, seed: int, scopes: list[str], made: dict[str, list[str]]) -> None:
        self._client = template.client
        self._random = random.Random(seed)
        self._scopes = scopes
        self._made = made

    def _some(self, ids: list[str]) -> list[str]:
        return self._random.sample(ids, self._random.randint(0, min(4, len(ids))))

    def _one(self, kind: str) -> str:
        return self._random.choice(self._made[kind] or ["none"])

    def _wish(self) -> tuple[str, str, Any]:
        role = f"organization-roles/{self._one('organization-roles')}"
        permission_ids = {"organizationScopeIds": self._some(self._made["organization-scopes"])}
        scope_ids = {"scopeIds": self._some(self._scopes)}
        requests: list[tuple[str, str, Any]] = [
            ("POST", "organization-scopes", {"name": unique("p")}),
            ("POST", "organization-scopes", {"name": unique("p")}),
            ("PATCH", f"organization-scopes/{self._one('organization-scopes')}", {"name": unique("p")}),
            ("DELETE", f"organization-scopes/{self._one('organization-scopes')}", None),
            ("POST", "organization-roles", {"name": unique("r"), **permission_ids}),
            ("POST", "organization-roles", {"name": unique("r"), "resourceScopeIds": self._some(self._scopes)}),
            ("PATCH", role, {"name": unique("r"), "type": self._random.choice(["User", "MachineToMachine"])}),
            ("DELETE", role, None),
            *(("PUT", f"{role}/scopes", permission_ids) for _ in range(3)),
            *(("POST", f"{role}/scopes", permission_ids) for _ in range(3)),
            *(("PUT", f"{role}/resource-scopes", scope_ids) for _ in range(2)),
            ("POST", f"{role}/resource-scopes", scope_ids),
            ("DELETE", f"{role}/scopes/{self._one('organization-scopes')}", None),
            ("POST", "organizations", {"name": unique("o")}),
            ("PATCH", f"organizations/{self._one('organizations')}", {"name": unique("o")}),
            ("DELETE", f"organizations/{self._one('organizations')}", None),
        ]
        return self._random.choice(requests)

    async def change(self, times: int) -> None:
        for _ in range(times):
            method, path, body = self._wish()
            answer = await self._client.request(method, f"/api/{path}", json=body)
            adds_nothing = method == "POST" and [] in (body or {}).values()
            allowed = {200, 201, 204, 404, 422, 400} if adds_nothing else {200, 201, 204, 404, 422}
            assert answer.status_code in allowed, (method, path, answer.text)
            if method == "POST" and path in self._made and answer.status_code == 201:
                self._made[path].append(answer.json()["id"])


@pytest.mark.heavy
async def test_the_events_agree_with_the_database_after_concurrent_changes(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as other, Template(other) as template:
        resource = await template.resource(*"abcdef")
        made: dict[str, list[str]] = {"organization-scopes": [], "organization-roles": [], "organizations": []}
        scopes = [scope["id"] for scope in resource["scopes"]]
        administrators = [Administrator(template, seed, scopes, made) for seed in range(CLIENTS)]
        deletion = template.management.client.delete(f"/api/resources/{resource['id']}/scopes/{scopes[0]}")
        await asyncio.gather(*(each.change(CHANGES) for each in administrators), deletion)
        await template.caught_up()
        async with asyncio.timeout(WAIT_S):
            query = "SELECT count(*) FROM outbox WHERE tenant_id = $1"
            while await template.database.fetchval(query, template.tenant_id):  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.02)

        events = await everything_published(template)
        revisions = [event.revision for _, event in events]
        assert revisions == sorted(set(revisions))
        last = {name: msgspec.json.decode(event.data) for name, event in events}
        alive = {name: data for name, data in last.items() if not data.get("deleted")}
        shown: dict[str, Any] = {}
        for kind, path in (("permission", "organization-scopes"), ("organization", "organizations")):
            for found in await whole(template, path):
                shown[f"{kind}.{found['id']}"] = {"id": found["id"], "name": found["name"]}
        for found in await whole(template, "organization-roles"):
            shown[f"role.{found['id']}"] = {
                "id": found["id"],
                "name": found["name"],
                "type": found["type"],
                "permissionIds": sorted(each["id"] for each in found["scopes"]),
                "scopeIds": sorted(each["id"] for each in found["resourceScopes"]),
            }
        defaults = {"permissionIds": [], "scopeIds": [], "type": "User"}
        assert {name: (defaults if name.startswith("role.") else {}) | data for name, data in alive.items()} == shown
        assert len(last) > len(alive) > 0
        assert not any(scopes[0] in data.get("scopeIds", ()) for data in alive.values())


async def whole(template: Template, path: str) -> list[Any]:
    """Return every item of a list."""
    found: list[Any] = []
    for page in range(1, 100):
        items = (await template.client.get(f"/api/{path}", params={"page": page, "page_size": 100})).json()
        found += items
        if not items:
            break
    return found


@pytest.mark.heavy
async def test_requests_answer_503_without_the_database_and_recover_by_themselves(template: Template) -> None:
    async with (
        TcpProxy(template.settings.database_url) as database,
        Template(template.management, database_url=database.url) as own,
    ):
        permission, role = await own.permission(), await own.role()
        organization = await own.organization()
        requests: list[tuple[str, str, Any]] = [
            ("GET", "organization-scopes", None),
            ("PATCH", f"organization-scopes/{permission['id']}", {"name": unique("p")}),
            ("POST", "organization-roles", {"name": unique("r")}),
            ("PUT", f"organization-roles/{role['id']}/scopes", {"organizationScopeIds": [permission["id"]]}),
            ("POST", f"organization-roles/{role['id']}/resource-scopes", {"scopeIds": ["none"]}),
            ("GET", "organizations?showFeatured=true", None),
            ("DELETE", f"organizations/{organization['id']}", None),
        ]
        await database.cut()
        for _ in range(2):
            for method, path, body in requests:
                answer = await own.client.request(method, f"/api/{path}", json=body)
                assert refusal(answer) == (503, "temporarily_unavailable"), (method, path)
                assert int(answer.headers["Retry-After"]) >= 1
        assert (await own.client.get("/health/live")).status_code == 200
        await database.mend()
        for method, path, body in requests:
            answer = await own.client.request(method, f"/api/{path}", json=body)
            assert answer.status_code < 500, (method, path, answer.text)
