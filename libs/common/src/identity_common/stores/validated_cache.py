"""A cache of what a database says, valid while the database does not change (docs/decisions/0016).

One query of the database's version validates the entries for all the lookups of a tick of the event loop. An entry that
was read at another version than the latest known one is read again without that query: after a change, a busy tenant
pays for one query that finds a new version, not for one a lookup.
"""

import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from identity_common.failures import TemporarilyUnavailable
from identity_common.stores.coalescing import Coalescer

MAX_ENTRIES: Final = 10_000
# After a failover to an older copy of the database, the same version may later identify another state. A failed look-up
# clears the cache, and so does another version; this bounds how long a replica that saw neither trusts its entries.
TTL_S: Final = 300.0


class Versioned(Protocol):
    """What the database says about a key."""

    @property
    def version(self) -> Hashable:
        """The version of the database that this was read at; it changes with every commit that may change this."""


Key = TypeVar("Key", bound=Hashable)
State = TypeVar("State", bound=Versioned)


class ValidatedCache(Generic[Key, State]):
    """Reads states through a cache.

    Args:
        read: Returns the state for each key, in their order, by one statement; a failure clears the cache.
        read_version: Returns the version of the database.
        is_kept: Whether a state is cached. A key that a client chose must not be, unless the database has it: the
            number of entries is bounded, their size is not.
        max_keys: How many keys are read by one statement at most; the others wait for the next one.
        clock: Monotonic, in seconds.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Key]], Awaitable[Sequence[State]]],
        read_version: Callable[[], Awaitable[Hashable]],
        *,
        is_kept: Callable[[Key, State], bool] = lambda _, __: True,
        max_keys: int = sys.maxsize,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._read_version = read_version
        self._is_kept = is_kept
        self._clock = clock
        self._coalescer = Coalescer(self._get_all, max_concurrent=1, max_batch=max_keys)
        self._entries: OrderedDict[Key, tuple[State, float]] = OrderedDict()  # with the time of reading
        self._latest: Hashable = None

    def get(self, key: Key) -> Awaitable[State]:
        """Start reading the state as of now; return it as a future."""
        return self._coalescer.submit(key)

    async def _get_all(self, keys: Sequence[Key]) -> Sequence[State]:
        try:
            valid = await self._valid_entries(keys)
            states = {**valid, **await self._look_up([key for key in dict.fromkeys(keys) if key not in valid])}
        except TemporarilyUnavailable:
            self._entries.clear()
            raise
        return [states[key] for key in keys]

    async def _valid_entries(self, keys: Sequence[Key]) -> Mapping[Key, State]:
        """Return the cached states of these keys, if the database has not changed since they were read."""
        latest, not_before = self._latest, self._clock() - TTL_S
        cached = {}
        for key in keys:
            state, read_at = self._entries.get(key, (None, 0.0))
            if state is not None and state.version == latest and read_at >= not_before:
                cached[key] = state
                self._entries.move_to_end(key)
        if not cached:
            return {}
        self._note(await self._read_version())
        return cached if self._latest == latest else {}

    async def _look_up(self, keys: Sequence[Key]) -> Mapping[Key, State]:
        """Read the states of these keys and cache them."""
        if not keys:
            return {}
        read_at = self._clock()
        states = await self._read(keys)
        for key, state in zip(keys, states, strict=True):
            self._note(state.version)
            if self._is_kept(key, state):
                self._entries[key] = state, read_at
                self._entries.move_to_end(key)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
        return dict(zip(keys, states, strict=True))

    def _note(self, version: Hashable) -> None:
        """Forget what was read at another version: a restored database may have that again, with other contents."""
        if version != self._latest:
            self._entries.clear()
            self._latest = version
