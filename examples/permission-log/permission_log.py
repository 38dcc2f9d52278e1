"""Logs every change of a member's permissions as a line of JSON; see README.md."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable

from stead import AsyncManagementClient
from stead.events import EventBus, GrantedPermission, PermissionChange, permission_changes


def line(change: PermissionChange) -> str:
    """Return a change as a line of JSON."""
    return json.dumps(
        {
            "time": change.time.isoformat(),
            "organization": change.organization_id,
            change.member_type: change.member_id,
            "version": change.version,
            "cause": change.cause,
            "added": names(change.added),
            "removed": names(change.removed),
            "missed": change.missed,
        }
    )


def names(permissions: Iterable[GrantedPermission]) -> list[str]:
    """Return the names of permissions; those of an API with its resource indicator."""
    return [each.name if each.resource is None else f"{each.name} of {each.resource}" for each in permissions]


async def main() -> None:
    """Log until cancelled; the next start resumes here."""
    settings = os.environ
    async with contextlib.AsyncExitStack() as stack:
        management = None
        if "MANAGEMENT_API_CLIENT_ID" in settings:  # with it, gaps are filled; without it, only reported
            management = await stack.enter_async_context(
                AsyncManagementClient(
                    settings["BASE_URL"],
                    client_id=settings["MANAGEMENT_API_CLIENT_ID"],
                    client_secret=settings["MANAGEMENT_API_CLIENT_SECRET"],
                )
            )
        bus = await stack.enter_async_context(
            EventBus(
                settings["NATS_URL"],
                user=settings["NATS_USER"],
                password=settings["NATS_PASSWORD"],
                tenant_id=settings.get("TENANT_ID", "default"),
            )
        )
        changes = permission_changes(bus, since="beginning", durable="permission-log", management=management)
        async for change in await stack.enter_async_context(contextlib.aclosing(changes)):
            print(line(change), flush=True)  # noqa: T201 - the purpose of this program


async def run() -> None:
    """Run until SIGTERM or Ctrl-C, and stop gracefully: no logged change is logged again."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await main()


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
