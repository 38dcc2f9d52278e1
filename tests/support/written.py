"""Everything that a stack has written: logs, answers, streams, metrics, and its tenant in the stores."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec
import redis

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import StreamReader
from identity_common.wire.events import STREAM_EVENTS, STREAM_STATE
from provision import DATABASES
from tests.support.recorder import Recorder
from tests.support.running_stack import RunningStack
from tests.support.streams import messages_of


class Written:
    """Everything that the running stack and the servers behind it have written so far.

    Attributes:
        recorder: Knows every secret of the run, including those that the stack was started with.
    """

    def __init__(self, stack: RunningStack, run_directory: Path) -> None:
        self._stack = stack
        self._run_directory = run_directory
        self.recorder: Recorder = stack.recorder
        self.recorder.keep_password_of(*msgspec.structs.asdict(stack.addresses).values())
        for name in ("key-encryption-key", "environment-variable-key", "audit-head-key", "mail-key", "cookie-key"):
            self.recorder.keep((run_directory / name).read_text().strip().rstrip("="), "key-encryption key")
        self.recorder.keep(stack.credentials.management_api.client_secret, "client secret")
        self.recorder.keep(stack.credentials.nats.password, "password of nats")
        for user in stack.credentials.demo.users:
            self.recorder.keep(user.password, "password")

    def secrets_found(self) -> list[str]:
        """Return a line for every secret that was written anywhere."""
        places: dict[str, Iterable[str]] = {
            "log": self.logs(),
            "answer": self.recorder.said,
            "stream": self.messages(),
            "metrics": self.metrics(),
            "Redis": self.in_redis(),
            "database": self.rows(),
        }
        return [f"{place}: {line}" for place, texts in places.items() for line in self.recorder.found(texts)]

    def logs(self) -> list[str]:
        """Return the logs of the services and of the servers of this run."""
        paths = sorted(self._run_directory.rglob("*.log"))
        return [path.read_text(errors="replace") for path in paths if path.is_file()]

    def messages(self) -> list[str]:
        """Return the tenant's messages in the stream that sources the others, and its public events."""
        return list(_in_a_loop(_messages(self._stack.addresses.token_nats_url, self._stack.tenant_id)))

    def metrics(self) -> list[str]:
        """Return the page with the metrics of all services."""
        return [self._stack.http.get("/metrics").text]

    def in_redis(self) -> list[str]:
        """Return every key and every plain value, except those of other tenants."""
        ours = f"identity:{self._stack.tenant_id}:".encode()
        texts = []
        with redis.Redis.from_url(self._stack.addresses.admin_redis_url) as administrator:
            for kind in (None, "string"):
                keys = administrator.scan_iter("*", count=1_000, _type=kind)
                found = [key for key in keys if key.startswith(ours) or not key.startswith(b"identity:")]
                texts += found if kind is None else [value for value in administrator.mget(found) if value]
        return [text.decode(errors="replace") for text in texts]

    def rows(self) -> list[str]:
        """Return the tenant's rows of every table of every database, and all rows of tables without tenants."""
        return list(_in_a_loop(_rows(self._stack.addresses.admin_postgres_url, self._stack.tenant_id)))


async def _messages(url: str, tenant_id: str) -> list[str]:
    bus = Bus(url, service="token")
    bus.start()
    try:
        await bus.connected()
        subjects = f"*.{tenant_id}.>"
        found = []
        async with contextlib.aclosing(StreamReader(bus, STREAM_STATE, [subjects]).read_after(0)) as batches:
            async for batch in batches:
                found += [
                    f"{message.subject} {msgspec.json.encode(message.event).decode()}" for message in batch.messages
                ]
                if batch.caught_up:
                    break
        return found + [
            f"{message.subject} {message.headers} {message.data.decode(errors='replace')}"
            for message in await messages_of(bus.jetstream(), STREAM_EVENTS, subjects)
        ]
    finally:
        await bus.stop()


async def _rows(admin_url: str, tenant_id: str) -> list[str]:
    found = []
    for database in DATABASES:
        url = urlsplit(admin_url)._replace(path=f"/{database}").geturl()
        connection = await asyncpg.connect(url)
        try:
            tables = await connection.fetch(
                "SELECT format('%I.%I', table_schema, table_name) AS name,"
                " bool_or(column_name = 'tenant_id') AS has_tenants"
                " FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
                " GROUP BY 1"
            )
            for table in tables:
                of_the_tenant = "t.tenant_id = $1" if table["has_tenants"] else "$1::text IS NOT NULL"
                query = f"SELECT t::text AS row FROM {table['name']} AS t WHERE {of_the_tenant}"
                rows = await connection.fetch(query, tenant_id)
                found += [row["row"] for row in rows]
        finally:
            await connection.close()
    return found


def _in_a_loop(work: Any) -> Any:
    """Run a coroutine on a new event loop in a new thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
