"""Whoever may be killed is, at random, while others go on."""

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

from tests.support.processes import ServiceProcess


class Victim(Protocol):
    """A process."""

    def kill(self) -> None:
        """End it with SIGKILL."""

    def start(self) -> None:
        """Start it again."""


@contextmanager
def killing(victims: Sequence[Victim], *, seed: int) -> Iterator[None]:
    """Every now and then kill one of them with SIGKILL and start it again, while the body runs; at least once."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        kills = pool.submit(_kill_until, over, victims, random.Random(seed))
        try:
            yield
        finally:
            over.set()
    assert kills.result() > 0


def _kill_until(over: threading.Event, victims: Sequence[Victim], chance: random.Random) -> int:
    kills = 0
    while not over.wait(chance.uniform(1.0, 3.0)):
        victim = chance.choice(victims)
        victim.kill()
        over.wait(chance.uniform(0.0, 1.5))
        victim.start()
        if isinstance(victim, ServiceProcess):
            victim.wait_until_ready()
        kills += 1
    return kills
