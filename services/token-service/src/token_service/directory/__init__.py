"""The directory: clients, resources, roles, users and organization members, projected from the bus.

``in_memory`` holds applications, resources, scopes, roles of both kinds and organization permissions in every replica.
``in_redis`` holds users, organizations and members with their roles, shared by the replicas. Both are rebuilt from the
bus when they are lost. Owns their freshness, and waiting for it. Does not own what a token may contain, nor
whether a presented token is live (``token_service.presented_tokens``). No request calls another service.
"""

from token_service.directory.connectors import Connectors
from token_service.directory.fresh_lookups import Directory
from token_service.directory.in_memory import HeldRole, HeldScope, InMemoryDirectory
from token_service.directory.in_redis import InRedisDirectory, Requirement, Subject, SubjectSnapshot, TooManyMemberships
from token_service.directory.records import Membership, Person

__all__ = [
    "Connectors",
    "Directory",
    "HeldRole",
    "HeldScope",
    "InMemoryDirectory",
    "InRedisDirectory",
    "Membership",
    "Person",
    "Requirement",
    "Subject",
    "SubjectSnapshot",
    "TooManyMemberships",
]
