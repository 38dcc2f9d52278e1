"""Migrations of a service's database with Alembic; ``env.py`` in this directory is the environment of all services.

The revisions of a service are the files ``NNNN_name.py`` in its own package, each with ``revision = "NNNN"``. The
highest file name is the head, so that it is known without importing Alembic.

A revision that removes what older code uses also has ``oldest_code = "NNNN"``: the oldest head with which a service may
still run on it. ``migrate`` stores the highest of them beside the revision, because the older code has no other way to
know (docs/operations/upgrading.md).

A statement that alters a table waits for the transactions that use it, and later requests queue behind the statement.
So a migration waits for a second and a half only, gives way to them, and is tried again.
"""

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
from sqlalchemy.exc import DBAPIError

from identity_common.database_address import SCHEME
from identity_common.stores.database_servers import database_servers
from identity_common.telemetry.logs import get_logger

if TYPE_CHECKING:
    from sqlalchemy import Connection

# The second column is missing in a database that was last migrated by a version without it.
SELECT_SCHEMA: Final = """
    SELECT version_num AS revision, to_jsonb(alembic_version) ->> 'oldest_code' AS oldest_code FROM alembic_version
"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('identity-migrations'))"
# Not for the lock above: another migration may take its time. Shorter than requests wait for a connection, which is two
# seconds; longer than deadlock_timeout, a second by default, when PostgreSQL cancels an autovacuum that is in the way.
_GIVE_WAY: Final = "SET LOCAL lock_timeout = '1500ms'"
_BLOCKED: Final = frozenset({"55P03", "40P01"})  # lock not available, deadlock
_AGAIN_S: Final = 3.0
_TIMEOUT_S: Final = 600.0
_VERSION_FILE: Final = re.compile(r"(\d{4})_\w+\.py")
_FIRST: Final = "0001"

_log = get_logger(__name__)


class UnknownSchemaError(Exception):
    """The database's revision is not among those of this code, which is older; ``str()`` says both."""

    def __init__(self, revision: str, known: str) -> None:
        super().__init__(
            f"the database is at revision {revision}, and this version knows the revisions up to {known} only: "
            "use the version that migrated the database, or a newer one"
        )


def head(versions: Path) -> str:
    """Return the newest revision among the files of a directory."""
    return max(_revisions(versions))


def is_migrated(revision: str | None, oldest_code: str | None, versions: Path) -> bool:
    """Return whether this code can run on a database; False if the database must be migrated first.

    Args:
        revision: The database's revision; None if it has none.
        oldest_code: The oldest head with which a service may run on it; None if that is not known.
        versions: The directory of the service's revisions.

    Raises:
        UnknownSchemaError: The database is newer than this code, and not compatible with it.
    """
    if revision is None:
        return False
    newest = head(versions)
    if revision in _revisions(versions):
        return revision == newest
    if oldest_code is None or oldest_code > newest:
        raise UnknownSchemaError(revision, newest)
    return True


def _revisions(versions: Path) -> set[str]:
    return {match[1] for file in versions.iterdir() if (match := _VERSION_FILE.fullmatch(file.name))}


def migrate(database_url: str, versions: Path) -> None:
    """Migrate the database to the head revision; concurrent migrations are safe.

    Tries again for ten minutes while other transactions hold the tables.

    Blocks and runs its own event loop: call it outside of one, or from a thread.

    Args:
        database_url: ``postgresql+asyncpg://…``.
        versions: The directory of the service's revisions.

    Raises:
        UnknownSchemaError: The database is at a revision that is not among the files: newer code has migrated it.
        OSError: The database does not answer.
        asyncpg.PostgresError, sqlalchemy.exc.DBAPIError: The database refused.
    """
    asyncio.run(_migrate(database_url, versions))


async def _migrate(database_url: str, versions: Path) -> None:
    current = await _current(database_url)
    if current == head(versions):
        return
    _refuse_unknown(current, versions)
    # Imported here: importing Alembic takes longer than the rest of a start at the head revision.
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    servers = database_servers(database_url)
    engine = create_async_engine(SCHEME, async_creator=servers.connect, poolclass=NullPool, hide_parameters=True)
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            async with engine.begin() as connection:
                await connection.exec_driver_sql(_LOCK)
                await connection.exec_driver_sql(_GIVE_WAY)
                await connection.run_sync(_upgrade, versions)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _BLOCKED or time.monotonic() > deadline:
                raise
            _log.warning("migration.blocked", reason="another transaction holds a table", delay_s=_AGAIN_S)
            await asyncio.sleep(_AGAIN_S)
        else:
            return


async def _current(database_url: str) -> str | None:
    connection = await database_servers(database_url).connect()
    try:
        revision: str | None = await connection.fetchval(SELECT_SCHEMA)
    except asyncpg.UndefinedTableError:
        return None
    else:
        return revision
    finally:
        await connection.close()


def _refuse_unknown(revision: str | None, versions: Path) -> None:
    if revision is not None and revision not in _revisions(versions):
        raise UnknownSchemaError(revision, head(versions))


def _upgrade(connection: "Connection", versions: Path) -> None:
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    # Again, now that the lock is held: another version may have migrated in between.
    _refuse_unknown(MigrationContext.configure(connection).get_current_revision(), versions)

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("version_locations", str(versions).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    oldest_code = max(getattr(script.module, "oldest_code", _FIRST) for script in scripts)
    connection.exec_driver_sql("ALTER TABLE alembic_version ADD COLUMN IF NOT EXISTS oldest_code text")
    connection.exec_driver_sql("UPDATE alembic_version SET oldest_code = $1", (oldest_code,))
