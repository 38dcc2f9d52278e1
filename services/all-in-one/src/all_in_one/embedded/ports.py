"""Picks the ports on 127.0.0.1 that the servers listen on."""

import random
import socket
import time
from pathlib import Path

LOOPBACK = "127.0.0.1"
_CANDIDATES = range(20_000, 32_768)
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_GRACE_S = 1.0


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now; tried with SO_REUSEADDR, as the servers do."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def soon_free(port: int) -> bool:
    """Whether the port is free, or becomes free within a second: its last owner may still be exiting."""
    deadline = time.monotonic() + _GRACE_S
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def pick_port(*, without: frozenset[int] = frozenset()) -> int:
    """Return a random free port outside of the ephemeral range.

    Inside that range, any client may take the port of a server that is down for a moment; a client that keeps
    reconnecting to it may even connect to itself.
    """
    ephemeral = _ephemeral_ports()
    candidates = [port for port in _CANDIDATES if port not in ephemeral] or list(_CANDIDATES)
    random.shuffle(candidates)
    return next(port for port in candidates if port not in without and is_free(port))


def _ephemeral_ports() -> range:
    try:
        low, high = _EPHEMERAL_RANGE.read_text().split()
    except OSError:
        return range(32_768, 65_536)
    return range(int(low), int(high) + 1)
