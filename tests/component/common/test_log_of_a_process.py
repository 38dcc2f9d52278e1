"""The log of a service that runs as a separate process."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.management_api import Management
from tests.support.processes import Deployment


@pytest.mark.heavy
async def test_the_version_is_logged_first_and_the_shutdown_is_flushed(management: Management, tmp_path: Path) -> None:
    """The signal ends the process right after its app has shut down."""
    process = Deployment(management.addresses, tmp_path).management
    process.start()
    try:
        await asyncio.to_thread(process.wait_until_ready)
    finally:
        await asyncio.to_thread(process.stop)
    said = [json.loads(line)["event"] for line in process.log.read_text().splitlines()]
    assert (said[0], said[-1]) == ("process.started", "bus.disconnected")
