"""``python -m benchmarks``: start everything, measure in rounds, print the table."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from all_in_one.embedded import EmbeddedServers
from benchmarks import fan_out
from benchmarks.load import Plan, Step
from benchmarks.measure import LoadFailed, Measurement, measure
from benchmarks.report import Key, Report
from benchmarks.scenarios import (
    FLOOR,
    MANAGEMENT_API,
    SCENARIOS,
    Mint,
    make_parties,
    needs_subject_tokens,
    steps,
)
from identity_sdk import client_credentials
from tests.support.processes import Deployment, ServiceProcess

_CONNECTIONS: Final = (1, 16, 64)
_WARM_UP_PASSES: Final = {1: 200, 16: 1000, 64: 1000}


class Effort(msgspec.Struct, frozen=True):
    """How long to measure.

    Attributes:
        rounds: How often every scenario is measured.
        seconds: About how long each time.
        members: How many members an edited role has.
        events: How many events the relay is given.
    """

    rounds: int
    seconds: float
    members: tuple[int, ...]
    events: int


_USUAL: Final = Effort(rounds=5, seconds=1.5, members=fan_out.MEMBERS, events=fan_out.EVENTS)
_QUICK: Final = Effort(rounds=2, seconds=0.6, members=fan_out.MEMBERS[:2], events=20_000)


class Bench:
    """Everything that runs, and what is sent to it.

    Attributes:
        plans: The steps of each scenario.
        fan_out: What is measured of template-service.
    """

    def __init__(self, directory: Path, stop: ExitStack) -> None:
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        addresses = servers.start()
        deployment = Deployment(addresses, directory)
        stop.callback(deployment.stop)
        deployment.start()
        floor = ServiceProcess("benchmarks.floor", {"REDIS_URL": addresses.token_redis_url}, directory / "floor.log")
        stop.callback(floor.stop)
        floor.start()
        floor.wait_until_ready()
        management = stop.enter_context(deployment.management_client())
        parties = make_parties(management)
        access = client_credentials(
            deployment.tokens[0].url,
            client_id=parties.backend.id,
            client_secret=parties.backend.secret,
            resource=MANAGEMENT_API,
            scope="subject-tokens",
        )
        self.steps: Mapping[str, list[Step]] = {
            scenario: steps(
                scenario,
                parties,
                token_port=deployment.tokens[0].port,
                management_port=deployment.management.port,
                floor_port=floor.port,
                access_token=access.access_token,
            )
            for scenario in SCENARIOS
        }
        self._mint = Mint(addresses.management_redis_url, parties)
        stop.callback(self._mint.close)
        self._services = [process.pid for process in deployment.processes]
        self._floor = [floor.pid]
        self._stores = [server.pid for server in (servers.postgres, servers.valkey, servers.nats)]
        self.fan_out = fan_out.FanOutBench(addresses, management, own=[deployment.template.pid], stores=self._stores)

    def measure(self, scenario: str, connections: int, passes: int) -> Measurement:
        """Make so many passes of a scenario."""
        subject_tokens = self._mint(passes) if needs_subject_tokens(scenario) else []
        plan = Plan(self.steps[scenario], connections, passes, subject_tokens)
        return measure(plan, own=self._floor if scenario == FLOOR else self._services, stores=self._stores)


def run(bench: Bench, effort: Effort) -> Report:
    """Warm everything up, then measure all scenarios in turn, round after round, so that noise hits all alike."""
    keys: list[Key] = [(scenario, connections) for connections in _CONNECTIONS for scenario in SCENARIOS]
    rates = {key: bench.measure(*key, _WARM_UP_PASSES[key[1]]).rate for key in keys}
    rounds: dict[Key, list[Measurement]] = {key: [] for key in keys}
    for number in range(effort.rounds):
        for key in keys:
            measurement = bench.measure(*key, passes=max(key[1], int(rates[key] * effort.seconds)))
            rates[key] = measurement.rate
            rounds[key].append(measurement)
        print(f"round {number + 1} of {effort.rounds}", file=sys.stderr, flush=True)
    return Report(rounds)


def main() -> int:
    """Return the exit status: 0 also when a target is missed, which on a busy machine says little."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="See benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: under a minute")
    effort = _QUICK if parser.parse_args().quick else _USUAL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    with ExitStack() as stop:
        directory = stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-"))
        try:
            bench = Bench(Path(directory), stop)
            report = run(bench, effort)
            fanned_out = list(fan_out.lines(bench.fan_out, members=effort.members, rounds=3, events=effort.events))
        except LoadFailed as failure:
            print(f"benchmarks: {failure}", file=sys.stderr)
            return 1
    print(f"{os.cpu_count()} processors, {effort.rounds} rounds of {effort.seconds} s, medians\n")
    print("\n".join(report.lines()), end="\n\n")
    print("\n".join(report.targets()))
    print("\n".join(fanned_out))
    print(f"\nthe load generator used at most {report.busiest_load():.0%} of one processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
