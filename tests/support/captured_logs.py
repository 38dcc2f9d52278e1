"""Logs as a service writes them: in memory, or from the file of this run."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from identity_common.telemetry.logs import OUTPUT, configure_logs


@contextmanager
def captured_logs(service: str) -> Iterator[io.StringIO]:
    """Configure logs as a service does, into memory; restore their destination afterwards."""
    stream, before = OUTPUT.stream, OUTPUT.service
    log = io.StringIO()
    configure_logs(service=service, stream=log)
    try:
        yield log
    finally:
        configure_logs(service=before, stream=stream)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Return everything logged in this process so far."""
    return [json.loads(line) for line in log.read_text().splitlines()]
