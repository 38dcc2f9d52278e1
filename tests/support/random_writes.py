"""Clients that write at random, and remember the acknowledged writes.

A service that is killed during a write leaves its client without an answer: then both the old and the new state are
acceptable, until a later write is answered. Every answered write must hold.
"""

import random
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, Final, NamedTuple, TypeVar

from stead import Conflict, ManagementClient, NotFound, Unavailable
from tests.support.impersonation import Impersonation
from tests.support.management_api import unique

Answer = TypeVar("Answer")
Key = tuple[str, ...]
"""The kind of a thing, and its ids."""

GONE: Final = None
"""The state of a thing that does not exist: not yet, or no longer."""

_PAUSE_WITHOUT_AN_ANSWER_S = 0.05


class Acknowledged:
    """The possible states of each thing: one after an answered write, several after an unanswered one.

    Each thing is written by one thread; all threads may read.
    """

    def __init__(self) -> None:
        self._possible: defaultdict[str, dict[Key, frozenset[Any]]] = defaultdict(dict)

    def __iter__(self) -> Iterator[Key]:
        for kind in list(self._possible):
            yield from list(self._possible[kind])

    def states(self, key: Key) -> frozenset[Any]:
        """Return every possible state of a thing."""
        return self._possible[key[0]].get(key, frozenset({GONE}))

    def put(self, key: Key, *states: Hashable) -> None:
        """Record every possible state of a thing."""
        self._possible[key[0]][key] = frozenset(states)

    def may_be_gone(self, key: Key) -> bool:
        return GONE in self.states(key)

    def living(self, kind: str) -> list[Key]:
        """Return the things of a kind that exist, or may exist."""
        return [key for key in list(self._possible[kind]) if self.states(key) != {GONE}]


class Writer(ABC):
    """One client.

    Attributes:
        known: The acknowledged states.
        written: The number of acknowledged writes.
        unanswered: The number of unanswered writes.
    """

    def __init__(self, seed: int, known: Acknowledged) -> None:
        self.known = known
        self.written = 0
        self.unanswered = 0
        self._random = random.Random(seed)

    def write(self, count: int, *, pause_s: float) -> None:
        """Write until this many writes were acknowledged, with a pause before every write."""
        while self.written < count:
            time.sleep(pause_s)
            self._write_something()

    def write_until(self, over: Event, *, pause_s: float) -> None:
        """Write until told to stop, with a pause before every write."""
        while not over.wait(pause_s):
            self._write_something()

    @abstractmethod
    def _write_something(self) -> None:
        """Write once, or find nothing to do."""

    def _create(self, kind: str, state: Hashable, call: Callable[[], str]) -> Key | None:
        """Create something; return its key if the creation was acknowledged."""
        made = self._try(call)
        if made is None:
            return None
        self.known.put((kind, made), state)
        return kind, made

    def _change(
        self,
        key: Key,
        change: Callable[[Any], Hashable],
        call: Callable[[], object],
        *,
        naming: Collection[Key] = (),
        adds: bool = False,
    ) -> None:
        """Change something.

        Args:
            key: The thing to change.
            change: Returns the new state for an old one.
            call: The write.
            naming: Other things in the write: it is refused when one of these is gone.
            adds: Whether the write may create the thing.
        """
        before = self.known.states(key)
        after = {change(state) for state in before if adds or state is not GONE}
        self.known.put(key, *before, *after)
        try:
            done = self._try(lambda: (call(),))
        except (NotFound, Conflict) as refusal:
            gone = [each for each in naming if self.known.may_be_gone(each)]
            assert gone or (GONE in before and not adds), f"{key}: an acknowledged state is gone: {refusal}"
            # Only this client can have deleted it: an unanswered deletion was carried out.
            self.known.put(key, *(before if gone else (GONE,)))
        else:
            if done is not None:
                self.known.put(key, *after)

    def _try(self, call: Callable[[], Answer]) -> Answer | None:
        """Write once; without an answer the outcome is unknown."""
        try:
            answer = call()
        except Unavailable:
            self.unanswered += 1
            time.sleep(_PAUSE_WITHOUT_AN_ANSWER_S)
            return None
        self.written += 1
        return answer


class KnownUser(NamedTuple):
    """The state of a user.

    Attributes:
        is_suspended: Whether the user is suspended.
        role_ids: The ids of its API roles.
    """

    is_suspended: bool = False
    role_ids: frozenset[str] = frozenset()


class UserWriter(Writer):
    """Writes to its own users and applications; the known state of an application is its existence."""

    def __init__(self, seed: int, management: ManagementClient, role_ids: Sequence[str]) -> None:
        super().__init__(seed, Acknowledged())
        self._management = management
        self._role_ids = role_ids

    def _write_something(self) -> None:
        living = self.known.living("user")
        operations: list[Callable[[Key], None]] = [self._suspend, self._assign, self._replace, self._rename]
        if len(living) < 5 or self._random.random() < 0.2:
            name = f"User {self._random.random()}"
            self._create("user", KnownUser(), lambda: self._management.users.create(name=name).id)
        elif self._random.random() < 0.1:
            self._delete(self._random.choice(living))
        elif self._random.random() < 0.15:
            self._application()
        else:
            self._random.choice(operations)(self._random.choice(living))

    def _suspend(self, key: Key) -> None:
        suspended = self._random.random() < 0.5
        self._change(
            key,
            lambda user: user._replace(is_suspended=suspended),
            lambda: self._management.users.suspend(key[1], suspended=suspended),
        )

    def _assign(self, key: Key) -> None:
        role_id = self._random.choice(self._role_ids)
        self._change(
            key,
            lambda user: user._replace(role_ids=user.role_ids | {role_id}),
            lambda: self._management.users.assign_roles(key[1], [role_id]),
        )

    def _replace(self, key: Key) -> None:
        role_ids = frozenset(self._random.sample(self._role_ids, self._random.randrange(len(self._role_ids))))
        self._change(
            key,
            lambda user: user._replace(role_ids=role_ids),
            lambda: self._management.users.replace_roles(key[1], role_ids),
        )

    def _rename(self, key: Key) -> None:
        name = f"Renamed {self._random.random()}"
        self._change(key, lambda user: user, lambda: self._management.users.update(key[1], name=name))

    def _delete(self, key: Key) -> None:
        self._change(key, lambda _: GONE, lambda: self._management.users.delete(key[1]))

    def _application(self) -> None:
        applications = self._management.applications
        living = self.known.living("application")
        if living and self._random.random() < 0.4:
            key = self._random.choice(living)
            self._change(key, lambda _: GONE, lambda: applications.delete(key[1]))
            return
        made = self._create("application", True, lambda: applications.create(name="App", type="MachineToMachine").id)
        if made is not None:
            self._change(made, lambda there: there, lambda: applications.create_secret(made[1], "first"))


def make_roles(management: ManagementClient, impersonation: Impersonation) -> list[str]:
    """Create some roles for users, with names of their own, and return their ids."""
    scope_ids = [scope.id for scope in management.resources.scopes(impersonation.resource_id)]
    return [management.roles.create(unique("Role"), "random", "User", scope_ids).id for _ in range(4)]


@contextmanager
def writing(writers: Sequence[Writer], *, pause_s: float) -> Iterator[None]:
    """Run each writer in its own thread while the body runs; re-raise the error of a writer at the end."""
    over = Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(writer.write_until, over, pause_s=pause_s) for writer in writers]
        try:
            yield
        finally:
            over.set()
    for each in running:
        each.result()


def write_all(writers: Sequence[Writer], count: int, *, pause_s: float = 0.0) -> None:
    """Run all writers concurrently, until this many writes were acknowledged; each pauses before every write."""
    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(lambda writer: writer.write(-(-count // len(writers)), pause_s=pause_s), writers))
