"""The protocol of a program with the test: one JSON object a line."""

import json
import sys
from typing import Any


def visit(url: str) -> str:
    """Send the user's browser to a URL; return the URL at which it returns to the application."""
    _say(visit=url)
    return sys.stdin.readline().strip()


def seen(**facts: Any) -> None:
    """End the run and report its results."""
    _say(seen=facts)


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
