"""Migrations of a service's database with Alembic; ``env.py`` in this directory is the environment of all services.

The revisions of a service are the files ``NNNN_name.py`` in its own package, each with ``revision = "NNNN"``. The
highest file name is the head, so that it is known without importing Alembic.
"""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from sqlalchemy import Connection

SELECT_REVISION: Final = "SELECT version_num FROM alembic_version"
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('identity-migrations'))"
_CONNECT_TIMEOUT_S: Final = 5
_VERSION_FILE: Final = re.compile(r"(\d{4})_\w+\.py")


def head(versions: Path) -> str:
    """Return the newest revision among the files of a directory."""
    return max(match[1] for file in versions.iterdir() if (match := _VERSION_FILE.fullmatch(file.name)))


def migrate(database_url: str, versions: Path) -> None:
    """Migrate the database to the head revision; concurrent migrations are safe.

    Blocks and runs its own event loop: call it outside of one, or from a thread.

    Args:
        database_url: ``postgresql+asyncpg://…``.
        versions: The directory of the service's revisions.

    Raises:
        OSError: The database does not answer.
        asyncpg.PostgresError: The database refused.
    """
    asyncio.run(_migrate(database_url, versions))


async def _migrate(database_url: str, versions: Path) -> None:
    if await _current(database_url) == head(versions):
        return
    # Imported here: importing Alembic takes longer than the rest of a start at the head revision.
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    engine = create_async_engine(database_url, poolclass=NullPool, hide_parameters=True)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(_LOCK)
        await connection.run_sync(_upgrade, versions)


async def _current(database_url: str) -> str | None:
    url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S)
    try:
        revision: str | None = await connection.fetchval(SELECT_REVISION)
    except asyncpg.UndefinedTableError:
        return None
    else:
        return revision
    finally:
        await connection.close()


def _upgrade(connection: "Connection", versions: Path) -> None:
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("version_locations", str(versions).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
