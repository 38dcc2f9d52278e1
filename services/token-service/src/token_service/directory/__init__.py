"""The directory: what the bus told us about clients, resources, roles, users and members of organizations.

Two halves. The *small half* (applications, resources, scopes, roles of both kinds, organization permissions) lives in
the memory of every replica. The *large half* (users and members with their roles, organizations) lives in Redis,
shared by the replicas. Both are projections: rebuilt from the bus whenever they are lost, and never asked of another
service on a token request.
"""

from token_service.directory.directory import Directory
from token_service.directory.in_memory import InMemoryDirectory
from token_service.directory.in_redis import InRedisDirectory, Membership, Person, Snapshot, Subject

__all__ = [
    "Directory",
    "InMemoryDirectory",
    "InRedisDirectory",
    "Membership",
    "Person",
    "RecordKeys",
    "Snapshot",
    "Subject",
]
