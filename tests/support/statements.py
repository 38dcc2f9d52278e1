"""What is sent to a database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event, make_url
from sqlalchemy.engine import Engine


@contextmanager
def statements(database_url: str) -> Iterator[list[str]]:
    """Collect what this task sends to a database through any engine; workers in the background do not count."""
    sent: list[str] = []
    task = asyncio.current_task()
    database = make_url(database_url).database

    def remember(connection: Connection, _: Any, statement: str, *__: Any) -> None:
        if connection.engine.url.database == database and asyncio.current_task() is task:
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", remember)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", remember)
