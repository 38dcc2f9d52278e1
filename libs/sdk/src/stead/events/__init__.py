"""Public events: follow the permissions of organization members, and all other changes of organizations.

Needs the extra ``events``, installed from a checkout: ``pip install "./libs/sdk[events]"``. Asyncio only, like the NATS
client that it uses.

Process change by change, and resume after a restart::

    async with EventBus("nats://bus.example.com:4222", user="subscriber", password=...) as bus:
        async for change in permission_changes(bus, organization_id="o1", since="beginning", durable="billing"):
            print(change.member_id, change.added, change.removed)  # acknowledged when the next one is requested

or keep the current permissions in memory::

    async with PermissionCache(bus, management=management) as cache:
        await cache.ready()
        held = await cache.permissions("o1", "u1")
        if cache.is_current and held is not None and held.holds("read:invoices"):
            ...

``identity_events`` yields every event of the stream, typed. The payload types are in ``stead.event_types``;
docs/events/asyncapi.yaml describes the stream for programs without this library.

Recoverable faults, such as a lost connection or an invalid message, are logged to ``stead.events``, with ids only.
"""

try:
    import nats as _nats  # noqa: F401 - fails early with a clear message
except ModuleNotFoundError as missing:
    if missing.name != "nats":
        raise
    raise ImportError("stead.events needs nats-py, which the extra `events` of stead-sdk installs") from missing

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
