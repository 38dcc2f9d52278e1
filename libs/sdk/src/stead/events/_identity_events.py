"""``identity_events``: every public event, typed."""

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
"""The type of the state, by kind of event."""


class IdentityEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the organization template, of an organization, or of a member.

    Attributes:
        kind: ``permission``, ``role``, ``organization``, ``member`` or ``member-permissions``.
        type: The type of the CloudEvent: ``role.updated``.
        state: The full new state, with ``deleted`` set after a deletion.
        revision: The revision of template-service, as in ``Identity-Revision``.
        time: Time of the change.
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
    """Iterate over the public events, without end; for programs that keep a copy of more than permissions.

    ::

        async for event in identity_events(bus, kinds=["organization", "member"], since="beginning"):
            store(event.kind, event.state)

    Acknowledgement, repeats and lost streams work as in ``permission_changes``. Gaps are not filled: each event carries
    the full state of its aggregate, so the next event makes up for a missed one.

    Args:
        bus: The connection.
        kinds: The kinds to yield; all by default.
        since: Where to start.
        durable: A name under which the server keeps your position.

    Raises:
        ValueError: An argument is invalid, or the durable name is in use for something else.
        EventsRefused: The connection is permanently closed.
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
