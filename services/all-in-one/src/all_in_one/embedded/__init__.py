"""Real PostgreSQL, Valkey and NATS servers as child processes: for a first look, development and tests.

Owns the lifecycle of the three servers and their data directory. Does not own what a service may do in them
(``provision``), nor the programs, which come with pinned Python packages.
"""

from all_in_one.embedded.errors import (
    DataDirectoryBroken,
    DataDirectoryInUse,
    DiskFull,
    EmbeddedError,
    PortTaken,
    ServerFailed,
    ServerStopped,
    WheelMissing,
)
from all_in_one.embedded.process import Server, die_with_parent
from all_in_one.embedded.servers import EmbeddedServers, ExternalServers, external_or_embedded
from all_in_one.embedded.space import free_mib, is_low, may_be_why
from provision import ServerAddresses

__all__ = [
    "EmbeddedServers",
    "ExternalServers",
    "external_or_embedded",
    "free_mib",
    "is_low",
    "may_be_why",
    "Server",
    "ServerAddresses",
    "die_with_parent",
    "EmbeddedError",
    "DataDirectoryBroken",
    "DataDirectoryInUse",
    "DiskFull",
    "PortTaken",
    "ServerFailed",
    "ServerStopped",
    "WheelMissing",
]
