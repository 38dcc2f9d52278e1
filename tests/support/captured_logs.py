"""Logs as a service writes them, in memory."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

from identity_common.log_output import OUTPUT
from identity_common.logs import configure_logs


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
