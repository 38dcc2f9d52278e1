"""The example support desk beside the running stack: a separate process, as its README starts it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from provision.credentials import DemoUser
from stead import Role
from tests.support.processes import free_port
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

PROGRAM = Path(__file__).parents[2] / "examples" / "support-desk"
BACKEND = "https://support.example.com/api"
ENGINEERS = "Support engineer"
CUSTOMERS = "Demo customer"
PASSWORD = "unlike any documented example"


def command(directory: Path, port: int) -> list[str]:
    return [sys.executable, str(PROGRAM), "--directory", str(directory), "--port", str(port)]


class RunningDesk:
    """The example; its output goes to a file."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / f"support-desk-{self.port}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command(directory, self.port), env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=log, stderr=log
            )
        eventually(lambda: f"ready: {self.url}\n" in self.log.read_text() or self._process.poll() is not None)
        assert self._process.poll() is None, self.log.read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to stop; return its exit status."""
        self._process.send_signal(how)
        return self._process.wait(60)


def role(stack: RunningStack, name: str) -> Role:
    return next(each for each in stack.management.roles.list() if each.name == name)


def user(stack: RunningStack, username: str, name: str, *role_ids: str) -> DemoUser:
    """Create a user who can sign in."""
    created = stack.management.users.create(username=username, password=PASSWORD, name=name)
    stack.recorder.keep(PASSWORD, "password")
    if role_ids:
        stack.management.users.assign_roles(created.id, role_ids)
    return DemoUser(id=created.id, username=username, password=PASSWORD, scopes=[])
