"""The public events of the identity service, for other teams' programs: what members of organizations may do.

Needs nats-py: ``pip install "stead-sdk[events]"``. It is asyncio only, as nats-py is; there is no blocking twin.

Change by change, resuming where it stopped::

    async with EventBus("nats://bus.example.com:4222", user="subscriber", password=...) as bus:
        async for change in permission_changes(bus, organization_id="o1", since="beginning", durable="billing"):
            print(change.member_id, change.added, change.removed)   # handled when the next is asked for

or the current state in memory::

    async with PermissionCache(bus, management=management) as cache:
        await cache.ready()
        held = await cache.permissions("o1", "u1")
        if cache.is_current and held is not None and held.holds("read:invoices"): ...

Every event of the stream, typed: ``identity_events``. The types of what an event says are in
``stead.event_types``; docs/events/asyncapi.yaml describes the stream for programs without this library.

What is odd but survived (a lost connection, a message that is no event of the service) is logged by the logger
``stead.events``; ids only.
"""

try:
    import nats as _nats  # noqa: F401 - only to say early what is missing
except ModuleNotFoundError as missing:
    if missing.name != "nats":
        raise
    raise ImportError('stead.events needs nats-py: pip install "stead-sdk[events]"') from missing

from stead.event_types import GrantedPermission
from stead.events._bus import EventBus, EventsRefused
from stead.events._identity_events import IdentityEvent, identity_events
from stead.events._permission_cache import MemberPermissions, PermissionCache
from stead.events._permission_change import PermissionChange
from stead.events._permission_changes import permission_changes
from stead.events._start_position import Since

__all__ = [
    "EventBus",
    "permission_changes",
    "PermissionChange",
    "GrantedPermission",
    "Since",
    "PermissionCache",
    "MemberPermissions",
    "identity_events",
    "IdentityEvent",
    "EventsRefused",
]
