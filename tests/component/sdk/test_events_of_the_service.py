"""stead.events against the running services: subscribers receive what the Management API did."""

import asyncio
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
import pytest_asyncio

from stead import AsyncManagementClient
from stead.event_types import GrantedPermission
from stead.events import EventBus, MemberPermissions, PermissionCache, PermissionChange, permission_changes
from tests.support.effective_permissions import ReadingMember
from tests.support.management_api import unique
from tests.support.organizations import KINDS, USERS, Kind, Organization, member_of_kind
from tests.support.template_api import Template

WITHIN_S = 60

of_both_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)


@pytest_asyncio.fixture
async def bus(template: Template) -> AsyncIterator[EventBus]:
    url = template.management.addresses.subscriber_nats_url
    async with EventBus(url, tenant_id=template.tenant_id) as bus:
        yield bus


class Edge(httpx.AsyncBaseTransport):
    """Routes requests to template-service; there is no token endpoint behind it."""

    def __init__(self, template: Template) -> None:
        self._token = template.management.token()
        self._app = httpx.ASGITransport(app=template.app)  # type: ignore[arg-type]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/oidc/token":
            body = {"access_token": self._token, "token_type": "Bearer", "expires_in": 3600, "scope": "all"}
            return httpx.Response(200, json=body)
        return await self._app.handle_async_request(request)


@pytest_asyncio.fixture
async def management_client(template: Template) -> AsyncIterator[AsyncManagementClient]:
    async with httpx.AsyncClient(transport=Edge(template)) as http:
        yield AsyncManagementClient("http://template.test", client_id="any", client_secret="any", http=http)


async def take(changes: AsyncIterator[PermissionChange], count: int) -> list[PermissionChange]:
    async with asyncio.timeout(WITHIN_S):
        return [await anext(changes) for _ in range(count)]


def told(changes: list[PermissionChange]) -> list[tuple[int, str, list[str], list[str]]]:
    return [
        (change.version, change.cause, [each.name for each in change.added], [each.name for each in change.removed])
        for change in changes
    ]


@of_both_kinds
async def test_a_subscriber_receives_every_change_of_a_member(template: Template, bus: EventBus, kind: Kind) -> None:
    member = await ReadingMember.new(template, kind)
    first, second = member.permission["name"], unique("second")
    changes = permission_changes(bus, organization_id=member.organization.id, since="beginning")
    heard = await take(changes, 1)

    await member.grant((await template.permission(second))["id"])
    heard += await take(changes, 1)
    await template.client.delete(f"/api/organization-scopes/{member.permission['id']}")
    heard += await take(changes, 1)
    await member.organization.remove(member.id)
    heard += await take(changes, 1)

    assert told(heard) == [
        (1, "assignment", [first], []),
        (2, "role-changed", [second], []),
        (3, "permission-deleted", [], [first]),
        (4, "member-removed", [], [second]),
    ]
    assert {(change.member_id, change.member_type) for change in heard} == {(member.id, kind.member_type)}


@of_both_kinds
async def test_a_gap_is_healed_from_the_service(
    template: Template, bus: EventBus, management_client: AsyncManagementClient, kind: Kind
) -> None:
    member = await ReadingMember.new(template, kind)
    changes = permission_changes(
        bus, organization_id=member.organization.id, since="beginning", management=management_client
    )
    heard = await take(changes, 1)
    skip = "UPDATE published_permissions SET version = version + 2 WHERE tenant_id = $1 AND member_id = $2"
    await template.database.execute(skip, template.tenant_id, member.id)
    await member.grant((await template.permission(second := unique("second")))["id"])
    heard += await take(changes, 1)

    assert [(change.version, change.missed, change.healed) for change in heard] == [(1, 0, False), (4, 2, True)]
    assert {each.name for each in heard[1].permissions} == {member.permission["name"], second}
    assert [each.name for each in heard[1].added] == [second]


async def test_a_gap_of_a_former_member_is_healed_to_nothing(
    template: Template, bus: EventBus, management_client: AsyncManagementClient
) -> None:
    member = await ReadingMember.new(template)
    changes = permission_changes(
        bus, organization_id=member.organization.id, since="beginning", management=management_client
    )
    await take(changes, 1)
    skip = "UPDATE published_permissions SET version = version + 1 WHERE tenant_id = $1 AND member_id = $2"
    await template.database.execute(skip, template.tenant_id, member.id)
    await member.organization.delete()
    (left,) = await take(changes, 1)
    assert (left.missed, left.healed, left.permissions, left.cause) == (1, True, (), "organization-deleted")


async def test_the_cache_asks_the_service_for_members_without_events(
    template: Template, bus: EventBus, management_client: AsyncManagementClient
) -> None:
    member = await ReadingMember.new(template)
    idle = await member_of_kind(template, USERS)
    stranger = await member_of_kind(template, USERS)
    await member.organization.add(idle)
    await template.fan_outs_done()
    revision = await template.revision()
    async with PermissionCache(bus, management=management_client) as cache:
        async with asyncio.timeout(WITHIN_S):
            while cache.revision < revision:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
        held = [await cache.permissions(member.organization.id, each) for each in (member.id, idle, stranger)]
    nothing = MemberPermissions(permissions=(), version=0, incomplete=True)
    granted = MemberPermissions(permissions=(GrantedPermission(member.permission["name"]),), version=1)
    assert held == [granted, nothing, nothing]


async def test_the_cache_holds_api_permissions_with_their_indicator(template: Template, bus: EventBus) -> None:
    resource = await template.resource("read:orders")
    user = await member_of_kind(template, USERS)
    organization = await Organization.new(template, USERS, user)
    await template.caught_up()
    role = await template.role(type="User", resourceScopeIds=[resource["scopes"][0]["id"]])
    async with PermissionCache(bus, organization_id=organization.id) as cache:
        assert (await organization.assign([user], [role["id"]])).status_code == 201
        async with asyncio.timeout(WITHIN_S):
            while (held := await cache.permissions(organization.id, user)) is None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
    assert held.holds("read:orders", resource["indicator"])
    assert not held.holds("read:orders")
