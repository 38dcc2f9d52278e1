"""A cache of what determines a member's permissions, valid until the database changes.

One query of the database's version validates the entries for all the polls of a tick of the event loop. An entry that
was read at another version than the latest known one is read again without that query: after a change, a busy tenant
pays for one query that finds a new version, not for one a poll.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from identity_common.failures import TemporarilyUnavailable
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import Lookups
from template_service.member_permissions import store
from template_service.member_permissions.store import DatabaseVersion, PermissionState, StateKey

MAX_ENTRIES: Final = 10_000
# After a failover to an older copy of the database, the same version may later identify another state. A failed look-up
# clears the cache; this bounds how long a replica that was idle during the failover trusts its entries.
TTL_S: Final = 300.0
# Bounds a statement, so that a thousand requests woken at once do not keep a connection for long.
_MAX_KEYS: Final = 250


class PermissionCache:
    """Reads permission states through a cache."""

    def __init__(self, lookups: Lookups, *, tenant_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._clock = clock
        self._coalescer = Coalescer(self._get_all, max_concurrent=1, max_batch=_MAX_KEYS)
        self._entries: OrderedDict[StateKey, tuple[PermissionState, float]] = OrderedDict()  # with the time of reading
        self._latest: DatabaseVersion | None = None

    def get(self, key: StateKey) -> Awaitable[PermissionState]:
        """Start reading the state as of now; return it as a future."""
        return self._coalescer.submit(key)

    async def _get_all(self, keys: Sequence[StateKey]) -> Sequence[PermissionState]:
        try:
            valid = await self._valid_entries(keys)
            states = {**valid, **await self._look_up([key for key in dict.fromkeys(keys) if key not in valid])}
        except TemporarilyUnavailable:
            self._entries.clear()
            raise
        return [states[key] for key in keys]

    async def _valid_entries(self, keys: Sequence[StateKey]) -> Mapping[StateKey, PermissionState]:
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
        self._latest = await store.database_version(self._lookups, self._tenant_id)
        return cached if self._latest == latest else {}

    async def _look_up(self, keys: Sequence[StateKey]) -> Mapping[StateKey, PermissionState]:
        """Read the states of these keys and cache them."""
        if not keys:
            return {}
        read_at = self._clock()
        states = await store.permission_states(self._lookups, self._tenant_id, keys)
        for key, state in zip(keys, states, strict=True):
            self._latest = state.version
            self._entries[key] = state, read_at
            self._entries.move_to_end(key)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
        return dict(zip(keys, states, strict=True))
