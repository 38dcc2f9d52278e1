"""Real PostgreSQL, Valkey and NATS servers as child processes: for a first look, development and tests.

Owns the lifecycle of the three servers and their data directory. Does not own what a service may do in them
(``provision``), nor the programs, which come with pinned Python packages.
"""

from all_in_one.embedded.errors import (
    DataDirectoryBroken,
    DataDirectoryInUse,
    EmbeddedError,
    PortTaken,
    ServerFailed,
    WheelMissing,
)
from all_in_one.embedded.process import Server, die_with_parent
from all_in_one.embedded.servers import EmbeddedServers, ExternalServers, external_or_embedded
from provision import ServerAddresses

__all__ = [
    "EmbeddedServers",
    "ExternalServers",
    "external_or_embedded",
    "Server",
    "ServerAddresses",
    "die_with_parent",
    "EmbeddedError",
    "DataDirectoryBroken",
    "DataDirectoryInUse",
    "PortTaken",
    "ServerFailed",
    "WheelMissing",
]
