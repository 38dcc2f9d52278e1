"""Logs every change of a member's permissions, a JSON object a line; see README.md."""

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
    """Return a change as one line."""
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
    """Return permissions as text, those of an API with its resource indicator."""
    return [each.name if each.resource is None else f"{each.name} of {each.resource}" for each in permissions]


async def main() -> None:
    """Log until told to stop; another start goes on where this one stopped."""
    settings = os.environ
    async with contextlib.AsyncExitStack() as stack:
        management = None
        if "MANAGEMENT_API_CLIENT_ID" in settings:  # with it, gaps are healed; without it they are only told
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
            print(line(change), flush=True)  # noqa: T201 - it is what this program is for


async def run() -> None:
    """Run until the program is asked to end, and end in order: what was logged will not be logged again."""
    logging = asyncio.current_task()
    assert logging is not None  # noqa: S101 - there is always one here
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, logging.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await main()


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
