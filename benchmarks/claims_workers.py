"""What one call of the custom-claims function costs in its sandbox, without the rest of a token request.

.venv/bin/python -m benchmarks.claims_workers
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain
from statistics import median
from typing import Any, Final

import msgspec
import quickjs  # type: ignore[import-untyped]
import uvloop

from benchmarks.measure import cpu_seconds, memory_mb
from token_service.claims_function.sandbox import Claims, ClaimsWorkers, Limits

_CALLS: Final = 4_000
_CONTEXTS: Final = 1_000
_WARM_UP: Final = 200
_MEMORY_TARGET_MB: Final = 20.0

_SCRIPT: Final = """
const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  if (context.user.isSuspended) api.denyAccess();
  return { ticket: context.ticket, name: context.user.name, region: environmentVariables.REGION };
};
"""


def _data(ticket: int) -> bytes:
    user = {"id": "u", "name": "Ada Lovelace", "isSuspended": False, "customData": {"numbers": list(range(50))}}
    token = {"jti": "j", "aud": "https://api.example.com", "scope": "read:orders", "clientId": "c"}
    context = {"ticket": ticket, "user": user}
    return msgspec.json.encode({"token": token, "context": context, "environmentVariables": {"REGION": "eu"}})


async def _calls(workers: ClaimsWorkers, numbers: range) -> list[float]:
    """Make one call after another; return the seconds that each took."""
    taken = []
    for number in numbers:
        data = _data(number)
        begun = time.perf_counter()
        async with await workers.reserve(within_s=10) as slot:
            outcome = await slot.run(_SCRIPT, data)
        taken.append(time.perf_counter() - begun)
        expected: dict[str, Any] = {"ticket": number, "name": "Ada Lovelace", "region": "eu"}
        if outcome != Claims(expected):
            raise RuntimeError(f"call {number} came to {outcome}")
    return taken


async def _measured(count: int) -> list[str]:
    begun = time.perf_counter()
    async with ClaimsWorkers(Limits(time_ms=5_000), count) as workers:
        started_ms = (time.perf_counter() - begun) * 1e3
        await asyncio.gather(*(_calls(workers, range(_WARM_UP)) for _ in range(count)))
        own, theirs, begun = time.process_time(), cpu_seconds(workers.pids), time.perf_counter()
        share = _CALLS // count
        rounds = await asyncio.gather(*(_calls(workers, range(n * share, (n + 1) * share)) for n in range(count)))
        taken = sorted(chain.from_iterable(rounds))
        wall_s = time.perf_counter() - begun
        own_us = (time.process_time() - own) / len(taken) * 1e6
        theirs_us = (cpu_seconds(workers.pids) - theirs) / len(taken) * 1e6
        largest = max(memory_mb(pid)[0] for pid in workers.pids)
    return [
        f"{count} workers, started in {started_ms:.0f} ms: {len(taken) / wall_s:.0f} calls/s, "
        f"p50 {taken[len(taken) // 2] * 1e3:.2f} ms, p99 {taken[len(taken) * 99 // 100] * 1e3:.2f} ms",
        f"CPU per call: {own_us:.0f} µs in the service, {theirs_us:.0f} µs in the worker",
        f"{'met   ' if largest < _MEMORY_TARGET_MB else 'MISSED'}  resident memory of a worker: {largest:.1f} MB "
        f"(target: {_MEMORY_TARGET_MB:.0f} MB)",
    ]


def _cpu_us(action: Callable[[], object]) -> float:
    rounds = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(_CONTEXTS):
            action()
        rounds.append((time.process_time() - begun) / _CONTEXTS * 1e6)
    return median(rounds)


def _fresh_context() -> Iterator[str]:
    kept = quickjs.Context()
    script = _SCRIPT.replace("const getCustomJwtClaims", "globalThis.getCustomJwtClaims")
    fresh, again = _cpu_us(quickjs.Context), _cpu_us(lambda: kept.eval(script))
    yield f"a fresh context: {fresh:.0f} µs; the script: {again:.0f} µs (both in this process)"


def main() -> None:
    """Measure with one worker a core."""
    for line in [*uvloop.run(_measured(os.cpu_count() or 1)), *_fresh_context()]:
        print(line)


if __name__ == "__main__":
    main()
