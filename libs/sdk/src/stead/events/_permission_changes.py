"""``permission_changes``: what members may do, change by change."""

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
from stead.management import AsyncManagementClient


def permission_changes(
    bus: EventBus,
    *,
    organization_id: str | None = None,
    since: Since = "now",
    durable: str | None = None,
    management: AsyncManagementClient | None = None,
) -> AsyncGenerator[PermissionChange, None]:
    """Go through the changes of members' permissions, and wait for new ones, without an end.

    A change counts as handled when the next one is asked for: what you do in the body of ``async for`` is done at least
    once, in order. If the body raises or breaks off, the same change comes first the next time a durable reading goes
    on; wrap the iteration in ``contextlib.aclosing`` to have it go on at once then, and not after 10 s.

    Repeats are left out. A lost connection is made again; a stream that was lost is read from its beginning when it is
    there again, and only what is new comes.

    A member's versions grow by exactly 1. When one is missing, the change says so (``missed``) and is healed from the
    Management API: see ``PermissionChange``. Versions are compared with what this iteration has heard before, so no gap
    is seen before the first change of a member; every change holds all permissions anyway.

    Args:
        bus: The connection.
        organization_id: Of one organization; of all if none is given.
        since: Where to begin; a durable reading that was begun before goes on where it stopped instead. When the stream
            was lost while a durable reading was not running, it begins there again: take ``"beginning"`` to be sure to
            hear of everything, things that you know already included.
        durable: A name under which the server remembers what you have handled, so that another run goes on there.
        management: Heals gaps. It needs a Management API token. Without it gaps are only told.

    Raises:
        ValueError: An argument is not of its form, or the durable name is in use for something else.
        EventsRefused: The bus has ended the connection for good.
        IdentityError: The Management API refused to heal. While it does not answer, a gap is only told, and a change
            whose event is incomplete is waited for.
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
