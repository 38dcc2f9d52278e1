"""PermissionCache against the real bus: permissions of members, and whether they are current."""

import asyncio
import random

import pytest

from provision import ServerAddresses
from stead import Unavailable
from stead.event_types import GrantedPermission
from stead.events import EventBus, MemberPermissions, PermissionCache
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_source import TemplateSource
from tests.unit.sdk.issuer import Clock
from tests.unit.sdk.service import Service

WITHIN_S = 30
ETAG = {"ETag": 'W/"1"'}
SCOPES = "/api/organizations/o1/users/u1/scopes"


async def seen(cache: PermissionCache, revision: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while cache.revision < revision:  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.005)


async def test_it_holds_permissions_published_before_and_after_its_start(source: TemplateSource, bus: EventBus) -> None:
    await source.grant("o1", "u1", "a")
    await source.grant("o1", "u1", "a", "b@https://api.example.com")
    last = await source.grant("o2", "u1", "c")
    async with PermissionCache(bus) as cache:
        async with asyncio.timeout(WITHIN_S):
            await cache.ready()
        assert cache.is_current
        await seen(cache, last)
        held = await cache.permissions("o1", "u1")
        assert held == MemberPermissions(
            permissions=(GrantedPermission("a"), GrantedPermission("b", "https://api.example.com")), version=2
        )
        assert [held.holds("a"), held.holds("b", "https://api.example.com")] == [True, True]
        assert [held.holds("b"), held.holds("a", "https://api.example.com"), held.holds("c")] == [False, False, False]

        await seen(cache, await source.grant("o1", "u1"))
        assert await cache.permissions("o1", "u1") == MemberPermissions(permissions=(), version=3)
        assert await cache.permissions("o1", "unknown") is None


async def test_it_may_hold_one_organization_only(source: TemplateSource, bus: EventBus) -> None:
    await source.grant("o1", "u1", "a")
    await source.grant("o2", "u1", "a")
    async with PermissionCache(bus, organization_id="o1") as cache:
        async with asyncio.timeout(WITHIN_S):
            await cache.ready()
        with pytest.raises(ValueError, match="another organization"):
            await cache.permissions("o2", "u1")
        assert (await cache.permissions("o1", "u1") or pytest.fail()).holds("a")


@pytest.mark.heavy
async def test_it_is_the_fold_of_the_events_whenever_they_come(source: TemplateSource, bus: EventBus) -> None:
    chance = random.Random(4)
    members = [("o1", f"u{number}") for number in range(20)] + [("o2", f"u{number}") for number in range(20)]

    async def change_some() -> int:
        revision = 0
        for _ in range(10):
            changed = [chance.choice(members) for _ in range(30)]
            states = [(each, source.granted(*each, *chance.sample("abcdef", chance.randrange(6)))) for each in changed]
            revision = await source.record_all([("member-permissions", ids, "updated", state) for ids, state in states])
        return revision

    await change_some()
    async with PermissionCache(bus) as cache:
        await seen(cache, await change_some())
        for ids in members:
            held, published = await cache.permissions(*ids), source.published(*ids)
            assert (
                (held.permissions, held.version) == (published.permissions, published.version)
                if held
                else (published is None)
            )


@pytest.mark.heavy
async def test_it_stops_at_any_moment_of_its_start(bus: EventBus) -> None:
    """Python 3.11 loses a cancellation in the same tick of the loop as the answer of the bus."""
    for moment in range(200):
        async with asyncio.timeout(WITHIN_S), PermissionCache(bus):
            await asyncio.sleep(0.00005 * moment)


class TestWhileTheBusIsDown:
    @pytest.mark.heavy
    async def test_it_reports_its_age_and_keeps_answering(
        self, servers: ServerAddresses, source: TemplateSource
    ) -> None:
        clock = Clock()
        await source.grant("o1", "u1", "a")
        async with (
            TcpProxy(servers.subscriber_nats_url) as wire,
            EventBus(wire.url, tenant_id=source.tenant_id) as bus,
            PermissionCache(bus, max_age_s=15, clock=clock) as cache,
        ):
            assert (cache.age_s, cache.is_current, cache.revision) == (None, False, -1)
            async with asyncio.timeout(WITHIN_S):
                await cache.ready()
            await wire.cut()
            missed = await source.grant("o1", "u1", "b")
            clock.now += 15
            assert (cache.age_s, cache.is_current) == (15, True)
            clock.now += 1
            assert (cache.age_s, cache.is_current) == (16, False)
            assert (await cache.permissions("o1", "u1") or pytest.fail()).holds("a")

            await wire.mend()
            await seen(cache, missed)
            async with asyncio.timeout(WITHIN_S):
                while not cache.is_current:  # noqa: ASYNC110 - seen from outside only
                    await asyncio.sleep(0.005)
            assert (await cache.permissions("o1", "u1") or pytest.fail()).holds("b")

    @pytest.mark.heavy
    async def test_it_is_not_current_before_the_state_is_complete(
        self, servers: ServerAddresses, source: TemplateSource
    ) -> None:
        """Without a watermark there may be more to come."""
        async with (
            EventBus(servers.subscriber_nats_url, tenant_id=f"{source.tenant_id}-new") as bus,
            PermissionCache(bus) as cache,
        ):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await cache.ready()
            assert not cache.is_current


class TestMembersWithoutAnEvent:
    async def test_they_are_requested_once_from_the_management_api(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        service.will_answer("GET", SCOPES, [{"id": "p1", "name": "a"}], headers=ETAG)
        async with service.async_client(Clock()) as management, PermissionCache(bus, management=management) as cache:
            held = await asyncio.gather(*(cache.permissions("o1", "u1") for _ in range(10)))
            held.append(await cache.permissions("o1", "u1"))
            a = MemberPermissions(permissions=(GrantedPermission("a"),), version=0, incomplete=True)
            assert held == [a] * 11
            assert [call.path for call in service.calls] == [SCOPES]

            await seen(cache, await source.grant("o1", "u1", "b"))
            assert await cache.permissions("o1", "u1") == MemberPermissions(
                permissions=(GrantedPermission("b"),), version=1
            )

    async def test_a_user_who_is_not_a_member_holds_nothing(self, bus: EventBus, service: Service) -> None:
        refusal = {"code": "organization.require_membership", "message": "no"}
        service.will_answer("GET", SCOPES, refusal, status=422)
        async with service.async_client(Clock()) as management, PermissionCache(bus, management=management) as cache:
            assert await cache.permissions("o1", "u1") == MemberPermissions(permissions=(), version=0, incomplete=True)

    async def test_a_management_api_that_is_down_is_an_error_and_is_asked_again(
        self, bus: EventBus, service: Service
    ) -> None:
        service.will_answer("GET", SCOPES, status=503)
        async with service.async_client(Clock()) as management, PermissionCache(bus, management=management) as cache:
            with pytest.raises(Unavailable):
                await cache.permissions("o1", "u1")
            service.will_answer("GET", SCOPES, [], headers=ETAG)
            assert (await cache.permissions("o1", "u1") or pytest.fail()).permissions == ()

    async def test_members_whose_event_has_no_lists_are_requested_too(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        service.will_answer("GET", SCOPES, [{"id": "p1", "name": "a"}], headers=ETAG)
        revision = await source.grant("o1", "u1", incomplete=True)
        async with service.async_client(Clock()) as management, PermissionCache(bus, management=management) as cache:
            await seen(cache, revision)
            assert await cache.permissions("o1", "u1") == MemberPermissions(
                permissions=(GrantedPermission("a"),), version=1, incomplete=True
            )
