"""Logs as a service writes them: in memory, or those of this run in their file."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from identity_common.telemetry.logs import OUTPUT, configure_logs


@contextmanager
def captured_logs(service: str) -> Iterator[io.StringIO]:
    """Configure logs as a service does, into memory; afterwards they go where they went before."""
    stream, before = OUTPUT.stream, OUTPUT.service
    log = io.StringIO()
    configure_logs(service=service, stream=log)
    try:
        yield log
    finally:
        configure_logs(service=before, stream=stream)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Return what was logged in this process until now."""
    return [json.loads(line) for line in log.read_text().splitlines()]
