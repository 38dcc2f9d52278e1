"""PostgreSQL, Valkey and NATS, the real ones, as child processes: for a first look, development and tests.

Owns the life of the three servers and the directory they keep their data in. What a service may do in them is said in
``all_in_one.provision``; which programs they are, by the pinned Python packages that bring them.
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
from all_in_one.provision import ServerAddresses

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
