"""Everything that a run has written anywhere: logs, answers, streams, metrics, stores."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import msgspec
import redis
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from all_in_one.provision import DATABASES
from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import StreamReader
from identity_common.wire.events import STREAM_EVENTS, STREAM_STATE
from tests.support.recorder import Recorder
from tests.support.running_stack import RunningStack

_AT_ONCE = 200


class Written:
    """What the running stack and the servers behind it have written so far.

    Attributes:
        recorder: Knows every secret of the run, those included that the stack was started with.
    """

    def __init__(self, stack: RunningStack, run_directory: Path) -> None:
        self._stack = stack
        self._run_directory = run_directory
        self.recorder: Recorder = stack.recorder
        self.recorder.keep_password_of(*msgspec.structs.asdict(stack.addresses).values())
        kek = (run_directory / "key-encryption-key").read_text().strip().rstrip("=")
        self.recorder.keep(kek, "key-encryption key")
        self.recorder.keep(stack.credentials.management_api.client_secret, "client secret")
        self.recorder.keep(stack.credentials.nats.password, "password of nats")
        for user in stack.credentials.demo.users:
            self.recorder.keep(user.password, "password")

    def secrets_found(self) -> list[str]:
        """Return a line for every secret that stands where none may stand."""
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
        """Return the logs of the services and of the servers, as far as these are of this run."""
        paths = sorted(self._run_directory.rglob("*.log"))
        return [path.read_text(errors="replace") for path in paths if path.is_file()]

    def messages(self) -> list[str]:
        """Return every message of the stream that sources the others, and all that is kept of the public events."""
        return list(_in_a_loop(_messages(self._stack.addresses.token_nats_url)))

    def metrics(self) -> list[str]:
        """Return the page of each service."""
        return list(_in_a_loop(_metrics(self._stack.apps)))

    def in_redis(self) -> list[str]:
        """Return every key and every plain value."""
        texts = []
        with redis.Redis.from_url(self._stack.addresses.admin_redis_url) as administrator:
            for key in administrator.scan_iter("*"):
                texts.append(key.decode(errors="replace"))
                if administrator.type(key) == b"string":
                    texts.append((administrator.get(key) or b"").decode(errors="replace"))
        return texts

    def rows(self) -> list[str]:
        """Return every row of every table of every database."""
        return list(_in_a_loop(_rows(self._stack.addresses.admin_postgres_url)))


async def _messages(url: str) -> list[str]:
    bus = Bus(url, service="token")
    bus.start()
    try:
        await bus.connected()
        found = []
        async with contextlib.aclosing(StreamReader(bus, STREAM_STATE, [">"]).read_after(0)) as batches:
            async for batch in batches:
                found += [
                    f"{message.subject} {msgspec.json.encode(message.event).decode()}" for message in batch.messages
                ]
                if batch.caught_up:
                    break
        jetstream = bus.jetstream()
        state = (await jetstream.stream_info(STREAM_EVENTS)).state
        for first in range(state.first_seq, state.last_seq + 1, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, state.last_seq + 1))
            found += await asyncio.gather(*(_public_event(jetstream, sequence) for sequence in some))
        return found
    finally:
        await bus.stop()


async def _public_event(jetstream: JetStreamContext, sequence: int) -> str:
    """Return one message of the public events; nothing where none is kept under this number."""
    try:
        message = await jetstream.get_msg(STREAM_EVENTS, sequence, direct=True)
    except NotFoundError:
        return ""
    return f"{message.subject} {message.headers} {(message.data or b'').decode(errors='replace')}"


async def _metrics(apps: Any) -> list[str]:
    pages = []
    for app in apps.values():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service") as client:
            pages.append((await client.get("/metrics")).text)
    return pages


async def _rows(admin_url: str) -> list[str]:
    found = []
    for database in DATABASES:
        url = urlsplit(admin_url)._replace(path=f"/{database}").geturl()
        connection = await asyncpg.connect(url)
        try:
            tables = await connection.fetch(
                "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
                " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            )
            for table in tables:
                rows = await connection.fetch(f"SELECT t::text AS row FROM {table['name']} AS t")
                found += [row["row"] for row in rows]
        finally:
            await connection.close()
    return found


def _in_a_loop(work: Any) -> Any:
    """Run a coroutine on an event loop of its own, in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
