"""A database of a service that is new and empty."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

from all_in_one.provision import ServerAddresses


@asynccontextmanager
async def new_database(servers: ServerAddresses, database_url: str) -> AsyncIterator[str]:
    """Yield its address; it is gone when the body ends.

    Args:
        servers: Where it is made.
        database_url: The service's other one: whoever that belongs to, owns the new one.
    """
    name = f"new_{secrets.token_hex(6)}"
    url = urlsplit(database_url)
    administrator = await asyncpg.connect(servers.admin_postgres_url)
    try:
        await administrator.execute(f"CREATE DATABASE {name} OWNER {url.username}")
        try:
            yield url._replace(path=f"/{name}").geturl()
        finally:
            await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administrator.close()
