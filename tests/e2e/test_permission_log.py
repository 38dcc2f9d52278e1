"""The example that logs permission changes, started as in its README: its own process on the real bus."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from provision import ServerAddresses
from tests.support.template_source import TemplateSource

PROGRAM = Path(__file__).parents[2] / "examples" / "permission-log" / "permission_log.py"
WITHIN_S = 30


@pytest.fixture
async def source(servers: ServerAddresses) -> AsyncIterator[TemplateSource]:
    async with TemplateSource(servers) as source:
        yield source


class PermissionLog:
    """The running program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def lines(self, count: int) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            return [json.loads(await self._process.stdout.readline()) for _ in range(count)]

    async def stop(self) -> int:
        """Stop it; return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            return await self._process.wait()


@asynccontextmanager
async def running(addresses: ServerAddresses, source: TemplateSource) -> AsyncIterator[PermissionLog]:
    bus = urlsplit(addresses.subscriber_nats_url)
    environment = {
        "NATS_URL": f"nats://{bus.hostname}:{bus.port}",
        "NATS_USER": bus.username or "",
        "NATS_PASSWORD": bus.password or "",
        "TENANT_ID": source.tenant_id,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield PermissionLog(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.heavy
async def test_every_change_is_logged_and_a_restart_continues(servers: ServerAddresses, source: TemplateSource) -> None:
    await source.grant("o1", "u1", "read", "write@https://api.example.com")
    async with running(servers, source) as log:
        (first,) = await log.lines(1)
        assert first == {
            "time": first["time"],
            "organization": "o1",
            "user": "u1",
            "version": 1,
            "cause": "assignment",
            "added": ["read", "write of https://api.example.com"],
            "removed": [],
            "missed": 0,
        }
        await source.grant("o1", "a1", "read", member_type="application")
        await source.grant("o1", "u1", "read", cause="role-changed")
        second, third = await log.lines(2)
        assert (second["application"], second["version"]) == ("a1", 1)
        assert (third["user"], third["removed"]) == ("u1", ["write of https://api.example.com"])
        assert await log.stop() == 0

    await source.grant("o1", "u1", cause="member-removed")
    async with running(servers, source) as log:
        (fourth,) = await log.lines(1)
        assert (fourth["version"], fourth["cause"], fourth["removed"]) == (3, "member-removed", ["read"])
