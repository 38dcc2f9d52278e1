"""``python -m benchmarks``: start everything, measure, print. ``--only`` selects parts; see README.md."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from all_in_one.embedded import EmbeddedServers
from benchmarks import (
    audit_logs,
    audit_trail,
    claims_function,
    endless_scripts,
    fan_out,
    middleware,
    moving_in,
    not_valid,
    rejection,
    replica,
    verifier,
)
from benchmarks.audit_trail import Measure
from benchmarks.load import Plan
from benchmarks.many_users import ManyUsers
from benchmarks.measure import LoadFailed, Measurement, measure, under_load
from benchmarks.report import Report
from benchmarks.rounds import Key, Round, measure_round
from benchmarks.scenarios import (
    FLOOR,
    MANAGEMENT_API,
    RESOURCE,
    SCENARIOS,
    Mint,
    Stage,
    list_of_users,
    make_parties,
    needs_subject_tokens,
)
from stead import client_credentials, exchange_subject_token
from tests.support.processes import Deployment, ServiceProcess

_CONNECTIONS: Final = (1, 16, 64)
_WARM_UP_PASSES: Final = {1: 200, 16: 1000, 64: 1000}
_LISTS: Final = 500
_ENDLESS_PASSES: Final = 1_000_000_000


class Effort(msgspec.Struct, frozen=True):
    """How long and how much to measure.

    Attributes:
        rounds: Measurements of every scenario.
        seconds: Approximate duration of each.
        members: Members of an edited role.
        events: Events for the relay.
        users: Users in the directory of a token-service replica.
        listed_users: Users in the long list.
        entries: Entries of the audit trail.
        stored_entries: Entries that are stored as they arrive.
        ends: Impersonations that are ended, and sign-ins without a group that gave a role.
    """

    rounds: int
    seconds: float
    members: tuple[int, ...]
    events: int
    users: int
    listed_users: int
    entries: int
    stored_entries: int
    ends: int


_USUAL: Final = Effort(
    rounds=5,
    seconds=1.5,
    members=fan_out.MEMBERS,
    events=fan_out.EVENTS,
    users=100_000,
    listed_users=1_000_000,
    entries=10_000_000,
    stored_entries=100_000,
    ends=1_000,
)
_QUICK: Final = Effort(
    rounds=2,
    seconds=0.6,
    members=fan_out.MEMBERS[:2],
    events=20_000,
    users=10_000,
    listed_users=100_000,
    entries=200_000,
    stored_entries=20_000,
    ends=100,
)


class Bench:
    """The running servers, services and floor, and the requests to them.

    Attributes:
        addresses: The URLs of the servers.
        deployment: The services, one process each.
        stage: The targets and parties of the requests.
        management: A client of the Management API.
        fan_out: The benchmark of template-service.
        postgres: Process id of PostgreSQL.
    """

    def __init__(self, directory: Path, stop: ExitStack) -> None:
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        self.addresses = servers.start()
        self.deployment = Deployment(
            self.addresses,
            directory,
            token_settings={"PENDING_REQUESTS_PER_ADDRESS": "1000000"},  # all sign-ins come from one address
            management_settings={"OUTGOING_NETWORKS": "127.0.0.0/8"},  # of the provider
            launcher=(),
        )
        stop.callback(self.deployment.stop)
        self.deployment.start()
        floor = ServiceProcess(
            "benchmarks.floor", {"REDIS_URL": self.addresses.token_redis_url}, directory / "floor.log"
        )
        stop.callback(floor.stop)
        floor.start()
        floor.wait_until_ready()
        self.management = management = stop.enter_context(self.deployment.management_client())
        parties = make_parties(management)
        self.stage = Stage(
            parties=parties,
            token_port=self.deployment.tokens[0].port,
            management_port=self.deployment.management.port,
            floor_port=floor.port,
            access_token=client_credentials(
                self.deployment.tokens[0].url,
                client_id=parties.backend.id,
                client_secret=parties.backend.secret,
                resource=MANAGEMENT_API,
                scope="all subject-tokens",
            ).access_token,
        )
        self._mint = Mint(self.addresses.management_redis_url, parties)
        stop.callback(self._mint.close)
        self._directory = directory
        self._services = [process.pid for process in self.deployment.processes]
        self._floor = [floor.pid]
        self.postgres = servers.postgres.pid
        self.stores = [server.pid for server in (servers.postgres, servers.valkey, servers.nats)]
        self.fan_out = fan_out.FanOutBench(
            self.addresses, management, own=[self.deployment.template.pid], stores=self.stores
        )

    def measure(self, scenario: str, connections: int, passes: int, *, per_second: float = 0) -> Measurement:
        """Run a number of passes of a scenario, at ``per_second`` or, if that is 0, as fast as possible."""
        subject_tokens = self._mint(passes) if needs_subject_tokens(scenario) else []
        plan = Plan(SCENARIOS[scenario](self.stage), connections, passes, subject_tokens, per_second)
        return measure(plan, own=self._floor if scenario == FLOOR else self._services, stores=self.stores)

    @contextmanager
    def without_audit(self) -> Iterator[Measure]:
        """Run a replica of token-service that records no exchanges; yield a function that measures exchanges at it."""
        replica = ServiceProcess(
            "benchmarks.without_audit", self.deployment.tokens[0].environment, self._directory / "without-audit.log"
        )
        replica.start()
        try:
            replica.wait_until_ready()
            stage = msgspec.structs.replace(self.stage, token_port=replica.port)
            own = [*self._services[1:], replica.pid]  # the other replica has nothing to do

            def measured(connections: int, passes: int) -> Measurement:
                plan = Plan(SCENARIOS["token exchange"](stage), connections, passes, self._mint(passes))
                return measure(plan, own=own, stores=self.stores)

            yield measured
        finally:
            replica.stop()

    def exchanged(self) -> str:
        """Return the access token for a new subject token."""
        application = self.stage.parties.application
        return exchange_subject_token(
            self.deployment.tokens[0].url,
            client_id=application.id,
            client_secret=application.secret,
            subject_token=self._mint(1)[0],
            resource=RESOURCE,
        ).access_token

    def machine_token(self) -> None:
        """Request a token of a machine-to-machine client.

        Raises:
            stead.IdentityError: It is refused.
        """
        backend = self.stage.parties.backend
        client_credentials(
            self.deployment.tokens[0].url,
            client_id=backend.id,
            client_secret=backend.secret,
            resource=RESOURCE,
            scope="read:orders",
        )

    def requesting_machine_tokens(self, connections: int) -> AbstractContextManager[None]:
        """Request tokens of a machine-to-machine client in the background, and ignore the answers."""
        return under_load(Plan(SCENARIOS["client credentials"](self.stage), connections, _ENDLESS_PASSES))

    def list_users(self, connections: int) -> Measurement:
        """Read the list of users repeatedly."""
        plan = Plan(list_of_users(self.stage), connections, _LISTS)
        return measure(plan, own=self._services, stores=self.stores)


def requests(bench: Bench, effort: Effort) -> Iterator[str]:
    """Warm up, then measure all scenarios in every round, so that noise affects all of them alike."""
    keys: list[Key] = [(scenario, connections) for connections in _CONNECTIONS for scenario in SCENARIOS]
    rates = {key: bench.measure(*key, _WARM_UP_PASSES[key[1]]).rate for key in keys}
    rounds: list[Round] = []
    for number in range(effort.rounds):
        rounds.append(measure_round(bench.measure, keys, rates, effort.seconds))
        print(f"round {number + 1} of {effort.rounds}", file=sys.stderr, flush=True)
    report = Report(rounds)
    yield f"{effort.rounds} rounds of {effort.seconds} s, medians\n"
    yield from report.lines()
    yield ""
    yield from report.targets()
    yield f"the load generator used at most {report.busiest_load():.0%} of one processor"


def fan_out_of_permissions(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure how long it takes to publish the effects of an edited role."""
    return fan_out.lines(bench.fan_out, members=effort.members, rounds=3, events=effort.events)


def overhead_of_middleware(bench: Bench, _: Effort) -> Iterator[str]:
    """Measure the cost of the verifier in an API that receives tokens."""
    token_service, backend = bench.deployment.tokens[0], bench.stage.parties.backend
    issued = client_credentials(
        token_service.url, client_id=backend.id, client_secret=backend.secret, resource=RESOURCE, scope="read:orders"
    )
    return middleware.lines(
        access_token=issued.access_token,
        issuer=bench.deployment.issuer,
        audience=RESOURCE,
        jwks_url=f"{token_service.url}/oidc/jwks",
    )


def look_up_in_the_feed(_: Bench, __: Effort) -> Iterator[str]:
    """Measure the not-valid feed in a verifier."""
    return not_valid.lines()


def verifier_behind_nginx(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure requests through nginx with a check by the verifier process, and without."""
    issuer = verifier.Issuer(
        name=bench.deployment.issuer, url=bench.deployment.tokens[0].url, client=bench.stage.parties.backend
    )
    with tempfile.TemporaryDirectory(prefix="identity-bench-nginx-") as directory:
        yield from verifier.lines(issuer, Path(directory), rounds=effort.rounds, seconds=effort.seconds)


def cost_of_the_claims_function(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure an exchange with a custom-claims function, and without."""
    function = claims_function.Function(bench.management, access_token=bench.exchanged)
    return claims_function.lines(
        function,
        partial(bench.measure, "token exchange"),
        token_service=bench.deployment.tokens[0].pid,
        rounds=effort.rounds,
        seconds=effort.seconds,
    )


def tokens_beside_endless_scripts(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure exchanges without a script while other token requests call an endless one."""
    return endless_scripts.lines(
        endless_scripts.Function(bench.management, machine_token=bench.machine_token),
        partial(bench.measure, "token exchange"),
        bench.requesting_machine_tokens,
        rounds=effort.rounds,
        seconds=effort.seconds,
    )


def start_of_replica(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure the start of a token-service replica; flushes Redis."""
    return replica.lines(bench.addresses, bench.deployment.tokens[0], users=effort.users)


def long_list(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure a page of 100 out of a million users."""

    async def add_users() -> None:
        async with ManyUsers(bench.addresses.management_database_url) as many_users:
            await many_users.add(effort.listed_users)

    asyncio.run(add_users())
    for connections in (1, 16):
        bench.list_users(connections)  # warms up
        found = bench.list_users(connections)
        yield (
            f"list of 100 of {effort.listed_users:,} users at {connections}: {found.rate:,.0f} req/s, "
            f"p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms, {found.own_cpu_us:,.0f} µs of our own CPU and "
            f"{found.store_cpu_us:,.0f} µs of the stores"
        )


def cost_of_the_audit_trail(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure an exchange with the audit trail, and without, and how fast entries are stored."""
    with bench.without_audit() as without:
        with_trail = partial(bench.measure, "token exchange")
        yield from audit_trail.costs(with_trail, without, rounds=effort.rounds, seconds=effort.seconds)
    yield from audit_trail.storing(
        bench.addresses.token_nats_url,
        bench.addresses.management_database_url,
        management=bench.deployment.management.pid,
        postgres=bench.postgres,
        entries=effort.stored_entries,
    )


def time_to_rejection(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure how soon after an acknowledged change a token is refused."""
    place = rejection.Place(
        addresses=bench.addresses,
        token_url=bench.deployment.tokens[0].url,
        issuer=bench.deployment.issuer,
        parties=bench.stage.parties,
    )
    members = (1, *effort.members)
    return rejection.lines(place, bench.management, ends=effort.ends, members=members, rounds=effort.rounds)


def pages_of_the_audit_trail(bench: Bench, effort: Effort) -> Iterator[str]:
    """Measure a page of the audit trail by every filter."""
    return audit_logs.lines(
        bench.addresses.management_database_url,
        bench.deployment.management.url,
        bench.stage.access_token,
        entries=effort.entries,
    )


def imports_of_users(bench: Bench, _: Effort) -> Iterator[str]:
    """Measure how fast users are moved in."""
    own = [bench.deployment.management.pid]
    return moving_in.lines(bench.management, own=own, stores=bench.stores, rounds=moving_in.ROUNDS)


_PARTS: Final[Mapping[str, Callable[[Bench, Effort], Iterator[str]]]] = {
    "requests": requests,
    "fan-out": fan_out_of_permissions,
    "middleware": overhead_of_middleware,
    "not-valid": look_up_in_the_feed,
    "verifier": verifier_behind_nginx,
    "claims-function": cost_of_the_claims_function,
    "endless-scripts": tokens_beside_endless_scripts,
    "audit-trail": cost_of_the_audit_trail,
    "rejection": time_to_rejection,
    "moving-in": imports_of_users,
    "long-list": long_list,
    "audit-logs": pages_of_the_audit_trail,
    "replica": start_of_replica,
}
_USUAL_PARTS: Final = (
    "requests",
    "fan-out",
    "middleware",
    "not-valid",
    "verifier",
    "claims-function",
    "endless-scripts",
    "audit-trail",
    "rejection",
    "moving-in",
    "replica",
)


def main() -> int:
    """Return the exit status: 0 even if a target is missed, which means little on a busy machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="See benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, fewer users")
    parser.add_argument(
        "--only", nargs="+", choices=_PARTS, default=_USUAL_PARTS, metavar="PART", help=", ".join(_PARTS)
    )
    options = parser.parse_args()
    effort = _QUICK if options.quick else _USUAL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes are stopped
    with ExitStack() as stop:
        directory = stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-"))
        bench = Bench(Path(directory), stop)
        print(f"Stead on {os.cpu_count()} processors, {Path(sys.executable).resolve()}")  # not all Pythons are equal
        try:
            for name in (name for name in _PARTS if name in options.only):
                print(f"\n{name}", flush=True)
                for line in _PARTS[name](bench, effort):
                    print(line, flush=True)
        except LoadFailed as failure:
            print(f"benchmarks: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
