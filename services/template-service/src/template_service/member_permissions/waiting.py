"""Requests that wait for a change of a member's permissions, and the listener that wakes them.

A waiter is registered before the state is read, so that no change between the two is missed. The bus announces a change
after its commit, so that a woken request reads it. A request whose wake-up is lost reads the state when its wait ends.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from nats.aio.msg import Msg

from identity_common.bus.connection import Bus
from identity_common.bus.standing_subscription import StandingSubscription
from identity_common.stopping import call_when_stopping
from identity_common.wire.events import event_subject
from template_service.member_permissions.store import MemberKey

MAX_WAITERS: Final = 1_000
MAX_WAITERS_OF_A_CALLER: Final = 10

_OF_TEMPLATE: Final = ("role", "permission", "organization")
ENDS_A_WAIT: Final = ("member", *_OF_TEMPLATE)
"""Kinds of events after which permissions may have changed; provision lets this service subscribe to them."""

Caller = tuple[str, str]
"""The client and the subject of an access token. Not the token: a caller can get any number of them."""


class Waiter:
    """A request that waits for its member to change."""

    def __init__(self) -> None:
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """End the current wait, or the next one if there is none."""
        if not self._woken.done():
            self._woken.set_result(None)

    def reset(self) -> None:
        """Forget earlier wake-ups. Call it before reading the state: only later changes need to wake the waiter."""
        if self._woken.done():
            self._woken = asyncio.get_running_loop().create_future()

    async def wait(self, gone: "asyncio.Future[None]", *, timeout_s: float) -> None:
        """Return when the state may have changed, the client has disconnected, or the time is up."""
        await asyncio.wait((self._woken, gone), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


class Waiters:
    """All waiting requests of this process; their number is limited."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._of_member: defaultdict[MemberKey, set[Waiter]] = defaultdict(set)
        self._of_caller: Counter[Caller] = Counter()
        self._unregister: Callable[[], None] | None = None

    def __len__(self) -> int:
        return self._of_caller.total()

    def start(self) -> None:
        """Listen for the stop of the server."""
        self._unregister = call_when_stopping(self.stop)

    def stop(self) -> None:
        """End all waits, and refuse new ones."""
        self.is_stopping = True
        if self._unregister is not None:
            self._unregister()
        self.wake_all()

    @contextmanager
    def place(self, member: MemberKey, caller: Caller) -> Generator[Waiter | None, None, None]:
        """Register a waiter for the body; None at the limit of the process or of the caller, or when stopping."""
        if self.is_stopping or len(self) >= MAX_WAITERS or self._of_caller[caller] >= MAX_WAITERS_OF_A_CALLER:
            yield None
            return
        waiter = Waiter()
        self._of_caller[caller] += 1
        self._of_member[member].add(waiter)
        try:
            yield waiter
        finally:
            self._of_member[member].discard(waiter)
            if not self._of_member[member]:
                del self._of_member[member]
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]

    def wake(self, member: MemberKey) -> None:
        """Wake the requests that wait for a member."""
        for waiter in self._of_member.get(member, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all requests."""
        for waiters in self._of_member.values():
            for waiter in waiters:
                waiter.wake()


class ChangeListener:
    """Listens on the bus for the changes of all replicas, and wakes the requests that wait for them.

    While the bus is down, no request is woken.
    """

    def __init__(self, bus: Bus, waiters: Waiters, *, tenant_id: str) -> None:
        self._waiters = waiters
        self._subscriptions = [
            StandingSubscription(
                bus,
                event_subject("template", tenant_id, kind, ">"),
                self._template_changed if kind in _OF_TEMPLATE else self._member_changed,
                name="change-listener",
            )
            for kind in ENDS_A_WAIT
        ]

    def start(self) -> None:
        """Subscribe in the background, once the bus is connected."""
        self._waiters.start()
        for subscription in self._subscriptions:
            subscription.start()

    async def stop(self) -> None:
        """Stop listening and end all waits."""
        self._waiters.stop()
        for subscription in self._subscriptions:
            await subscription.stop()

    async def _member_changed(self, message: Msg) -> None:
        _, _, _, organization_id, member_id = message.subject.split(".")
        self._waiters.wake((organization_id, member_id))

    async def _template_changed(self, _: Msg) -> None:
        self._waiters.wake_all()
