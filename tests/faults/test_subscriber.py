"""A subscriber that is killed repeatedly, as is its bus, handles every change in order."""

import asyncio
import contextlib
import json
import os
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from tests.support.lengths import length
from tests.support.template_source import TemplateSource

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "examples" / "permission-log" / "permission_log.py"
MEMBERS = [f"u{number}" for number in range(20)]
WRITERS = 4
KILLS = length(short=4, long=8)
PAUSE_MS = length(short=100, long=0)
"""Between the writes of each writer."""
WITHIN_S = 240


class Subscriber:
    """The example program, restarted whenever it is killed, and the log of all its runs."""

    def __init__(self, addresses: ServerAddresses, source: TemplateSource) -> None:
        bus = urlsplit(addresses.subscriber_nats_url)
        self._environment = {
            "NATS_URL": f"nats://{bus.hostname}:{bus.port}",
            "NATS_USER": bus.username or "",
            "NATS_PASSWORD": bus.password or "",
            "TENANT_ID": source.tenant_id,
        }
        self._process: asyncio.subprocess.Process | None = None
        self.logged: list[dict[str, Any]] = []

    async def run(self) -> None:
        while True:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, PROGRAM, env={**os.environ, **self._environment}, stdout=asyncio.subprocess.PIPE
            )
            assert self._process.stdout is not None
            async for line in self._process.stdout:
                if line.endswith(b"\n"):  # skip a partial line
                    self.logged.append(json.loads(line))
            await self._process.wait()

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def newest(self) -> dict[str, int]:
        """Return the newest version of each member."""
        return {member: max(versions) for member, versions in self.versions().items()}

    def versions(self) -> dict[str, list[int]]:
        """Return the versions of each member in the order of the log."""
        found = defaultdict(list)
        for line in self.logged:
            found[line["user"]].append(line["version"])
        return found


async def disturb(servers: EmbeddedServers, subscriber: Subscriber) -> None:
    """Kill the subscriber many times, and NATS every other time."""
    chance = random.Random(5)
    for number in range(KILLS):
        await asyncio.sleep(chance.uniform(1, 3))
        subscriber.kill()
        if number % 2:
            await asyncio.to_thread(servers.nats.kill)
            await asyncio.to_thread(servers.nats.start)


async def test_every_change_is_handled_in_order_whatever_is_killed(
    own_servers: EmbeddedServers, own_addresses: ServerAddresses
) -> None:
    chance = random.Random(4)
    async with TemplateSource(own_addresses) as source, asyncio.timeout(WITHIN_S):
        subscriber = Subscriber(own_addresses, source)
        running = asyncio.create_task(subscriber.run())

        disturbing = asyncio.create_task(disturb(own_servers, subscriber))

        async def write(members: list[str]) -> None:
            while not disturbing.done():
                await asyncio.sleep(PAUSE_MS / 1000)
                await source.grant("o1", chance.choice(members), *chance.sample("abcdef", chance.randrange(6)))

        await asyncio.gather(disturbing, *(write(MEMBERS[each::WRITERS]) for each in range(WRITERS)))
        expected = {each: state.version for each in MEMBERS if (state := source.published("o1", each))}
        while subscriber.newest() != expected:  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.1)
        running.cancel()
        subscriber.kill()

    for versions in subscriber.versions().values():
        newest = 0
        for version in versions:  # some repeat after a crash; none is skipped
            assert version <= newest + 1, versions
            newest = max(newest, version)
    assert [line for line in subscriber.logged if line["missed"]] == []
