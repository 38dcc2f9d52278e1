"""Workers of the custom-claims function are killed with SIGKILL: one at a time, and all at once, under load."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import jwt
import pytest

from provision import ServerAddresses
from stead import ManagementClient
from tests.support.claims_workers import workers_of
from tests.support.impersonation import (
    Application,
    Impersonation,
    Machine,
    client_token,
    cycle_works,
    exchange,
    make_machine,
)
from tests.support.lengths import length
from tests.support.processes import Deployment, ServiceProcess
from tests.support.waiting import eventually
from token_service.claims_function.last_records import MOST

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
]

EXCHANGES = length(short=96, long=10_000)
CLIENTS = 8
REPLICAS = length(short=2, long=3)
"""Of token-service, each with its workers."""
KIND = "access-token"
SCRIPT = """
const getCustomJwtClaims = ({ context }) => {
  const end = Date.now() + 10;
  while (Date.now() < end);  // long enough to be killed in the middle
  return { number: context.grant.subjectTokenContext.number };
};
"""
LOOP = "const getCustomJwtClaims = () => { for (;;); };"


@pytest.fixture(scope="module")
def token_settings() -> dict[str, str]:
    """Return two workers, and no use of a refresh token after its rotation."""
    return {"CLAIMS_WORKERS": "2", "REFRESH_TOKEN_GRACE_S": "0"}


@pytest.fixture(scope="module")
def deployment(
    own_addresses: ServerAddresses, token_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    logs = tmp_path_factory.mktemp("logs")
    with Deployment(own_addresses, logs, token_replicas=REPLICAS, token_settings=token_settings) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    return make_machine(management, impersonation)


@pytest.fixture
def save(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation, machine: Machine
) -> Iterator[Callable[..., int]]:
    """Saves a version of the function, and returns its number when every replica has it and its workers."""
    eventually(lambda: cycle_works(deployment, management, impersonation))
    for process in deployment.tokens:
        eventually(lambda process=process: client_token(process.url, machine).status_code == 200)  # type: ignore[misc]

    def save(script: str, **changes: Any) -> int:
        version: int = management.custom_claims.save(KIND, script, **changes).version
        for process in deployment.tokens:
            if script != LOOP:
                assert exchanged(management, impersonation, process, 0) == 0
        return version

    yield save
    management.custom_claims.delete(KIND)


def exchanged(management: ManagementClient, impersonation: Impersonation, process: ServiceProcess, number: int) -> Any:
    """Exchange a subject token of its own at a replica; return the claim that the function added, or None."""
    subject_token = management.subject_tokens.create(impersonation.user_id, {"number": number}).token
    answer = exchange(process.url, impersonation, subject_token)
    assert answer.status_code == 200, answer.text
    claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
    return claims.get("number")


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_and_wait(*killed_of: tuple[ServiceProcess, Sequence[int]]) -> None:
    """Kill workers of replicas at once; return when each replica has as many again."""
    before = {process: len(workers_of(process.pid)) for process, _ in killed_of}
    kill([pid for _, pids in killed_of for pid in pids])
    for process, pids in killed_of:
        eventually(
            lambda process=process, pids=pids: (  # type: ignore[misc]
                len(found := workers_of(process.pid)) == before[process] and not set(found) & set(pids)
            )
        )


@contextmanager
def repeatedly(action: Callable[[], None], *, pause_s: float) -> Iterator[None]:
    """Call a function repeatedly while the body runs, at least once."""
    over = threading.Event()

    def act() -> int:
        for times in itertools.count(1):
            action()
            if over.wait(pause_s):
                return times
        raise AssertionError

    with ThreadPoolExecutor(1) as thread:
        acts = thread.submit(act)
        try:
            yield
        finally:
            over.set()
    assert acts.result() > 0


def under_load(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation, machine: Machine
) -> list[Any]:
    """Exchange many tokens, and as many for a machine, which need no function; return the claims, by number."""
    with ThreadPoolExecutor(CLIENTS) as threads, ThreadPoolExecutor(2) as others:
        replicas = [deployment.tokens[number % len(deployment.tokens)] for number in range(EXCHANGES)]
        claims = threads.map(
            lambda number: exchanged(management, impersonation, replicas[number], number), range(EXCHANGES)
        )
        statuses = others.map(lambda process: client_token(process.url, machine).status_code, replicas)
        assert set(statuses) == {200}
        return list(claims)


def test_no_token_lacks_its_claims_because_a_worker_was_killed(
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    machine: Machine,
    save: Callable[..., int],
) -> None:
    version = save(SCRIPT)
    chance = random.Random(1)

    def kill_one() -> None:
        process = chance.choice(deployment.tokens)
        kill_and_wait((process, [chance.choice(workers_of(process.pid))]))

    with repeatedly(kill_one, pause_s=1):  # after the time limit of a call: none loses two workers
        claims = under_load(deployment, management, impersonation, machine)
    require_claims(claims, management, version, died=False)


def test_every_exchange_ends_although_all_workers_are_killed_at_once(
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    machine: Machine,
    save: Callable[..., int],
) -> None:
    version = save(SCRIPT)

    def kill_all() -> None:
        kill_and_wait(*((process, workers_of(process.pid)) for process in deployment.tokens))

    with repeatedly(kill_all, pause_s=0.3):
        claims = under_load(deployment, management, impersonation, machine)
    # A call that lost its second worker too is a failure of the function, and issues a token without claims.
    require_claims(claims, management, version, died=True)


def require_claims(claims: Sequence[Any], management: ManagementClient, version: int, *, died: bool) -> None:
    """Require the claim of each token, unless its call took too long, on a busy machine, or died."""
    without = [number for number, claim in enumerate(claims) if claim is None]
    assert [claim for claim in claims if claim is not None] == [n for n in range(EXCHANGES) if n not in without]

    def recorded() -> list[str]:
        return [each.reason for each in management.custom_claims.failures(KIND) if each.version == version]

    eventually(lambda: len(recorded()) == min(len(without), MOST))  # an answer does not wait for its entry
    assert set(recorded()) <= ({"time", "worker-died"} if died else {"time"})
    assert died or len(without) < EXCHANGES / 10


def test_a_refresh_whose_call_lost_its_workers_leaves_the_refresh_token_usable(
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    own_addresses: ServerAddresses,
    save: Callable[..., int],
) -> None:
    application, replica = Application(deployment, impersonation, own_addresses), deployment.tokens[0]
    save(SCRIPT.replace("context.grant.subjectTokenContext.number", "0"))
    refresh_token = application.tokens(replica)["refresh_token"]

    save(LOOP, block_issuance_on_error=True)
    with ThreadPoolExecutor(1) as thread:
        refreshed = thread.submit(application.refresh, refresh_token, replica)
        for _ in range(2):  # the call is repeated once
            time.sleep(0.5)
            kill_and_wait((replica, workers_of(replica.pid)))
        refused = refreshed.result()
    assert (refused.status_code, refused.json()["error"]) == (400, "access_denied")

    save(SCRIPT.replace("context.grant.subjectTokenContext.number", "0"))
    answer = application.refresh(refresh_token, replica)
    assert answer.status_code == 200, answer.text
    assert application.refresh(refresh_token, replica).status_code == 400  # now it was rotated
