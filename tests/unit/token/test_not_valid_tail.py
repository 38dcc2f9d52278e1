"""The tail of the not-valid feed: what a slow reader gets, and how many readers there may be."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from identity_common.places import NoPlaceLeftError
from token_service.not_valid.tail import LiveMessage, Tail, TooManyReadersError

QUEUED = 1000
READERS = 2000
OF_CLIENT = 200


def message(number: int, tenant_id: str = "mine") -> str:
    return LiveMessage(1, number, "signed").notification(tenant_id)


@pytest.fixture
def tail() -> Tail:
    """A tail that is not started: the tests hand it the notifications."""
    return Tail("postgresql+asyncpg://token:secret@127.0.0.1:9/token", tenant_id="mine", readers_per_client=OF_CLIENT)


async def test_a_reader_gets_what_fits_its_queue_and_is_ended_with_the_next_message(tail: Tail) -> None:
    with tail.reading("one") as live:
        for number in range(1, QUEUED + 1):
            tail._take(None, 0, "", message(number))
        (reader,) = tail._readers
        assert not reader._has_ended
        for number in range(QUEUED + 1, QUEUED + 4):
            tail._take(None, 0, "", message(number))
        assert [each.to async for each in live] == list(range(1, QUEUED + 1))
    assert tail.sequence == QUEUED + 3


async def test_a_reader_gets_the_messages_of_its_tenant_from_then_on(tail: Tail) -> None:
    tail._take(None, 0, "", message(1))
    with tail.reading("one") as live:
        tail._take(None, 0, "", message(7, "another"))
        tail._take(None, 0, "", message(2))
        await tail.stop()
        assert [each.to async for each in live] == [2]
    assert (tail.readers, tail.sequence) == (0, 2)


async def test_the_readers_of_a_replica_are_limited(tail: Tail) -> None:
    with ExitStack() as reading:
        for number in range(READERS):
            reading.enter_context(tail.reading(f"client {number % 10}"))
        with pytest.raises(TooManyReadersError) as refused, tail.reading("another"):
            pass
        assert (refused.type, tail.readers) == (TooManyReadersError, READERS)
    with tail.reading("another"):
        assert tail.readers == 1


async def test_the_readers_of_a_client_are_limited_and_those_that_end_make_room(tail: Tail) -> None:
    with ExitStack() as reading:
        for _ in range(OF_CLIENT):
            reading.enter_context(tail.reading("one"))
        with pytest.raises(NoPlaceLeftError), tail.reading("one"):
            pass
        with tail.reading("another"):
            assert tail.readers == OF_CLIENT + 1
    with tail.reading("one"):
        assert tail.readers == 1
