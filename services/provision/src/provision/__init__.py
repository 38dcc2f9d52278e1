"""Permissions of each service in PostgreSQL, Redis and NATS, and their setup.

The tables in this package are the single source, for the embedded servers, containers and Kubernetes. Each service
has its own user with its own random password on each server. Also renders the edge from the routing table. Does not own
the lifecycle of the servers (``all_in_one.embedded``).
"""

from provision.addresses import ServerAddresses, addresses
from provision.errors import ProvisionError
from provision.nats import NATS_PERMISSIONS, nats_server_config
from provision.passwords import Passwords, stored_passwords
from provision.postgres import DATABASES, POSTGRES_ADMIN, provision_postgres
from provision.redis import REDIS_ADMIN, provision_redis, redis_acl_file
from provision.subscribers import nats_passwords, write_subscribers

__all__ = [
    "Passwords",
    "stored_passwords",
    "ServerAddresses",
    "addresses",
    "ProvisionError",
    "DATABASES",
    "POSTGRES_ADMIN",
    "provision_postgres",
    "REDIS_ADMIN",
    "provision_redis",
    "redis_acl_file",
    "NATS_PERMISSIONS",
    "nats_server_config",
    "nats_passwords",
    "write_subscribers",
]
