"""A cache that the version of a database validates."""

from collections.abc import Sequence
from typing import NamedTuple

from identity_common.stores.validated_cache import ValidatedCache


class State(NamedTuple):
    version: int
    text: str


async def test_an_entry_of_a_version_that_has_passed_does_not_return_with_its_number() -> None:
    """A database that is restored while it runs counts its versions again, with other contents."""
    present = State(5, "before")

    async def read(keys: Sequence[str]) -> Sequence[State]:
        return [present for _ in keys]

    async def read_version() -> int:
        return present.version

    cache = ValidatedCache(read, read_version)
    assert (await cache.get("a")).text == "before"
    present = State(3, "restored")
    assert (await cache.get("b")).text == "restored"
    present = State(5, "after")
    assert (await cache.get("b")).text == "after"
    assert (await cache.get("a")).text == "after"
