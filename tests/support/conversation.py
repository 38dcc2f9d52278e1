"""Runs a client that was written elsewhere, as a program, for a person at a browser."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import playwright
import pytest

from tests.support.at_a_browser import Person

NODE = Path(playwright.__file__).parent / "driver" / "node"
"""Playwright's: newer than Debian's, and pinned in requirements.lock."""


def converse(command: list[str | Path], person: Person | None = None, **environment: str) -> dict[str, Any]:
    """Run a program, visit every URL it asks for, and return its results.

    The program writes one JSON object a line: ``{"visit": url}``, which is answered with the URL at which the browser
    returns to the application, and at its end ``{"seen": results}``.
    """
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for line in running.stdout:
            message = json.loads(line)
            if "seen" in message:
                return dict(message["seen"])
            assert person is not None, message
            print(person.go(message["visit"]), file=running.stdin, flush=True)
    pytest.fail(f"{command[-1]} ended with {running.returncode} before it was done")
