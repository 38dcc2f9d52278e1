"""``PermissionCache``: what members may do, in memory, from a snapshot and what comes after it."""

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
from stead.management import AsyncManagementClient

_MAX_AGE_S: Final = 15.0
_log = logging.getLogger("stead.events")


class MemberPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """What a member may do.

    Attributes:
        permissions: Sorted by name, then resource; empty for who is no member.
        version: The member's own; 0 where it was read from the Management API and no event has come since.
        incomplete: Only organization permissions are known, and none of API resources.
    """

    permissions: tuple[GrantedPermission, ...]
    version: int
    incomplete: bool = False

    def holds(self, name: str, resource: str | None = None) -> bool:
        """Return whether a permission is held.

        Args:
            name: The scope token.
            resource: Indicator of the API resource that it belongs to; none for an organization permission.
        """
        return GrantedPermission(name, resource) in self.permissions


class PermissionCache:
    """Keeps members' current permissions in memory; an asynchronous context manager.

    Filled from the last event of every member, and kept current by what follows. A member of whom there is no event,
    because nothing has changed for 30 days, is asked for at the Management API once.

    What it answers may lag behind; it never says so by guessing: ``is_current`` tells whether it has heard within
    ``max_age_s`` that nothing is behind what it knows, and ``age_s`` when that was last so. Decide yourself whether you
    still answer from it then. ``revision`` is what a caller's own ``Identity-Revision`` can be compared with.
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
        """Prepare; nothing is read yet.

        Args:
            bus: The connection.
            organization_id: Of one organization; of all if none is given.
            management: Is asked for who is not known from events. It needs a Management API token.
            max_age_s: Seconds within which the bus must have said that nothing is missing; it says so every 5 s.
            clock: Seconds, from any beginning.

        Raises:
            ValueError: The organization's id is none.
        """
        self._bus = bus
        self._organization_id = checked_organization_id(organization_id)
        self._management = management
        self._max_age_s = max_age_s
        self._clock = clock
        self._members = MemberSnapshots()
        self._revision = -1
        self._whole = False
        self._as_of: float | None = None
        self._ready = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._asked: dict[tuple[str, str], asyncio.Task[MemberSnapshot]] = {}

    async def __aenter__(self) -> Self:
        """Begin to read, in the background; ``ready`` waits until there is something to answer from."""
        self._reading = asyncio.create_task(self._read(), name="identity-permission-cache")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await cancel(self._reading, *self._asked.values())

    async def ready(self) -> None:
        """Wait until the snapshot has been read to its end.

        Raises:
            EventsRefused: It will never be.
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
        """Whether nothing was missing within the last ``max_age_s``."""
        age_s = self.age_s
        return age_s is not None and age_s <= self._max_age_s

    @property
    def age_s(self) -> float | None:
        """Seconds since it was last known that nothing is missing; None before it ever was."""
        return None if self._as_of is None else self._clock() - self._as_of

    @property
    def revision(self) -> int:
        """Every change up to this revision of template-service is included; -1 before anything is."""
        return self._revision

    async def permissions(
        self, organization_id: str, member_id: str, member_type: MemberType = "user"
    ) -> MemberPermissions | None:
        """Return what a member may do as far as is known here; None if nothing is.

        Args:
            organization_id: Of which organization.
            member_id: A user's id or an application's.
            member_type: Which of the two, for asking the Management API.

        Raises:
            ValueError: The cache is of another organization.
            IdentityError: The Management API was asked, and refused or did not answer.
        """
        if self._organization_id not in (None, organization_id):
            raise ValueError("the cache is of another organization")
        known = self._members.get(organization_id, member_id)
        if (known is None or known.permissions is None) and self._management is not None:
            known = await self._ask(self._management, organization_id, member_id, member_type)
        if known is None or known.permissions is None:
            return None
        return MemberPermissions(permissions=known.permissions, version=known.version, incomplete=known.incomplete)

    async def _ask(
        self, management: AsyncManagementClient, organization_id: str, member_id: str, member_type: MemberType
    ) -> MemberSnapshot:
        """Ask the Management API, once for all who ask for the same member at once."""
        key = (organization_id, member_id)
        if key not in self._asked:
            asking = self._read_scopes(management, organization_id, member_id, member_type)
            self._asked[key] = asyncio.create_task(asking, name="identity-permission-cache-asks")
            self._asked[key].add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(self._asked[key])

    async def _read_scopes(
        self, management: AsyncManagementClient, organization_id: str, member_id: str, member_type: MemberType
    ) -> MemberSnapshot:
        permissions = await organization_permissions(management, organization_id, member_id, member_type)
        known = self._members.get(organization_id, member_id)
        if known is not None and known.permissions is not None:
            return known  # an event has come meanwhile, and says more
        found = MemberSnapshot(0 if known is None else known.version, permissions, incomplete=True)
        if permissions or known is not None:
            self._members.put(organization_id, member_id, found)  # whoever is none may be asked for without a bound
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
                    stream, self._whole = consumer.stream, False
                event = None if message is None else decoder.decode(message)
                if event is not None:
                    self._apply(event)
                if message is None or not message.metadata.num_pending:
                    self._caught_up()

    def _apply(self, event: CloudEvent) -> None:
        if event.type == WATERMARK:
            # While the whole state is sent again there is none: what has come until then is not all.
            self._revision = max(self._revision, event.revision)
            self._whole = True
            return
        state = decode_permissions(event)
        if state is None:
            return
        known = self._members.get(state.organization_id, state.member_id)
        if known is None or state.version > known.version:
            self._members.put(state.organization_id, state.member_id, snapshot_of(state))

    def _caught_up(self) -> None:
        if self._whole:
            self._as_of = self._clock()
            self._ready.set()
