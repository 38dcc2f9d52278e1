"""Embedded servers for one test, which restarts and wipes their NATS, or has it refuse logins."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from all_in_one.embedded import EmbeddedServers
from tests.support.passwords import refused_by_nats
from tests.support.waiting import eventually_here

_REFUSED = "authentication error"


class OwnServers:
    """Running servers; a context manager.

    Attributes:
        addresses: Their addresses; they survive restarts.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers = EmbeddedServers(directory, sync=False)

    def __enter__(self) -> Self:
        self.addresses = self._servers.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._servers.delete()

    def restart_nats(self, *, without: str | None = None) -> None:
        """Kill NATS, delete the streams of an account (``.`` for all accounts), start it again."""
        self._servers.nats.kill()
        if without is not None:
            shutil.rmtree(self._directory / "nats" / "jetstream" / without)
        self._servers.nats.start()

    @asynccontextmanager
    async def refused_by_nats(self, *, then: Callable[[], object] = lambda: None) -> AsyncIterator[None]:
        """Refuse every user's password; the body begins after ``then`` was called and a few logins were refused."""
        with refused_by_nats(self._servers, self._directory):
            then()
            log = self._servers.nats.log
            before = log.read_text().count(_REFUSED)
            await eventually_here(lambda: log.read_text().count(_REFUSED) > before + 2)
            yield
