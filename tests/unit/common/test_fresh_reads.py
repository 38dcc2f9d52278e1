"""What a request waits for before it reads a projection."""

import time

import pytest

from identity_common.bus.connection import Bus
from identity_common.failures import Conflict, NotYetThere, TemporarilyUnavailable, unknown_relation, wrong_kind
from identity_common.projection.fresh_reads import FreshReads
from identity_common.projection.freshness import Freshness, highest


def fresh_reads(*parts: Freshness, further: tuple[Freshness, ...] = ()) -> FreshReads:
    """Return one without a bus, whose heads cannot be read, and that waits for no revision."""
    bus = Bus("nats://127.0.0.1:1", service="unit-tests")
    return FreshReads(
        bus, parts, tenant_id="t", sources=["management"], revision_wait_s=0, catch_up_wait_s=0, further=further
    )


def seen(revision: int, *sources: str) -> Freshness:
    part = Freshness()
    for source in sources:
        part.advance(source, revision)
    return part


async def test_every_part_must_have_seen_what_a_request_awaits() -> None:
    behind, ahead = seen(4, "management"), seen(5, "management")
    assert fresh_reads(ahead).has_seen({"management": 5})
    assert not fresh_reads(ahead, behind).has_seen({"management": 5})
    assert not fresh_reads(ahead, further=(behind,)).has_seen({"management": 5})
    await fresh_reads(ahead).wait_for({"management": 5})
    await fresh_reads(ahead, further=(behind,)).wait_for({"management": 5}, ahead)
    with pytest.raises(NotYetThere) as refused:
        await fresh_reads(ahead, further=(behind,)).wait_for({"management": 5})
    assert (refused.value.code, refused.value.message, refused.value.why, refused.value.retry_after_s) == (
        "temporarily_unavailable",
        "The awaited revision has not arrived yet. Try again later.",
        "the awaited revision has not arrived yet",
        1,
    )


async def test_a_part_is_not_asked_for_a_source_that_it_does_not_receive() -> None:
    part = Freshness("management")
    part.advance("management", 5)
    part.advance("template", 9)
    assert part.revisions == {"management": 5}
    assert part.has_seen({"management": 5, "template": 7})
    assert await part.reach({"template": 7, "management": 5}, deadline=0)
    assert not await part.reach({"template": 7, "management": 6}, deadline=0)


async def test_too_many_waiting_requests_are_refused() -> None:
    part = Freshness(max_waiters=0)
    with pytest.raises(TemporarilyUnavailable) as refused:
        await part.reach({"management": 1}, deadline=time.monotonic() + 10)
    assert refused.value.why == "too many requests are waiting for a change to arrive"


@pytest.mark.parametrize(("refusal", "runs"), [(unknown_relation(), 2), (wrong_kind("m"), 1)])
async def test_only_a_refusal_of_an_unknown_id_is_tried_again(refusal: Conflict, runs: int) -> None:
    tried = []

    async def refuse() -> None:
        tried.append(1)
        raise refusal

    with pytest.raises(Conflict) as refused:
        await fresh_reads(Freshness()).with_catch_up(refuse)
    assert (refused.value, len(tried)) == (refusal, runs)


def test_the_highest_revision_of_each_source() -> None:
    assert highest({}, {}) == {}
    assert highest({"management": 1}, {}) == {"management": 1}
    assert highest({"management": 1, "template": 5}, {"management": 3}) == {"management": 3, "template": 5}
