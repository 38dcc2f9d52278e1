"""``permission_changes``: the changes of members' permissions, one by one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from stead.events._backfill import Backfill
from stead.events._bus import EventBus
from stead.events._consumers import DurableConsumer, EphemeralConsumer
from stead.events._decoding import EventDecoder, checked_organization_id, subject
from stead.events._member_snapshots import MemberSnapshots
from stead.events._permission_change import KIND, PermissionChange, change_from, decode_permissions, snapshot_of
from stead.events._start_position import Since, StartPosition
from stead.manage.clients import AsyncManagementClient


def permission_changes(
    bus: EventBus,
    *,
    organization_id: str | None = None,
    since: Since = "now",
    durable: str | None = None,
    management: AsyncManagementClient | None = None,
) -> AsyncGenerator[PermissionChange, None]:
    """Iterate over the changes of members' permissions, without end.

    ::

        async with contextlib.aclosing(permission_changes(bus, since="beginning", durable="billing")) as changes:
            async for change in changes:
                for permission in change.removed:
                    close_sessions(change.member_id, permission.name)

    A change is acknowledged when the next one is requested, so the body of the loop runs at least once for each change,
    in order. If the body raises or breaks, a durable consumer begins with the same change next time: at once if the
    iteration was closed with ``contextlib.aclosing``, otherwise after 10 s.

    Repeats are skipped. The connection is re-established when it is lost. A stream that was lost and recreated is read
    from its beginning, and yields only what is new.

    A member's version increases by exactly 1. After a gap, the change has ``missed`` set and is completed from the
    Management API; see ``PermissionChange``. Gaps are detected within one iteration, so none is seen before the first
    change of a member. Every change carries all permissions anyway.

    Args:
        bus: The connection.
        organization_id: Only changes in this organization; all by default.
        since: Where to start. An existing durable consumer ignores it and resumes where it stopped, unless the stream
            was lost while it was not running: then it starts here again. Use ``"beginning"`` to miss nothing, at the
            price of seeing known changes again.
        durable: A name under which the server keeps your position across restarts.
        management: Completes changes after a gap; it must be allowed to call the Management API. Without it, gaps are
            only reported.

    Raises:
        ValueError: An argument is invalid, or the durable name is in use for something else.
        EventsRefused: The connection is permanently closed.
        IdentityError: The Management API refused. While it does not answer, a gap is only reported, and a change whose
            event is incomplete waits.
    """
    where = subject(bus.tenant_id, KIND, checked_organization_id(organization_id) or "*", "*")
    start = StartPosition(bus, since)
    messages = (
        EphemeralConsumer(bus, [where], start) if durable is None else DurableConsumer(bus, durable, [where], start)
    )
    decoder = EventDecoder(revision=since if isinstance(since, int) else -1)
    return _changes(messages, decoder, Backfill(management))


async def _changes(
    messages: EphemeralConsumer | DurableConsumer, decoder: EventDecoder, backfill: Backfill
) -> AsyncGenerator[PermissionChange, None]:
    members = MemberSnapshots()
    async with contextlib.aclosing(aiter(messages)) as arriving:
        async for message in arriving:
            event = None if message is None else decoder.decode(message)
            state = None if event is None else decode_permissions(event)
            if event is None or state is None:
                continue
            seen = members.get(state.organization_id, state.member_id)
            if seen is not None and state.version <= seen.version:
                continue
            change = await backfill.fill(change_from(event, state, seen), seen)
            members.put(change.organization_id, change.member_id, snapshot_of(change))
            yield change
