"""A NATS cluster of three loses servers under load: no acknowledged change is lost, and no request goes unanswered."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx2 as httpx
import pytest

from all_in_one.embedded import EmbeddedServers
from identity_common.wire.events import STREAM_EVENTS, STREAM_INTERNAL, STREAM_STATE
from provision import ServerAddresses, stored_passwords
from stead import ManagementClient, Unavailable
from tests.support.agreement import require_agreement
from tests.support.impersonation import Impersonation, Machine, client_token, cycle_works, exchange, make_machine
from tests.support.lengths import length
from tests.support.nats_cluster import MEMBERS, Member, NatsCluster
from tests.support.processes import Deployment
from tests.support.random_writes import UserWriter, make_roles, writing
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

CLIENTS: Final = 3
PAUSE_S: Final = 0.05
WITHIN_S: Final = 180
"""JetStream takes up to 20 s, or 45 s, until a stream that copies others resumes after their leaders were lost."""
SEED: Final = 20261127
STREAMS: Final = (STREAM_INTERNAL, STREAM_EVENTS, STREAM_STATE)[: length(short=1, long=3)]


class Load:
    """Subject tokens that are minted and exchanged at two replicas while the body of ``running`` runs."""

    def __init__(self, deployment: Deployment, management: ManagementClient, impersonation: Impersonation) -> None:
        self._deployment = deployment
        self._management = management
        self._impersonation = impersonation
        self._over = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.without_retry_after: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._repeat)
            try:
                yield
            finally:
                self._over.set()
        running.result()

    def _repeat(self) -> None:
        while not self._over.wait(PAUSE_S):
            for process in self._deployment.tokens[:-1]:
                try:
                    subject_token = self._management.subject_tokens.create(self._impersonation.user_id).token
                except Unavailable as unavailable:
                    assert unavailable.retry_after is not None
                    continue
                self._count(exchange(process.url, self._impersonation, subject_token))

    def _count(self, answer: httpx.Response) -> None:
        self.statuses[answer.status_code] += 1
        if answer.status_code == 503 and int(answer.headers.get("Retry-After", 0)) < 1:
            self.without_retry_after.append(answer.text)


class System:
    """The services on a cluster.

    Attributes:
        cluster: The cluster.
        deployment: The services.
        works: Whether changes reach every replica.
    """

    def __init__(
        self, cluster: NatsCluster, deployment: Deployment, machine: Machine, works: Callable[[], bool]
    ) -> None:
        self.cluster = cluster
        self.deployment = deployment
        self._machine = machine
        self._works = works

    def recovers(self) -> None:
        """Wait until changes reach every replica."""
        eventually(self._works, within_s=WITHIN_S)

    def issues_tokens(self) -> None:
        for process in self.deployment.tokens[:-1]:
            assert client_token(process.url, self._machine).status_code == 200

    @property
    def leader(self) -> Member:
        """The leader of the stream of management-service's changes."""
        return self.cluster.leader_of(STREAM_INTERNAL)


def leader_killed(system: System) -> None:
    """Changes go on without it, and with it again."""
    leader = system.leader
    leader.kill()
    system.issues_tokens()
    system.recovers()
    leader.start()


def leader_frozen_and_thawed(system: System) -> None:
    with system.leader.frozen():
        system.issues_tokens()
        system.recovers()


def follower_killed(system: System) -> None:
    leader = system.leader
    follower = next(member for member in system.cluster.members if member is not leader)
    follower.kill()
    system.issues_tokens()
    system.recovers()
    follower.start()


def two_of_three_killed_and_returned(system: System) -> None:
    """Without a majority nothing is published, and tokens are issued from what is known."""
    killed = system.cluster.members[:2]
    for member in killed:
        member.kill()
    for _ in range(5):
        system.issues_tokens()
    for member in killed:
        member.start()


def planned_step_down(system: System) -> None:
    for _ in range(3):
        system.cluster.step_down()
        system.recovers()


def leader_killed_twice(system: System) -> None:
    for _ in range(2):
        leader_killed(system)


def service_starts_while_the_first_server_is_dead(system: System) -> None:
    started = system.deployment.tokens[-1]
    started.kill()
    leader = system.leader
    leader.kill()
    started.start()
    started.wait_until_ready()
    system.recovers()
    leader.start()


FAULTS: Final = (
    planned_step_down,
    leader_killed,
    leader_frozen_and_thawed,
    follower_killed,
    two_of_three_killed_and_returned,
    leader_killed_twice,
    service_starts_while_the_first_server_is_dead,
)[: length(short=1, long=7)]


@pytest.fixture(scope="module")
def cluster(own_directory: Path) -> Iterator[NatsCluster]:
    with NatsCluster(own_directory / "cluster", stored_passwords(own_directory)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own_addresses(own_servers: EmbeddedServers, cluster: NatsCluster) -> ServerAddresses:
    """The addresses of the embedded servers, with the cluster as the bus."""
    addresses = own_servers.start()
    own_servers.nats.stop()
    return cluster.of(addresses)


@pytest.fixture(scope="module")
def deployment(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(own_addresses, tmp_path_factory.mktemp("logs"), token_replicas=3)
    for process in deployment.processes:
        process.configure(NATS_REPLICAS=str(MEMBERS))
    with deployment:
        yield deployment


@pytest.mark.parametrize("fault", FAULTS)
def test_no_acknowledged_change_is_lost(
    fault: Callable[[System], None],
    cluster: NatsCluster,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    machine = make_machine(management, impersonation)
    system = System(cluster, deployment, machine, lambda: cycle_works(deployment, management, impersonation))
    system.recovers()
    cluster.step_down()
    role_ids = make_roles(management, impersonation)
    writers = [UserWriter(SEED + number, management, role_ids) for number in range(CLIENTS)]
    load = Load(deployment, management, impersonation)
    with writing(writers, pause_s=PAUSE_S), load.running():
        fault(system)
    system.recovers()
    assert not [writer for writer in writers if writer.unanswered], "every change must be answered"
    assert (set(load.statuses) <= {200, 503}, load.without_retry_after) == (True, [])
    asyncio.run(require_agreement(own_addresses, management, writers))


@pytest.mark.parametrize("stream", STREAMS)
def test_changes_are_enforced_after_the_loss_of_a_leader(
    stream: str,
    cluster: NatsCluster,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    record_property: Callable[[str, object], None],
) -> None:
    """Every replica of token-service answers from what includes a change of each source; how long that takes is told.

    A leader may take the leader of a copy with it: nothing waits for the copy.
    """
    machine = make_machine(management, impersonation)
    assert cycle_works(deployment, management, impersonation)
    cluster.step_down()
    leader = cluster.leader_of(stream)
    leader.kill()
    killed_at = time.monotonic()
    written = {
        "management": lambda: management.users.create(name="After the loss"),
        "template": lambda: management.organization_permissions.create(f"after:{time.monotonic_ns()}"),
    }
    for source, write in written.items():
        eventually(lambda write=write: _answered(write), within_s=WITHIN_S)  # type: ignore[misc]
        awaited = next(each for each in (management.last_revision or "").split(", ") if each.startswith(source))
        for process in deployment.tokens:
            eventually(partial(_includes, process.url, machine, awaited), within_s=WITHIN_S)
        took_s = round(time.monotonic() - killed_at, 1)
        record_property(f"{source}_enforced_s", took_s)
        print(f"leader of {stream} killed: a change of {source} was enforced everywhere after {took_s} s")  # noqa: T201
    leader.start()


def _answered(write: Callable[[], object]) -> bool:
    try:
        write()
    except Unavailable:
        return False
    return True


def _includes(url: str, machine: Machine, awaited: str) -> bool:
    answer = client_token(url, machine, revision=awaited)
    assert answer.status_code in {200, 503}, answer.text
    return answer.status_code == 200
