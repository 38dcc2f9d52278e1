"""PostgreSQL: a role and a database for each service."""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import asyncpg

from provision.errors import ProvisionError

DATABASES = ("management", "token", "template")
"""One database per service, owned by the role of the same name."""

POSTGRES_ADMIN = "postgres"


def provision_postgres(postgres_url: str, passwords: Mapping[str, str], *, keep_passwords: bool = False) -> None:
    """Create or update each service's role and database; no role can connect to another role's database. Blocks.

    An existing role is not given LOGIN again: an operator may have revoked it.

    Args:
        postgres_url: Of a superuser, for any database; no other system may use the server.
        passwords: The services' passwords.
        keep_passwords: Set those of new roles only, since the others may have been rotated.

    Raises:
        ProvisionError: The server is unreachable, or refuses.
    """
    url = without_driver(postgres_url)
    try:
        with ThreadPoolExecutor(1) as thread:  # this thread may be running an event loop
            thread.submit(asyncio.run, _provision_postgres(url, passwords, keep_passwords)).result()
    except ValueError:
        raise ProvisionError("the URL of PostgreSQL is not valid: postgresql://user:password@host:port/name") from None
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise ProvisionError.at("PostgreSQL", url, error) from error


async def _provision_postgres(url: str, passwords: Mapping[str, str], keep_passwords: bool) -> None:
    connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtext('identity-service provisioning'))")
        roles = {row[0] for row in await connection.fetch("SELECT rolname FROM pg_roles")}
        databases = {row[0] for row in await connection.fetch("SELECT datname FROM pg_database")}
        for name in DATABASES:
            statement = f"ALTER ROLE {name}" if name in roles else f"CREATE ROLE {name} LOGIN"
            statement += " NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
            if name not in roles or not keep_passwords:
                statement += f" PASSWORD '{scram_verifier(passwords[name])}'"
            await connection.execute(statement)
        for name in DATABASES:
            if name not in databases:
                await connection.execute(f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0 ENCODING 'UTF8'")
        shared = ("template1", await connection.fetchval("SELECT quote_ident(current_database())"))
        await connection.execute(
            ";".join(
                [f"ALTER DATABASE {name} OWNER TO {name}" for name in DATABASES]
                + [f"REVOKE ALL ON DATABASE {name} FROM PUBLIC" for name in {*DATABASES, *shared}]
            )
        )
    finally:
        await connection.close()


def scram_verifier(password: str) -> str:
    """Return a password as PostgreSQL stores it, so that no statement and no log contains the password itself.

    Source:
        RFC 5803, with the parameters of PostgreSQL; RFC 7677 section 3.
    """
    salt, iterations = secrets.token_bytes(16), 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded_salt, encoded_stored, encoded_server = (
        base64.b64encode(part).decode() for part in (salt, stored_key, server_key)
    )
    return f"SCRAM-SHA-256${iterations}:{encoded_salt}${encoded_stored}:{encoded_server}"


def without_driver(url: str) -> str:
    """Return a SQLAlchemy URL without its driver, as asyncpg takes it."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"
