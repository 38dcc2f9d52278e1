"""Clients that write at random, and remember what was acknowledged.

A service that is killed in the middle of a write leaves its client without an answer: then either the old or the new
state is right, until a later write is answered. Whatever *was* answered must hold.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Literal, TypeVar

from identity_sdk import Conflict, ManagementClient, NotFound, Unavailable
from tests.support.impersonation import Impersonation

Answer = TypeVar("Answer")
Aspect = Literal["there", "suspended", "roles"]

_PAUSE_WITHOUT_AN_ANSWER_S = 0.05


def make_roles(management: ManagementClient, impersonation: Impersonation) -> list[str]:
    """Make some roles that users may be given, and return their ids."""
    scope_ids = [scope.id for scope in management.resources.scopes(impersonation.resource_id)]
    return [management.roles.create(f"Role {number}", "random", "User", scope_ids).id for number in range(4)]


class Writer:
    """One client: writes to users and applications of its own.

    Attributes:
        users: Id → (is_suspended, role ids) as acknowledged; none once it is deleted.
        applications: Id → whether it is there, as acknowledged.
        unsure: Id → what of it a write without an answer may or may not have changed since.
        written: How many writes were acknowledged.
        unanswered: How many were not.
    """

    def __init__(self, seed: int, management: ManagementClient, role_ids: Sequence[str]) -> None:
        self.users: dict[str, tuple[bool, frozenset[str]] | None] = {}
        self.applications: dict[str, bool] = {}
        self.unsure: defaultdict[str, set[Aspect]] = defaultdict(set)
        self.written = 0
        self.unanswered = 0
        self._random = random.Random(seed)
        self._management = management
        self._role_ids = role_ids

    def write(self, count: int) -> None:
        """Write until so many writes were acknowledged."""
        while self.written < count:
            self._write_something()

    def write_until(self, over: Event, *, pause_s: float) -> None:
        """Write until told to stop, with a pause before every write."""
        while not over.wait(pause_s):
            self._write_something()

    def _write_something(self) -> None:
        living = [user_id for user_id, state in self.users.items() if state is not None]
        operations: list[Callable[[str], None]] = [self._suspend, self._assign, self._replace, self._rename]
        if len(living) < 5 or self._random.random() < 0.2:
            self._create()
        elif self._random.random() < 0.1:
            self._delete(self._random.choice(living))
        elif self._random.random() < 0.15:
            self._application()
        else:
            self._random.choice(operations)(self._random.choice(living))

    def _create(self) -> None:
        user = self._try(None, lambda: self._management.users.create(name=f"User {self._random.random()}"))
        if user is not None:
            self.users[user.id] = (False, frozenset())

    def _suspend(self, user_id: str) -> None:
        suspended = self._random.random() < 0.5
        if self._change(user_id, "suspended", lambda: self._management.users.suspend(user_id, suspended=suspended)):
            self.users[user_id] = (suspended, self._roles(user_id))
            self.unsure[user_id].discard("suspended")

    def _assign(self, user_id: str) -> None:
        role_id = self._random.choice(self._role_ids)
        if self._change(user_id, "roles", lambda: self._management.users.assign_roles(user_id, [role_id])):
            self.users[user_id] = (self._is_suspended(user_id), self._roles(user_id) | {role_id})

    def _replace(self, user_id: str) -> None:
        role_ids = frozenset(self._random.sample(self._role_ids, self._random.randrange(len(self._role_ids))))
        if self._change(user_id, "roles", lambda: self._management.users.replace_roles(user_id, role_ids)):
            self.users[user_id] = (self._is_suspended(user_id), role_ids)
            self.unsure[user_id].discard("roles")

    def _rename(self, user_id: str) -> None:
        name = f"Renamed {self._random.random()}"
        self._change(user_id, None, lambda: self._management.users.update(user_id, name=name))

    def _delete(self, user_id: str) -> None:
        if self._change(user_id, "there", lambda: self._management.users.delete(user_id)):
            self.users[user_id] = None

    def _application(self) -> None:
        living = [each for each, there in self.applications.items() if there]
        if living and self._random.random() < 0.4:
            application_id = self._random.choice(living)
            if self._change(application_id, "there", lambda: self._management.applications.delete(application_id)):
                self.applications[application_id] = False
            return
        made = self._try(None, lambda: self._management.applications.create(name="App", type="MachineToMachine"))
        if made is not None:
            self.applications[made.id] = True
            self._change(made.id, None, lambda: self._management.applications.create_secret(made.id, "first"))

    def _is_suspended(self, user_id: str) -> bool:
        state = self.users[user_id]
        assert state is not None
        return state[0]

    def _roles(self, user_id: str) -> frozenset[str]:
        state = self.users[user_id]
        assert state is not None
        return state[1]

    def _change(self, changed: str, aspect: Aspect | None, call: Callable[[], object]) -> bool:
        """Change something; return whether that was acknowledged."""
        try:
            done = self._try(changed if aspect else None, lambda: (call(),), aspect)
        except (NotFound, Conflict):
            assert "there" in self.unsure[changed], "an acknowledged state is gone"
            self._forget(changed)
            return False
        if done is not None and aspect != "there":
            self.unsure[changed].discard("there")  # it was changed: it is there
        return done is not None

    def _forget(self, gone: str) -> None:
        """Take note that a deletion that nobody answered was carried out."""
        self.unsure[gone].clear()
        if gone in self.users:
            self.users[gone] = None
        else:
            self.applications[gone] = False

    def _try(self, changed: str | None, call: Callable[[], Answer], aspect: Aspect | None = None) -> Answer | None:
        """Write once; without an answer nobody knows what has become of it."""
        try:
            answer = call()
        except Unavailable:
            self.unanswered += 1
            if changed is not None and aspect is not None:
                self.unsure[changed].add(aspect)
            time.sleep(_PAUSE_WITHOUT_AN_ANSWER_S)
            return None
        self.written += 1
        return answer


@contextmanager
def writing(writers: Sequence[Writer], *, pause_s: float) -> Iterator[None]:
    """Have each writer write in a thread of its own while the body runs; raise at the end what went wrong in one."""
    over = Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(writer.write_until, over, pause_s=pause_s) for writer in writers]
        try:
            yield
        finally:
            over.set()
    for each in running:
        each.result()
