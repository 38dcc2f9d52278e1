"""``python -m benchmarks.idle``: what ``make run`` needs: time for a start with data, CPU time and memory at rest."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Self

from all_in_one.embedded.ports import pick_port
from benchmarks.measure import children_of, cpu_seconds, memory_mb, proportional_mb

_STARTS: Final = 5
_REST_S: Final = 60.0
_SETTLED_S: Final = 15.0
_TIMEOUT_S: Final = 120
_READY: Final = "Stead is ready"
_MAX_START_S: Final = 3.0
_MAX_IDLE: Final = 0.015
_MAX_MB: Final = 140.0


class Start(NamedTuple):
    """One start, until the line that says that the system is ready.

    Attributes:
        seconds: Its duration.
        own_cpu_s: CPU time of the process with all services.
        store_cpu_s: CPU time of the stores.
    """

    seconds: float
    own_cpu_s: float
    store_cpu_s: float


class System:
    """``python -m all_in_one`` on a directory; ready when the body begins, and stopped at its end."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._process: subprocess.Popen[str]
        self.start: Start

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "all_in_one", "--port", str(self._port), "--directory", str(self._directory)]
        begun = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(_READY):
            self._process.wait(_TIMEOUT_S)
            raise RuntimeError(f"the system did not start: {self._directory}/log/services.log")
        seconds = time.perf_counter() - begun
        stores_s = sum(self.cpu_of_stores().values())
        self.start = Start(seconds, cpu_seconds([self.pid]) - stores_s, stores_s)
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_of_stores(self) -> Mapping[str, float]:
        """Return the CPU time of each store, by its program."""
        programs = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in children_of(self.pid)}
        return {name: cpu_seconds([pid]) for name, pid in sorted(programs.items())}


def lines(directory: Path, *, starts: int, rest_s: float) -> Iterator[str]:
    """Start once without data, then with it, and yield the results line by line."""
    port = pick_port()
    with System(directory, port) as system:
        yield f"        ready without data after {_described(system.start)}"
    found = []
    for _ in range(starts - 1):
        with System(directory, port) as system:
            found.append(system.start)
    with System(directory, port) as system:
        found.append(system.start)
        start = Start(*(median(values) for values in zip(*found, strict=True)))
        is_met = start.seconds < _MAX_START_S
        yield f"{_verdict(is_met)}  ready with data after {_described(start)} (target: {_MAX_START_S:.0f} s)"
        yield from _at_rest(system, rest_s)


def _at_rest(system: System, rest_s: float) -> Iterator[str]:
    time.sleep(_SETTLED_S)
    begun, all_before, before = time.perf_counter(), cpu_seconds([system.pid]), system.cpu_of_stores()
    time.sleep(rest_s)
    seconds = time.perf_counter() - begun
    everything = (cpu_seconds([system.pid]) - all_before) / seconds
    stores = {name: (spent_s - before[name]) / seconds for name, spent_s in system.cpu_of_stores().items()}
    shares = {"services": everything - sum(stores.values()), **stores}
    parts = ", ".join(f"{name} {share:.2%}" for name, share in shares.items())
    yield f"{_verdict(everything < _MAX_IDLE)}  at rest: {everything:.2%} of a core: {parts} (target: {_MAX_IDLE:.1%})"
    mb, resident_mb = proportional_mb(system.pid), memory_mb(system.pid)[0]
    yield (
        f"{_verdict(mb < _MAX_MB)}  memory of the process with all services: {mb:.0f} MB proportional, "
        f"{resident_mb:.0f} MB resident (target: {_MAX_MB:.0f} MB)"
    )


def _described(start: Start) -> str:
    cpu = f"CPU time {start.own_cpu_s:.2f} s of the services, {start.store_cpu_s:.2f} s of the stores"
    return f"{start.seconds:.1f} s, {cpu}"


def _verdict(met: bool) -> str:
    return "met   " if met else "MISSED"


def main() -> int:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description="See benchmarks/README.md.")
    parser.add_argument("--starts", type=int, default=_STARTS, help="number of starts with data")
    parser.add_argument("--rest", type=float, default=_REST_S, help="seconds at rest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="identity-bench-") as directory:
        for line in lines(Path(directory), starts=options.starts, rest_s=options.rest):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
