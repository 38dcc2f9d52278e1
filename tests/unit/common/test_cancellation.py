"""A service that is told to stop stops: no wait may swallow a cancellation."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
from pathlib import Path

import pytest

PACKAGES = (
    "identity_common",
    "stead",
    "token_service",
    "management_service",
    "template_service",
    "verifier",
    "all_in_one",
)


def sources(package: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return sorted(Path(found.origin).parent.rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_our_code_does_not_call_wait_for(package: str) -> None:
    """``asyncio.wait_for`` of Python 3.11 swallows a cancellation that arrives in the same tick as the awaited
    result; a loop around it then runs for ever, and the service never ends. ``asyncio.timeout`` does not.
    """
    calls = [
        f"{path.name}:{node.lineno}"
        for path in sources(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "wait_for"
        and isinstance(node.value, ast.Name)
        and node.value.id == "asyncio"
    ]

    assert sources(package)
    assert calls == []


async def test_a_loop_with_a_timeout_ends_when_it_is_cancelled_in_the_tick_of_its_event() -> None:
    """The control: ``asyncio.timeout`` does not swallow it."""
    event = asyncio.Event()

    async def run() -> None:
        while True:
            event.clear()
            async with asyncio.timeout(60):
                await event.wait()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    event.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
