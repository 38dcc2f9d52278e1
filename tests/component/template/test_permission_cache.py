"""A member's permissions and liveness are not read again while the database is unchanged."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from identity_common.failures import StoreUnavailable
from identity_common.stores import validated_cache as module
from identity_common.stores.lookups import Lookups
from template_service.member_permissions.cache import PermissionCache
from template_service.member_permissions.store import StateKey
from tests.support.effective_permissions import ReadingMember, at_rest, fetches
from tests.support.template_api import Template


@pytest_asyncio.fixture
async def lookups(template: Template) -> AsyncIterator[Lookups]:
    lookups = Lookups(template.settings.database_url, service="tests")
    yield lookups
    lookups.stop()


@pytest_asyncio.fixture
async def member(template: Template) -> ReadingMember:
    return await ReadingMember.new(template)


def key_of(member: ReadingMember) -> StateKey:
    client_id = member.template.management.credentials.client_id
    return StateKey(client_id, member.id, 10**15, member.organization.id, "user", member.id)


async def test_a_change_of_permissions_is_seen_whatever_is_cached(
    template: Template, lookups: Lookups, member: ReadingMember
) -> None:
    cache = PermissionCache(lookups, tenant_id=template.tenant_id)
    seen = {(await cache.get(key_of(member))).digest}
    for _ in range(5):
        await member.grant((await template.permission())["id"])
        seen.add((await cache.get(key_of(member))).digest)
    assert len(seen) == 6


async def test_a_suspended_user_is_not_cached_as_live(
    template: Template, lookups: Lookups, member: ReadingMember
) -> None:
    """The projected state of users and applications is part of the database version."""
    cache = PermissionCache(lookups, tenant_id=template.tenant_id)
    await at_rest(template)
    assert (await cache.get(key_of(member))).is_live
    await template.management.client.patch(f"/api/users/{member.id}/is-suspended", json={"isSuspended": True})
    await template.caught_up()
    assert not (await cache.get(key_of(member))).is_live


async def test_a_failed_look_up_clears_the_cache(template: Template, lookups: Lookups, member: ReadingMember) -> None:
    """The database may have failed over to an older copy, in which the same revision means something else."""
    cache = PermissionCache(lookups, tenant_id=template.tenant_id)
    await at_rest(template)
    before = await cache.get(key_of(member))
    await template.database.execute("UPDATE roles SET version = version + 1 WHERE id = $1", member.role)
    assert await cache.get(key_of(member)) == before, "the version of the database is unchanged"

    with pytest.raises(StoreUnavailable):
        await cache.get(key_of(member)._replace(issued_at_ms=2**63))  # a number that the database cannot take

    assert (await cache.get(key_of(member))).digest != before.digest


async def test_an_old_entry_is_read_again(
    template: Template, lookups: Lookups, member: ReadingMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it was found to be current since."""
    now = 0.0
    cache = PermissionCache(lookups, tenant_id=template.tenant_id, clock=lambda: now)
    await at_rest(template)
    with fetches(monkeypatch) as sent:
        for seconds in (0, 1, module.TTL_S, module.TTL_S + 1, module.TTL_S + 2):
            now = float(seconds)
            await cache.get(key_of(member))
    assert sent == ["state", "version", "version", "state", "version"]


@pytest.mark.heavy
async def test_the_cache_is_bounded_and_evicts_the_least_recently_used(
    template: Template, lookups: Lookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    first, second, third = [key_of(await ReadingMember.new(template)) for _ in range(3)]
    cache = PermissionCache(lookups, tenant_id=template.tenant_id)
    await at_rest(template)
    for key in (first, second, first, third):
        await cache.get(key)

    with fetches(monkeypatch) as sent:
        for key in (first, third, second):
            await cache.get(key)
    assert sent == ["version", "version", "state"]
