"""``python -m benchmarks.organizations``: organization tokens, polls for permissions, and the lag of revocations."""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlencode

import httpx2 as httpx
import msgspec

from all_in_one.embedded import EmbeddedServers
from benchmarks.load import HOST, Plan, Step
from benchmarks.measure import Measurement, measure
from benchmarks.report import Report
from benchmarks.rounds import Key, measure_round
from benchmarks.scenarios import FLOOR, SUBJECT_TOKEN_CHARS, Mint, Parties, form_step, make_parties
from identity_common.oauth import GRANT_CLIENT_CREDENTIALS, GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from stead import client_credentials
from tests.support.processes import Deployment, ServiceProcess

BY_CREDENTIALS: Final = "organization token by client credentials"
BY_EXCHANGE: Final = "organization token by exchange"
CHANGED: Final = "poll, changed (200)"
UNCHANGED: Final = "poll, unchanged (304)"
SCENARIOS: Final = (FLOOR, BY_CREDENTIALS, BY_EXCHANGE, CHANGED, UNCHANGED)

_CONNECTIONS: Final = (1, 16)
_WARM_UP_PASSES: Final = 500
_PERMISSIONS: Final = tuple(f"bench:{number}" for number in range(5))
_MAX_POLL_SHARE: Final = 0.8


class Effort(msgspec.Struct, frozen=True):
    """How long and how much to measure.

    Attributes:
        rounds: Measurements of every scenario.
        seconds: Approximate duration of each.
        revocations: The number of timed revocations.
    """

    rounds: int
    seconds: float
    revocations: int


_USUAL: Final = Effort(rounds=5, seconds=1.5, revocations=500)
_QUICK: Final = Effort(rounds=2, seconds=0.6, revocations=50)


class Bench:
    """The running processes, and an organization with two members with the same permissions.

    Args:
        directory: For all data.
        stop: Stops the processes.
    """

    def __init__(self, directory: Path, stop: ExitStack) -> None:
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        self._deployment = Deployment(servers.start(), directory, launcher=())
        stop.callback(self._deployment.stop)
        self._deployment.start()
        floor = _start_floor(self._deployment.addresses.token_redis_url, directory, stop)
        self._management = stop.enter_context(self._deployment.management_client())
        self._parties = make_parties(self._management)
        self._organization = self._make_organization()
        self._mint = Mint(self._deployment.addresses.management_redis_url, self._parties)
        stop.callback(self._mint.close)
        self._own = {FLOOR: [floor.pid]}
        self._services = [process.pid for process in self._deployment.processes]
        self._stores = [server.pid for server in (servers.postgres, servers.valkey, servers.nats)]
        self._steps = self._make_steps(floor.port)

    def _make_organization(self) -> str:
        """Create an organization with both members; one role of each type grants the permissions."""
        management, parties = self._management, self._parties
        permissions = [management.organization_permissions.create(name).id for name in _PERMISSIONS]
        roles = management.organization_roles
        self._user_role = roles.create("Users", permission_ids=permissions).id
        self._machine_role = roles.create("Machines", type="MachineToMachine", permission_ids=permissions).id
        self._permissions = permissions
        organization = management.organizations.create("Bench").id
        management.organizations.add_users(organization, [parties.user_id])
        management.organizations.replace_user_roles(organization, parties.user_id, [self._user_role])
        management.organizations.add_applications(organization, [parties.backend.id])
        management.organizations.replace_application_roles(organization, parties.backend.id, [self._machine_role])
        return organization

    def _make_steps(self, floor_port: int) -> Mapping[str, Step]:
        token_port = self._deployment.tokens[0].port
        poll, etag = self._poll()
        return {
            FLOOR: _exchange(self._parties, self._organization, floor_port),
            BY_CREDENTIALS: form_step(token_port, self._parties.backend, urlencode(self._form()), ""),
            BY_EXCHANGE: _exchange(self._parties, self._organization, token_port),
            CHANGED: poll,
            UNCHANGED: msgspec.structs.replace(
                poll, head=poll.head[:-2] + b"If-None-Match: %s\r\n\r\n" % etag.encode(), status=304
            ),
        }

    def _form(self) -> dict[str, str]:
        scope = " ".join(_PERMISSIONS)
        return {"grant_type": GRANT_CLIENT_CREDENTIALS, "organization_id": self._organization, "scope": scope}

    def _poll(self) -> tuple[Step, str]:
        """Return the request for the machine's permissions with its own organization token, and the current ETag."""
        template = self._deployment.template
        path = f"/api/organizations/{self._organization}/applications/{self._parties.backend.id}/scopes"
        issued = client_credentials(
            self._deployment.tokens[0].url,
            client_id=self._parties.backend.id,
            client_secret=self._parties.backend.secret,
            organization_id=self._organization,
            scope=" ".join(_PERMISSIONS),
        )
        headers = {"Accept": "application/json", "Authorization": f"Bearer {issued.access_token}"}
        answer = httpx.get(template.url + path, headers=headers).raise_for_status()
        lines = [f"GET {path} HTTP/1.1", f"Host: {HOST}", *(f"{name}: {value}" for name, value in headers.items())]
        return Step(template.port, "\r\n".join([*lines, "", ""]).encode()), answer.headers["ETag"]

    def measure(self, scenario: str, connections: int, passes: int) -> Measurement:
        """Run a number of passes of a scenario."""
        subject_tokens = self._mint(passes) if scenario in {FLOOR, BY_EXCHANGE} else []
        plan = Plan([self._steps[scenario]], connections, passes, subject_tokens)
        return measure(plan, own=self._own.get(scenario, self._services), stores=self._stores)

    def lags(self, revocations: int) -> Iterator[tuple[float, bool]]:
        """Revoke a permission repeatedly, and request tokens without the revision until one reflects it.

        Yields:
            Milliseconds from the acknowledgement to that token, and whether it was the first one requested.
        """
        url = f"{self._deployment.tokens[0].url}/oidc/token"
        roles, backend = self._management.organization_roles, self._parties.backend
        with httpx.Client(auth=(backend.id, backend.secret)) as http:

            def granted() -> str:
                return str(http.post(url, data=self._form()).raise_for_status().json()["scope"])

            for _ in range(revocations):
                roles.replace_permissions(self._machine_role, self._permissions[1:])
                acknowledged = time.perf_counter()
                requests = next(number for number in itertools.count(1) if _PERMISSIONS[0] not in granted().split())
                yield (time.perf_counter() - acknowledged) * 1000, requests == 1
                roles.replace_permissions(self._machine_role, self._permissions)
                while _PERMISSIONS[0] not in granted().split():
                    continue


def _start_floor(redis_url: str, directory: Path, stop: ExitStack) -> ServiceProcess:
    floor = ServiceProcess("benchmarks.floor", {"REDIS_URL": redis_url}, directory / "floor.log")
    stop.callback(floor.stop)
    floor.start()
    floor.wait_until_ready()
    return floor


def _exchange(parties: Parties, organization_id: str, port: int) -> Step:
    first = {"grant_type": GRANT_TOKEN_EXCHANGE, "subject_token": ""}
    rest = {
        "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
        "organization_id": organization_id,
        "scope": " ".join(_PERMISSIONS),
    }
    return form_step(port, parties.application, urlencode(first), "&" + urlencode(rest), between=SUBJECT_TOKEN_CHARS)


def throughput(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure every scenario in each round; yield the table and the cost of an unchanged poll."""
    keys: list[Key] = [(scenario, connections) for connections in _CONNECTIONS for scenario in SCENARIOS]
    rates = {key: bench.measure(*key, _WARM_UP_PASSES).rate for key in keys}
    rounds = [measure_round(bench.measure, keys, rates, effort.seconds) for _ in range(effort.rounds)]
    report = Report(rounds)
    yield from report.lines()
    yield ""
    for connections in _CONNECTIONS:
        polls = ((each.measurements[kind, connections] for kind in (UNCHANGED, CHANGED)) for each in rounds)
        share = median(_cost(unchanged) / _cost(changed) for unchanged, changed in polls)
        yield (
            f"{'met   ' if share <= _MAX_POLL_SHARE else 'MISSED'}  an unchanged poll at {connections} costs "
            f"{share:.0%} of a changed one, stores included (target: {_MAX_POLL_SHARE:.0%})"
        )
    yield f"the load generator used at most {report.busiest_load():.0%} of one processor"


def _cost(measurement: Measurement) -> float:
    return measurement.own_cpu_us + measurement.store_cpu_us


def lag(bench: Bench, effort: Effort) -> Iterator[str]:
    """Yield how soon tokens reflect a revocation when requests do not send its revision."""
    lags = list(bench.lags(effort.revocations))
    ordered = sorted(milliseconds for milliseconds, _ in lags)
    at_once = sum(is_first for _, is_first in lags) / len(lags)
    yield (
        f"revocation → first token without it, no revision sent: p50 {ordered[len(ordered) // 2]:.1f} ms, "
        f"p99 {ordered[len(ordered) * 99 // 100]:.1f} ms; {at_once:.1%} of the first tokens reflected it"
    )


def main() -> int:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.organizations", description="See benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    effort = _QUICK if parser.parse_args().quick else _USUAL
    print(f"Stead on {os.cpu_count()} processors, {effort.rounds} rounds of {effort.seconds} s, medians\n")
    with ExitStack() as stop:
        directory = Path(stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-")))
        bench = Bench(directory, stop)
        for line in itertools.chain(throughput(bench, effort), lag(bench, effort)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
