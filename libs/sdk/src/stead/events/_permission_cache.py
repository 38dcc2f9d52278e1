"""``PermissionCache``: the permissions of all members in memory, from a snapshot and the changes after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec
from nats.js.api import DeliverPolicy

from stead.event_types import CloudEvent, GrantedPermission, MemberType
from stead.events._bus import EventBus
from stead.events._cancellation import cancel
from stead.events._consumers import EphemeralConsumer
from stead.events._decoding import WATERMARK, EventDecoder, checked_organization_id, subject
from stead.events._member_permissions import organization_permissions
from stead.events._member_snapshots import MemberSnapshot, MemberSnapshots
from stead.events._permission_change import KIND, decode_permissions, snapshot_of
from stead.events._start_position import StartPosition
from stead.manage.clients import AsyncManagementClient

_MAX_AGE_S: Final = 15.0
_log = logging.getLogger("stead.events")


class MemberPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions of a member.

    Attributes:
        permissions: Sorted by name, then resource; empty if there is no such member.
        version: Per member; 0 if read from the Management API with no event since.
        incomplete: Only organization permissions are known, not those of API resources.
    """

    permissions: tuple[GrantedPermission, ...]
    version: int
    incomplete: bool = False

    def holds(self, name: str, resource: str | None = None) -> bool:
        """Tell whether the member has a permission.

        Args:
            name: The scope token.
            resource: The indicator of its API resource; None for an organization permission.
        """
        return GrantedPermission(name, resource) in self.permissions


class PermissionCache:
    """Keeps the current permissions of members in memory; an asynchronous context manager.

    ::

        async with PermissionCache(bus, organization_id="o1", management=management) as cache:
            await cache.ready()
            held = await cache.permissions("o1", "u1")
            allowed = cache.is_current and held is not None and held.holds("read:invoices")

    The cache is filled with the last event of every member and follows the stream from then on. A member without an
    event, because nothing changed for 30 days, is read from the Management API once, if ``management`` is given.

    A stream that was lost and recreated is read from its beginning, and replaces what was known once it is complete.

    The cache may lag behind. ``is_current`` tells whether the cache was confirmed complete within ``max_age_s``, and
    ``age_s`` how long ago that was; the caller decides whether to use a stale cache. Compare ``revision`` with the
    ``Identity-Revision`` of your own write to know whether the cache includes it.
    """

    def __init__(
        self,
        bus: EventBus,
        *,
        organization_id: str | None = None,
        management: AsyncManagementClient | None = None,
        max_age_s: float = _MAX_AGE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a cache; nothing is read yet.

        Args:
            bus: The connection.
            organization_id: Only members of this organization; all by default.
            management: Source for members without an event; it must be allowed to call the Management API.
            max_age_s: Seconds after which an unconfirmed cache is no longer current; the bus confirms every 2 s.
            clock: Monotonic clock in seconds.

        Raises:
            ValueError: The organization id is invalid.
        """
        self._bus = bus
        self._organization_id = checked_organization_id(organization_id)
        self._management = management
        self._max_age_s = max_age_s
        self._clock = clock
        self._members = MemberSnapshots()
        self._arriving = self._members
        self._revision = -1
        self._is_complete = False
        self._as_of: float | None = None
        self._ready = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._requests: dict[tuple[str, str], asyncio.Task[MemberSnapshot]] = {}

    async def __aenter__(self) -> Self:
        """Start reading in the background; ``ready`` waits for the snapshot."""
        self._reading = asyncio.create_task(self._read(), name="identity-permission-cache")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await cancel(self._reading, *self._requests.values())

    async def ready(self) -> None:
        """Wait until the snapshot has been read completely.

        Raises:
            EventsRefused: The connection is permanently closed.
        """
        if self._reading is None:
            raise RuntimeError("the cache has not been entered")
        waiting = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait((waiting, self._reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not self._ready.is_set():
            self._reading.result()

    @property
    def is_current(self) -> bool:
        """Whether the cache was confirmed complete within the last ``max_age_s``."""
        age_s = self.age_s
        return age_s is not None and age_s <= self._max_age_s

    @property
    def age_s(self) -> float | None:
        """Seconds since the cache was last confirmed complete; None before the first time."""
        return None if self._as_of is None else self._clock() - self._as_of

    @property
    def revision(self) -> int:
        """The revision of template-service up to which all changes are included; -1 before the first."""
        return self._revision

    async def permissions(
        self, organization_id: str, member_id: str, member_type: MemberType = "user"
    ) -> MemberPermissions | None:
        """Return the permissions of a member; None if they are unknown.

        Args:
            organization_id: The organization.
            member_id: The id of a user or an application.
            member_type: Which of the two, for the Management API.

        Raises:
            ValueError: The cache covers another organization.
            IdentityError: The Management API refused or did not answer.
        """
        if self._organization_id not in (None, organization_id):
            raise ValueError("the cache covers another organization")
        known = self._members.get(organization_id, member_id)
        if (known is None or known.permissions is None) and self._management is not None:
            known = await self._fetch(self._management, organization_id, member_id, member_type)
        if known is None or known.permissions is None:
            return None
        return MemberPermissions(permissions=known.permissions, version=known.version, incomplete=known.incomplete)

    async def _fetch(
        self, management: AsyncManagementClient, organization_id: str, member_id: str, member_type: MemberType
    ) -> MemberSnapshot:
        """Read a member from the Management API; concurrent calls for the same member share one request."""
        key = (organization_id, member_id)
        if key not in self._requests:
            fetching = self._read_scopes(management, organization_id, member_id, member_type)
            self._requests[key] = asyncio.create_task(fetching, name="identity-permission-cache-fetch")
            self._requests[key].add_done_callback(lambda _: self._requests.pop(key, None))
        return await asyncio.shield(self._requests[key])

    async def _read_scopes(
        self, management: AsyncManagementClient, organization_id: str, member_id: str, member_type: MemberType
    ) -> MemberSnapshot:
        permissions = await organization_permissions(management, organization_id, member_id, member_type)
        known = self._members.get(organization_id, member_id)
        if known is not None and known.permissions is not None:
            return known  # an event has arrived meanwhile; it is more complete
        found = MemberSnapshot(0 if known is None else known.version, permissions, incomplete=True)
        if permissions or known is not None:
            self._members.put(organization_id, member_id, found)  # not for unknown ids, which are unbounded in number
        return found

    async def _read(self) -> None:
        subjects = [
            subject(self._bus.tenant_id, KIND, self._organization_id or "*", "*"),
            subject(self._bus.tenant_id, "revision", "template"),
        ]
        consumer = EphemeralConsumer(self._bus, subjects, StartPosition(self._bus, DeliverPolicy.LAST_PER_SUBJECT))
        decoder = EventDecoder()
        stream = ""
        async with contextlib.aclosing(aiter(consumer)) as arriving:
            async for message in arriving:
                if stream != consumer.stream:
                    if stream:  # recreated, perhaps without members that the earlier one had: start over
                        decoder, self._arriving = EventDecoder(), MemberSnapshots()
                    stream, self._is_complete = consumer.stream, False
                event = None if message is None else decoder.decode(message)
                if event is not None:
                    self._apply(event)
                if message is None or not message.metadata.num_pending:
                    self._caught_up()

    def _apply(self, event: CloudEvent) -> None:
        if event.type == WATERMARK:
            # No watermark is published during a republication, so until one arrives the state is incomplete. A stream
            # that is copied again begins with earlier watermarks.
            if event.revision >= self._revision:
                self._revision = event.revision
                self._is_complete = True
            return
        state = decode_permissions(event)
        if state is None:
            return
        for members in (self._members, self._arriving):
            known = members.get(state.organization_id, state.member_id)
            if known is None or state.version > known.version:
                members.put(state.organization_id, state.member_id, snapshot_of(state))

    def _caught_up(self) -> None:
        if self._is_complete:
            self._members = self._arriving
            self._as_of = self._clock()
            self._ready.set()
