"""Organizations in both halves of the directory, over the real bus and a real Redis that may lose data."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Self

import msgspec
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from identity_common.bus.connection import Bus
from identity_common.bus.streams import ensure_streams
from identity_common.failures import TemporarilyUnavailable
from identity_common.revisions import Source
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.events import ApplicationState, UserState, Watermark, event_subject, watermark_subject
from provision import ServerAddresses
from stead.event_types import (
    CloudEvent,
    MemberState,
    OrganizationPermissionState,
    OrganizationRoleState,
    OrganizationState,
)
from tests.support.tenant_keys import read_keys, replace_keys
from tests.support.waiting import WAIT_S
from token_service.directory import Directory, InMemoryDirectory, InRedisDirectory, TooManyMemberships


class Following:
    """A directory that follows the bus for a tenant of its own, and publishers in place of both services."""

    def __init__(self, addresses: ServerAddresses) -> None:
        self.tenant_id = f"t{secrets.token_hex(6)}"
        self.revisions: dict[Source, int] = {"management": 0, "template": 0}
        self._addresses = addresses
        self._started = AsyncExitStack()
        self._sources: dict[Source, Bus] = {
            "management": Bus(addresses.management_nats_url, service="management"),
            "template": Bus(addresses.template_nats_url, service="template"),
        }
        self._bus = Bus(addresses.token_nats_url, service="token")
        redis = connect_redis(addresses.token_redis_url)
        self._started.push_async_callback(redis.aclose)
        self.in_memory = InMemoryDirectory(self._bus, tenant_id=self.tenant_id)
        self.in_redis = InRedisDirectory(self._bus, RedisCommands(redis), tenant_id=self.tenant_id, max_age_s=900)
        self.directory = Directory(
            self._bus,
            self.in_memory,
            self.in_redis,
            tenant_id=self.tenant_id,
            max_age_s=900,
            revision_wait_s=WAIT_S,
            catch_up_wait_s=WAIT_S,
        )
        self.redis: Redis = Redis.from_url(addresses.admin_redis_url)

    async def __aenter__(self) -> Self:
        self._started.push_async_callback(self.redis.aclose)
        self._started.push_async_callback(self.lose_everything)
        for bus in (*self._sources.values(), self._bus):
            bus.start()
            self._started.push_async_callback(bus.stop)
            await bus.connected()
        await ensure_streams(self._bus)
        self.directory.start()
        self._started.push_async_callback(self.directory.stop)
        await self.tell(UserState(id="user", name="A"))
        await eventually(lambda: self.directory.is_loaded)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    async def tell(self, *states: Any, revision: int | None = None) -> dict[str, int]:
        """Publish states, then the watermark; return the revision to wait for.

        Args:
            states: All of one source.
            revision: Revision of the only state, if it repeats an older event.
        """
        source: Source = "management" if isinstance(states[0], UserState | ApplicationState) else "template"
        for state in states:
            if revision is None:
                self.revisions[source] += 1
            kind, *ids = _aggregate(state)
            verb = "deleted" if state.deleted else "updated"
            subject = event_subject(source, self.tenant_id, kind, *ids)
            event = self._event(source, subject, f"{kind}.{verb}", revision or self.revisions[source], state)
            await self._sources[source].client.publish(subject, event)
        await self.tell_watermark(source)  # acknowledged, and stored after the states
        return {source: self.revisions[source]}

    async def tell_watermark(self, source: Source) -> None:
        state = Watermark(self.revisions[source])
        subject = watermark_subject(source, self.tenant_id)
        event = self._event(source, subject, "revision.published", state.revision, state)
        await self._sources[source].jetstream().publish(subject, event)

    def _event(self, source: Source, subject: str, kind: str, revision: int, state: Any) -> bytes:
        event = CloudEvent(
            id=f"{self.tenant_id}:{source}:{revision}",
            source=f"/{source}",
            type=kind,
            subject=subject.split(".", 3)[3].replace(".", "/"),
            time="2026-01-01T00:00:00.000Z",
            tenantid=self.tenant_id,
            revision=revision,
            data=msgspec.Raw(msgspec.json.encode(state)),
        )
        return msgspec.json.encode(event)

    async def granted(self, *names: str, at_least: dict[str, int] | None = None) -> set[str] | None:
        """Return the organization permissions that the user holds; None if it is not a member."""
        at_least = at_least or {}
        await self.directory.wait_for(at_least, self.in_memory.freshness)
        subject = await self.directory.subject("user", "org", at_least=at_least)
        membership = await self.directory.membership("org", "user", at_least=at_least)
        assert subject.membership == membership
        if membership is None:
            return None
        return set(self.in_memory.held_in_organization(None, membership.member.role_ids, frozenset(names)))

    async def answers(self, *names: str) -> set[str] | str | None:
        """Return the result of ``granted``, or the code of the failure."""
        try:
            return await self.granted(*names)
        except TemporarilyUnavailable as failure:
            return failure.code

    async def copy(self) -> dict[bytes, bytes]:
        """Return all of the tenant's keys in Redis."""
        return await read_keys(self.redis, self.tenant_id)

    async def fall_back_to(self, copy: dict[bytes, bytes]) -> None:
        """Replace the tenant's keys in Redis with an older copy."""
        await replace_keys(self.redis, self.tenant_id, copy)

    async def lose_everything(self) -> None:
        await replace_keys(self.redis, self.tenant_id)


def _aggregate(state: Any) -> tuple[str, ...]:
    if isinstance(state, MemberState):
        return "member", state.organization_id, state.member_id
    kinds = {
        UserState: "user",
        ApplicationState: "application",
        OrganizationState: "organization",
        OrganizationRoleState: "role",
        OrganizationPermissionState: "permission",
    }
    return kinds[type(state)], state.id


def member(*role_ids: str, deleted: bool = False) -> MemberState:
    return MemberState(organization_id="org", member_id="user", role_ids=role_ids, deleted=deleted)


READ = OrganizationPermissionState(id="p1", name="read")
WRITE = OrganizationPermissionState(id="p2", name="write")
READER = OrganizationRoleState(id="reader", permission_ids=("p1",))
WRITER = OrganizationRoleState(id="writer", permission_ids=("p2",))
ORGANIZATION = OrganizationState(id="org", name="Organization")


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until the condition holds; fail on timeout."""
    async with asyncio.timeout(WAIT_S):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def following(servers: ServerAddresses) -> AsyncIterator[Following]:
    async with Following(servers) as following:
        yield following


async def test_organizations_are_unavailable_until_the_first_watermark(following: Following) -> None:
    """Until then ``temporarily_unavailable``; users without an organization are answered as always."""
    with pytest.raises(TemporarilyUnavailable) as refused:
        following.directory.require_organizations()
    person = await following.directory.person("user", at_least={"management": 1})
    await following.tell_watermark("template")
    await eventually(lambda: following.in_memory.freshness.has_seen({"template": 0}))
    await eventually(lambda: following.in_redis.freshness.has_seen({"template": 0}))

    assert refused.value.why == "organizations are being loaded"
    assert person is not None
    following.directory.require_organizations()
    assert await following.answers("read") is None


async def test_what_a_member_holds_follows_every_change(following: Following) -> None:
    """The union over the roles, read with the revision of each change."""
    seen = []
    for states in (
        (READ, WRITE, READER, WRITER, ORGANIZATION, member("reader")),
        (member("reader", "writer", "unknown"),),
        (OrganizationRoleState(id="reader", permission_ids=("p2",)),),
        (OrganizationPermissionState(id="p2", name="change"),),
        (OrganizationRoleState(id="writer", deleted=True),),
        (OrganizationPermissionState(id="p2", deleted=True),),
        (READER,),
        (member(deleted=True),),
        (member("reader"),),
        (OrganizationState(id="org", deleted=True),),
    ):
        at_least = await following.tell(*states)
        seen.append(await following.granted("read", "write", "change", at_least=at_least))

    assert seen == [
        {"read"},
        {"read", "write"},
        {"write"},
        {"change"},
        {"change"},
        set(),
        {"read"},
        None,
        {"read"},
        None,
    ]


async def test_a_member_just_created_is_found_without_a_revision(following: Following) -> None:
    """The second look-up catches up with both sources."""
    await following.tell_watermark("template")
    await eventually(lambda: following.in_redis.freshness.has_seen({"template": 0}))
    await following.tell(READ, READER, ORGANIZATION, member("reader"))

    assert await following.granted("read") == {"read"}


async def test_a_late_repetition_of_an_older_state_changes_nothing(following: Following) -> None:
    """A relay that restarts repeats events that it has not deleted yet; no deleted member returns through them."""
    await following.tell(READ, WRITE, READER, ORGANIZATION, member("reader"))
    await following.tell(OrganizationRoleState(id="reader", permission_ids=("p2",)))
    at_least = await following.tell(member("reader"))
    assert await following.granted("read", "write", at_least=at_least) == {"write"}
    await following.tell(READER, revision=3)
    marker = await following.tell(UserState(id="marker"))
    assert await following.granted("read", "write", at_least=marker) == {"write"}

    at_least = await following.tell(member(deleted=True))
    await following.tell(member("reader"), revision=7)
    marker = await following.tell(UserState(id="marker"))
    assert await following.granted("read", "write", at_least={**at_least, **marker}) is None


async def test_a_deleted_organization_stays_deleted_for_its_members(following: Following) -> None:
    """A deleted id is never reused (CVE-2026-55670), and another organization of the member is not affected."""
    await following.tell(READ, READER, ORGANIZATION, member("reader"))
    ended = await following.tell(OrganizationState(id="org", deleted=True))
    assert await following.granted("read", at_least=ended) is None
    other = MemberState(organization_id="next", member_id="user", role_ids=("reader",))
    at_least = await following.tell(OrganizationState(id="next"), other, member("reader"))

    assert await following.granted("read", at_least=at_least) is None
    assert await following.directory.membership("next", "user", at_least=at_least) is not None


@pytest.mark.heavy
async def test_an_emptied_redis_is_refilled_by_itself(following: Following) -> None:
    """Meanwhile the answer is 503, never a member without roles and never "not a member"."""
    at_least = await following.tell(READ, READER, ORGANIZATION, member("reader"))
    gone = MemberState(organization_id="org", member_id="gone", role_ids=("reader",))
    await following.tell(gone)
    await following.tell(msgspec.structs.replace(gone, deleted=True))
    assert await following.granted("read", at_least=at_least) == {"read"}
    seen: list[Any] = []
    await following.lose_everything()

    async def is_back() -> bool:
        seen.append(await following.answers("read"))
        return seen[-1] == {"read"}

    await eventually(is_back)
    assert [each for each in seen if each not in ("temporarily_unavailable", {"read"})] == []
    assert "temporarily_unavailable" in seen
    assert await following.directory.membership("org", "gone", at_least={}) is None


async def test_all_memberships_are_read_or_it_is_said_that_there_are_more(following: Following) -> None:
    organizations = [OrganizationState(id=f"org{number}", name=f"Organization {number}") for number in range(3)]
    members = [MemberState(organization_id=each.id, member_id="user") for each in organizations]
    at_least = await following.tell(*organizations, *members)
    found = await following.directory.memberships_of("user", at_least=at_least, at_most=3)
    assert [each.organization for each in found] == organizations
    with pytest.raises(TooManyMemberships):
        await following.directory.memberships_of("user", at_least=at_least, at_most=2)
    assert await following.directory.memberships_of("stranger", at_least=at_least, at_most=0) == []


@pytest.mark.heavy
async def test_a_copy_that_lags_behind_grants_nothing_that_was_revoked(following: Following) -> None:
    """After Redis fails over to a copy without the last changes, the directory believes nothing older than it has seen,
    and the copy catches up by itself."""
    await following.tell(READ, WRITE, READER, WRITER, ORGANIZATION)
    before = await following.tell(member("reader", "writer"))
    assert await following.granted("read", "write", at_least=before) == {"read", "write"}
    copy = await following.copy()
    after = await following.tell(member("reader"))
    assert await following.granted("read", "write", at_least=after) == {"read"}
    await following.fall_back_to(copy)

    assert await following.granted("read", "write") == {"read"}
    assert await following.granted("read", "write", at_least=after) == {"read"}


@pytest.mark.heavy
async def test_no_member_of_a_large_organization_is_missing(following: Following) -> None:
    """Several batches, each applied whole; no element at the end is missed (compare CVE-2024-27101)."""
    count = 2**12
    members = [
        MemberState(organization_id="org", member_id=f"member{number}", role_ids=(f"role{number}",))
        for number in range(count)
    ]
    at_least = await following.tell(ORGANIZATION, *members)
    found = [
        await following.directory.membership("org", each.member_id, at_least=at_least)
        for each in (members[0], members[count // 2], members[-1])
    ]

    assert [membership and membership.member.role_ids for membership in found] == [
        ("role0",),
        (f"role{count // 2}",),
        (f"role{count - 1}",),
    ]


@pytest.mark.heavy
async def test_a_member_holds_what_10_000_roles_grant(following: Following) -> None:
    """The most roles that a member may have; the first and the last of them grant something."""
    role_ids = tuple(f"role{number:05}" for number in range(10_000))
    roles = [OrganizationRoleState(id=role_id, name=role_id, type="User") for role_id in role_ids]
    for granting, permission in ((0, READ), (-1, WRITE)):
        roles[granting] = msgspec.structs.replace(roles[granting], permission_ids=(permission.id,))
    await following.tell(READ, WRITE, ORGANIZATION)
    for start in range(0, len(roles), 1000):
        await following.tell(*roles[start : start + 1000])
    at_least = await following.tell(member(*role_ids))
    assert await following.granted("read", "write", at_least=at_least) == {"read", "write"}
    at_least = await following.tell(member(*role_ids[1:]))
    assert await following.granted("read", "write", at_least=at_least) == {"write"}
