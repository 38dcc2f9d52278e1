"""Embedded servers for one test, which restarts and wipes their NATS."""

import shutil
from pathlib import Path
from typing import Self

from all_in_one.embedded import EmbeddedServers


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
