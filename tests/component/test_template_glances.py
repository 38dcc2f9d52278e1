"""What decides about a member's permissions is not asked for again while the database stands where it stood."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from identity_common.http.api_errors import ApiError
from identity_common.stores.lookups import Lookups
from template_service.member_permissions import cache as module
from template_service.member_permissions.cache import Glances
from template_service.member_permissions.store import Question
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


def question_of(member: ReadingMember) -> Question:
    client_id = member.template.management.credentials.client_id
    return Question(client_id, member.id, 10**15, member.organization.id, "user", member.id)


async def test_what_a_member_may_do_is_seen_whatever_was_remembered(
    template: Template, lookups: Lookups, member: ReadingMember
) -> None:
    glances = Glances(lookups, tenant_id=template.tenant_id)
    seen = {(await glances.ask(question_of(member))).digest}
    for _ in range(5):
        await member.grant((await template.permission())["id"])
        seen.add((await glances.ask(question_of(member))).digest)
    assert len(seen) == 6


async def test_who_is_suspended_is_not_remembered_as_live(
    template: Template, lookups: Lookups, member: ReadingMember
) -> None:
    """L1: what management-service said of the caller moves the mark as well."""
    glances = Glances(lookups, tenant_id=template.tenant_id)
    await at_rest(template)
    assert (await glances.ask(question_of(member))).is_live
    await template.management.client.patch(f"/api/users/{member.id}/is-suspended", json={"isSuspended": True})
    await template.caught_up()
    assert not (await glances.ask(question_of(member))).is_live


async def test_nothing_is_remembered_of_a_database_that_has_failed(
    template: Template, lookups: Lookups, member: ReadingMember
) -> None:
    """Another may have taken its place: an older copy, in which the same revision came to mean something else."""
    glances = Glances(lookups, tenant_id=template.tenant_id)
    await at_rest(template)
    before = await glances.ask(question_of(member))
    await template.database.execute("UPDATE roles SET version = version + 1 WHERE id = $1", member.role)
    assert await glances.ask(question_of(member)) == before, "nothing that it could see has moved"

    with pytest.raises(ApiError):
        await glances.ask(question_of(member)._replace(issued_at_ms=2**63))  # a number that the database cannot take

    assert (await glances.ask(question_of(member))).digest != before.digest


async def test_what_was_found_long_ago_is_looked_up_again(
    template: Template, lookups: Lookups, member: ReadingMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it was asked for since, and found to hold."""
    now = 0.0
    glances = Glances(lookups, tenant_id=template.tenant_id, clock=lambda: now)
    await at_rest(template)
    with fetches(monkeypatch) as sent:
        for seconds in (0, 1, module.BELIEVED_S, module.BELIEVED_S + 1, module.BELIEVED_S + 2):
            now = float(seconds)
            await glances.ask(question_of(member))
    assert sent == ["glance", "mark", "mark", "glance", "mark"]


async def test_so_much_is_remembered_at_most_and_the_oldest_is_forgotten(
    template: Template, lookups: Lookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REMEMBERED", 2)
    first, second, third = [question_of(await ReadingMember.new(template)) for _ in range(3)]
    glances = Glances(lookups, tenant_id=template.tenant_id)
    await at_rest(template)
    for question in (first, second, first, third):
        await glances.ask(question)

    with fetches(monkeypatch) as sent:
        for question in (first, third, second):
            await glances.ask(question)
    assert sent == ["mark", "mark", "glance"]
