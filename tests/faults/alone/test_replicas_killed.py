"""Of two replicas of every service under load, either is killed and the other keeps serving.

A request may fail only because of its own process: if that process is killed during the request, is down, or has just
started.
"""

import contextlib
import functools
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx2 as httpx
import pytest

from identity_common.http.routing import Service, service_for
from provision import ServerAddresses
from stead import Unavailable
from tests.support.agreement import require_agreement
from tests.support.impersonation import cycle_works, set_up
from tests.support.lengths import length
from tests.support.processes import Deployment, KeysEdge, ServiceProcess
from tests.support.random_writes import UserWriter, make_roles, writing
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROUNDS = length(short=2, long=8)
WRITERS = 3
PAUSE_S = length(short=100, long=20) / 1000
STRAY = 0.05
SEED = 20261123

LOST_ON_THE_WAY = {"ReadError", "RemoteProtocolError", "WriteError", "temporarily_unavailable"}
"""Errors of an established connection, whose process may have served the request before it died; and 503, after which
the token may be spent as well."""
BUSY = 0.01
"""Of the requests, at most, get 503 because the machine is busy."""

Replicas = Mapping[Service, Sequence[ServiceProcess]]


class Attempt(NamedTuple):
    """One request to one process.

    Attributes:
        failure: ``503``, or the name of the connection error; empty for an answer below 500.
    """

    process: ServiceProcess
    began: float
    ended: float
    failure: str


class Watch:
    """Records when each process was serving, and the outcome of every request."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._serving: dict[ServiceProcess, list[tuple[float, float]]] = {}

    def is_serving(self, process: ServiceProcess) -> bool:
        return any(until == float("inf") for _, until in self._serving.get(process, ()))

    def started_serving(self, process: ServiceProcess) -> None:
        """Record that the process is ready."""
        self._serving.setdefault(process, []).append((time.monotonic(), float("inf")))

    def stops_serving(self, process: ServiceProcess) -> None:
        """Record that the process is about to be killed."""
        if self.is_serving(process):
            began, _ = self._serving[process].pop()
            self._serving[process].append((began, time.monotonic()))

    def send(self, transport: httpx.BaseTransport, process: ServiceProcess, request: httpx.Request) -> httpx.Response:
        """Send a request to a process and record the outcome."""
        url = httpx.URL(process.url)
        request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
        began = time.monotonic()
        failure = "no answer"
        try:
            answer = transport.handle_request(request)
            answer.read()
            failure = str(answer.status_code) if answer.status_code >= 500 else ""
        except httpx.TransportError as error:
            failure = type(error).__name__
            raise
        finally:
            self.attempts.append(Attempt(process, began, time.monotonic(), failure))
        return answer

    def failures_while_serving(self) -> list[tuple[str, str, str]]:
        """Return the requests that failed although their process served throughout."""
        return [
            (attempt.process.package, attempt.process.url, attempt.failure)
            for attempt in self.attempts
            if attempt.failure
            and any(
                since <= attempt.began and attempt.ended <= until
                for since, until in self._serving.get(attempt.process, ())
            )
        ]


class Edge(httpx.BaseTransport):
    """Sends each request to a serving replica, or sometimes to one that may be down."""

    def __init__(self, watch: Watch, replicas: Replicas, *, seed: int, stray: float) -> None:
        self._watch = watch
        self._replicas = replicas
        self._random = random.Random(seed)
        self._stray = stray
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        service = service_for(request.url.path)
        assert service is not None
        serving = [process for process in self._replicas[service] if self._watch.is_serving(process)]
        choice = self._replicas[service] if self._random.random() < self._stray else serving
        return self._watch.send(self._inner, self._random.choice(choice), request)

    def close(self) -> None:
        self._inner.close()


class OneReplica(httpx.BaseTransport):
    """Sends each request to the same process."""

    def __init__(self, watch: Watch, process: ServiceProcess) -> None:
        self._watch = watch
        self._process = process
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._watch.send(self._inner, self._process, request)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture(scope="module")
def pairs(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas of every service; only the first of each is started."""
    with KeysEdge() as keys:
        deployment = Deployment(
            own_addresses,
            tmp_path_factory.mktemp("logs"),
            token_replicas=2,
            management_replicas=2,
            template_replicas=2,
            token_settings={"REVISION_WAIT_S": "20"},  # a relay that takes over from a killed one needs a moment
            jwks_url=keys.url,
        )
        keys.replicas = [process.url for process in deployment.tokens]
        try:
            deployment.start(only=[deployment.tokens[0], deployment.management, deployment.template])
            yield deployment
        finally:
            deployment.stop()


def _exchange(racer: httpx.Client, *, form: dict[str, str]) -> str:
    try:
        answer = racer.post("http://replica/oidc/token", data=form)
    except httpx.TransportError as error:
        return type(error).__name__
    return "won" if answer.status_code == 200 else str(answer.json()["error"])


def start_and_kill(watch: Watch, pairs: Deployment) -> None:
    """Start the missing replica of each service; kill it during its start, or either replica once both serve."""
    chance = random.Random(SEED)
    away = [pairs.tokens[1], pairs.managements[1], pairs.templates[1]]
    present = [pairs.tokens[0], pairs.managements[0], pairs.templates[0]]
    for round_ in range(ROUNDS):
        for process in away:
            process.start()
        if round_ % 4 == 3:
            time.sleep(chance.uniform(0.2, 2.0))
            for process in away:
                process.kill()
                process.start()
        for process in away:
            process.wait_until_ready()
            watch.started_serving(process)
        time.sleep(chance.uniform(0.5, 1.5))
        victims = [chance.choice(both) for both in zip(present, away, strict=True)]
        present = [one if one not in victims else other for one, other in zip(present, away, strict=True)]
        away = victims
        for process in chance.sample(victims, len(victims)):
            watch.stops_serving(process)
            process.kill()
            time.sleep(chance.uniform(0.0, 0.3))
        time.sleep(chance.uniform(0.5, 1.5))


class Load:
    """Clients that keep the replicas busy: writers, racers for subject tokens, visitors.

    Attributes:
        management: Sends to serving replicas only.
        races: Number of races with a winner, and of races whose winner got no answer.
    """

    def __init__(self, watch: Watch, pairs: Deployment) -> None:
        self.races: Counter[str] = Counter()
        self._watch = watch
        self._pairs = pairs
        self._seeds = itertools.count(SEED)
        self._over = threading.Event()
        self._replicas: Replicas = {
            "token": pairs.tokens,
            "management": pairs.managements,
            "template": pairs.templates,
        }
        self.management = pairs.management_client(self._edge(stray=0))
        self.impersonation = set_up(self.management)
        role_ids = make_roles(self.management, self.impersonation)
        self.writers = [
            UserWriter(next(self._seeds), pairs.management_client(self._edge()), role_ids) for _ in range(WRITERS)
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the load while the body runs; raise the first error of the load at the end."""
        with ThreadPoolExecutor(2) as pool, writing(self.writers, pause_s=PAUSE_S):
            busy = [pool.submit(self._keep_racing), pool.submit(self._keep_visiting)]
            try:
                yield
            finally:
                self._over.set()
        for each in busy:
            each.result()

    def _edge(self, stray: float = STRAY) -> Edge:
        return Edge(self._watch, self._replicas, seed=next(self._seeds), stray=stray)

    def _keep_racing(self) -> None:
        with contextlib.ExitStack() as open_clients:
            minter = open_clients.enter_context(self._pairs.management_client(self._edge()))
            racers = [
                open_clients.enter_context(
                    httpx.Client(transport=OneReplica(self._watch, process), timeout=30, auth=self.impersonation.auth)
                )
                for process in self._pairs.tokens * 2
            ]
            pool = open_clients.enter_context(ThreadPoolExecutor(len(racers)))
            while not self._over.wait(PAUSE_S):
                with contextlib.suppress(Unavailable):
                    form = self.impersonation.form(minter.subject_tokens.create(self.impersonation.user_id).token)
                    outcomes = Counter(pool.map(functools.partial(_exchange, form=form), racers))
                    assert outcomes["won"] <= 1, outcomes
                    # Without a visible winner, its answer was lost on the way.
                    assert outcomes["won"] or outcomes.keys() & LOST_ON_THE_WAY, outcomes
                    self.races["won" if outcomes["won"] else "lost"] += 1

    def _keep_visiting(self) -> None:
        with httpx.Client(transport=self._edge(), timeout=30) as visitor:
            for path in itertools.cycle(["/oidc/jwks", "/api/organizations", "/api/status"]):
                with contextlib.suppress(httpx.TransportError):
                    visitor.get(f"http://edge{path}")
                if self._over.wait(PAUSE_S):
                    return


async def test_starting_and_killing_replicas_fails_only_the_requests_sent_to_them(
    own_addresses: ServerAddresses, pairs: Deployment
) -> None:
    watch = Watch()
    for process in (pairs.tokens[0], pairs.management, pairs.template):
        watch.started_serving(process)
    load = Load(watch, pairs)
    with load.running():
        start_and_kill(watch, pairs)

    failures = watch.failures_while_serving()
    assert {failure for *_, failure in failures} <= {"503"}, failures
    assert len(failures) <= BUSY * len(watch.attempts), failures
    assert {attempt.failure for attempt in watch.attempts if attempt.failure.isdigit()} <= {"503"}
    assert load.races["won"] > load.races["lost"]
    await require_agreement(own_addresses, load.management, load.writers)
    for process in pairs.processes:
        if not watch.is_serving(process):
            process.start()
            process.wait_until_ready()
            watch.started_serving(process)
    eventually(lambda: cycle_works(pairs, load.management, load.impersonation))
