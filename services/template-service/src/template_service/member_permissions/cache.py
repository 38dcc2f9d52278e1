"""A cache of what determines a member's permissions."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from identity_common.stores.lookups import Lookups
from identity_common.stores.validated_cache import ValidatedCache
from template_service.member_permissions import store
from template_service.member_permissions.store import PermissionState, StateKey

# Bounds a statement, so that a thousand requests woken at once do not keep a connection for long.
_MAX_KEYS: Final = 250


class PermissionCache(ValidatedCache[StateKey, PermissionState]):
    """Reads permission states through a cache."""

    def __init__(self, lookups: Lookups, *, tenant_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            partial(store.permission_states, lookups, tenant_id),
            partial(store.database_version, lookups, tenant_id),
            max_keys=_MAX_KEYS,
            clock=clock,
        )
