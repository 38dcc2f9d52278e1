"""One measurement: run the load generator on a plan, and measure the CPU time of all processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from benchmarks.load import Outcome, Plan

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_TIMEOUT_S: Final = 120
_AFTERWARDS_S: Final = 1.0
"""The trail stores entries a moment after the answers: what a plan leaves to do must not be counted with the next."""


class LoadFailed(Exception):  # noqa: N818 - named for what happened
    """The load generator received an unexpected answer, so the numbers would be meaningless."""


class Measurement(msgspec.Struct, frozen=True):
    """The cost of a plan.

    Attributes:
        rate: Passes per second.
        p50_ms: Median latency.
        p99_ms: 99th percentile of the latency.
        own_cpu_us: CPU time of our processes per pass, microseconds.
        store_cpu_us: CPU time of the stores per pass, microseconds.
        load: CPU utilization of the load generator; near 1, it was the bottleneck.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    own_cpu_us: float
    store_cpu_us: float
    load: float


def measure(plan: Plan, *, own: Iterable[int], stores: Iterable[int]) -> Measurement:
    """Execute a plan.

    Args:
        plan: The load to generate.
        own: Ids of our processes; their children are included.
        stores: Process ids of the stores.

    Raises:
        LoadFailed: An answer was unexpected.
    """
    own, stores = list(own), list(stores)
    own_before, stores_before = cpu_seconds(own), cpu_seconds(stores)
    outcome = _generate_load(plan)
    time.sleep(_AFTERWARDS_S)
    own_s, stores_s = cpu_seconds(own) - own_before, cpu_seconds(stores) - stores_before
    if outcome.failures or outcome.p50_ms is None or outcome.p99_ms is None:
        raise LoadFailed(
            f"{outcome.failures} of {plan.passes} passes failed; the first failure: {outcome.first_failure}"
        )
    return Measurement(
        rate=plan.passes / outcome.seconds,
        p50_ms=outcome.p50_ms,
        p99_ms=outcome.p99_ms,
        own_cpu_us=own_s / plan.passes * 1e6,
        store_cpu_us=stores_s / plan.passes * 1e6,
        load=outcome.cpu_s / outcome.seconds,
    )


@contextmanager
def under_load(plan: Plan) -> Iterator[None]:
    """Execute a plan in the background, ignore its answers, and kill it when the block ends.

    Raises:
        LoadFailed: The plan ended before the block did.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        try:
            cast("IO[bytes]", process.stdin).write(msgspec.json.encode(plan))
            cast("IO[bytes]", process.stdin).close()
            yield
            if process.poll() is not None:
                raise LoadFailed("the load in the background ended too early")
        finally:
            process.kill()


def _generate_load(plan: Plan) -> Outcome:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=msgspec.json.encode(plan),
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if finished.returncode or not finished.stdout:
        raise LoadFailed(finished.stderr.decode(errors="replace")[-2000:])
    return msgspec.json.decode(finished.stdout, type=Outcome)


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return the CPU time of these processes and all their children, including those that have exited."""
    stats = dict(_stats())
    total, waiting = 0, list(roots)
    while waiting:
        pid = waiting.pop()
        waiting += [child for child, (parent, _) in stats.items() if parent == pid]
        total += stats[pid][1]
    return total / _TICKS_S


def children_of(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started and that still run."""
    return [child for child, (parent, _) in _stats() if parent == pid]


def memory_mb(pid: int) -> tuple[float, float]:
    """Return the current and the peak resident memory of a process in MB (10⁶ bytes)."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, peak = (int(status[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return now, peak


def proportional_mb(pid: int) -> float:
    """Return the memory of a process in MB (10⁶ bytes), pages that it shares with others divided among them.

    Only root may ask about a process that has closed its memory, as token-service does.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:"))


def _stats() -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield every process with its parent and its ticks, including those of its reaped children."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has just exited
            continue
        fields = text.rpartition(")")[2].split()  # the name before may contain anything
        yield int(entry.name), (int(fields[1]), sum(map(int, fields[11:15])))
