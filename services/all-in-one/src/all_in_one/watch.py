"""Watches the servers and their disk while the services run, and tells the terminal."""

import asyncio
import sys
from pathlib import Path
from typing import Final

from all_in_one.embedded import EmbeddedServers, ExternalServers, free_mib, is_low

_INTERVAL_S: Final = 1.0


async def watch(servers: EmbeddedServers | ExternalServers, directory: Path) -> None:
    """Watch until cancelled; warn whenever the disk becomes nearly full.

    Raises:
        ServerStopped: A server has exited: the services could only refuse requests from now on.
    """
    was_low = False
    while True:
        servers.require_running()
        low = is_low(directory)
        if low and not was_low:
            sys.stderr.write(
                f"warning: the disk that holds {directory} is nearly full: {free_mib(directory)} MiB are free; free"
                " some space: without it, changes are refused, and the servers stop\n"
            )
            sys.stderr.flush()
        was_low = low
        await asyncio.sleep(_INTERVAL_S)
