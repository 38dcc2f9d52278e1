"""Runs a server that was written elsewhere, as a program."""

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.forked_service import ForkedService
from tests.support.waiting import eventually

_STOP_TIMEOUT_S = 30


@contextmanager
def serving(command: Sequence[str | Path], port: int, cwd: Path | None = None, **environment: str) -> Iterator[str]:
    """Run a program that listens on a port of 127.0.0.1; yield its address when it accepts connections."""
    with accepting(subprocess.Popen(command, cwd=cwd, env={**os.environ, **environment}), port) as address:
        yield address


@contextmanager
def accepting(running: subprocess.Popen[bytes] | ForkedService, port: int) -> Iterator[str]:
    """Yield the address of a process when it accepts connections, and stop it when the body ends."""

    def accepts() -> bool:
        assert running.poll() is None, f"the process on port {port} ended with {running.poll()}"
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(accepts)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(_STOP_TIMEOUT_S)
