"""``identity_events``: every public event, typed, for whoever keeps a copy of more than permissions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from stead.event_types import (
    MemberPermissionsState,
    MemberState,
    OrganizationPermissionState,
    OrganizationRoleState,
    OrganizationState,
)
from stead.events._bus import EventBus
from stead.events._consumers import DurableConsumer, EphemeralConsumer
from stead.events._decoding import EventDecoder, decode_state, subject
from stead.events._start_position import Since, StartPosition

State: TypeAlias = (
    OrganizationPermissionState | OrganizationRoleState | OrganizationState | MemberState | MemberPermissionsState
)

STATES: Final[Mapping[str, type[State]]] = {
    "permission": OrganizationPermissionState,
    "role": OrganizationRoleState,
    "organization": OrganizationState,
    "member": MemberState,
    "member-permissions": MemberPermissionsState,
}
"""What each kind of event says."""


class IdentityEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something of the organization template, of organizations or of members is not what it was.

    Attributes:
        kind: ``permission``, ``role``, ``organization``, ``member`` or ``member-permissions``.
        type: Of the CloudEvent: ``role.updated``.
        state: The full new state; ``deleted`` if it is gone.
        revision: Of template-service, as in ``Identity-Revision``.
        time: When the change was made.
    """

    kind: str
    type: str
    state: State
    revision: int
    time: datetime


def identity_events(
    bus: EventBus,
    *,
    kinds: Collection[str] = tuple(STATES),
    since: Since = "now",
    durable: str | None = None,
) -> AsyncGenerator[IdentityEvent, None]:
    """Go through the public events, and wait for new ones, without an end; otherwise as ``permission_changes``.

    Nothing is healed: every event says everything about its aggregate, so a missed one is made up for by the next.

    Args:
        bus: The connection.
        kinds: Of which kinds; of all if none are named.
        since: Where to begin.
        durable: A name under which the server remembers what you have handled.

    Raises:
        ValueError: An argument is not of its form, or the durable name is in use for something else.
        EventsRefused: The bus has ended the connection for good.
    """
    if not kinds or not STATES.keys() >= set(kinds):
        raise ValueError(f"kinds must be among {', '.join(STATES)}")
    where = [subject(bus.tenant_id, kind, ">") for kind in STATES if kind in kinds]
    start = StartPosition(bus, since)
    messages = EphemeralConsumer(bus, where, start) if durable is None else DurableConsumer(bus, durable, where, start)
    return _events(messages, EventDecoder(revision=since if isinstance(since, int) else -1))


async def _events(
    messages: EphemeralConsumer | DurableConsumer, decoder: EventDecoder
) -> AsyncGenerator[IdentityEvent, None]:
    async with contextlib.aclosing(aiter(messages)) as arriving:
        async for message in arriving:
            event = None if message is None else decoder.decode(message)
            if event is None:
                continue
            kind = event.type.partition(".")[0]
            state = decode_state(event, STATES[kind])
            if state is not None:
                yield IdentityEvent(
                    kind=kind,
                    type=event.type,
                    state=state,
                    revision=event.revision,
                    time=datetime.fromisoformat(event.time),
                )
