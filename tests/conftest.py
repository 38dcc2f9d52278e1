"""Real servers for every test that needs one: from the environment, or else embedded."""

import asyncio
import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
import uvloop
from hypothesis.internal.conjecture import providers

from all_in_one.embedded import EmbeddedServers, external_or_embedded
from identity_common.telemetry.logs import configure_logs
from provision import ServerAddresses
from tests.support.containers import containers
from tests.support.hashing_cost import cheap_hashing_cost
from tests.support.lengths import IS_LONG, length
from tests.support.running_stack import RunningStack
from tests.support.waiting import WAIT_S
from tests.support.world import World
from tests.support.written import Written
from token_service.sign_in import flow

# What the long form finds by chance becomes an example of its test; a change is not judged by chance.
hypothesis.settings.register_profile("tests", deadline=None, derandomize=not IS_LONG)
hypothesis.settings.load_profile("tests")
if not IS_LONG:
    # Hypothesis would also choose among the constants of the modules imported so far: other examples at each change of
    # the source, and for each order of the tests.
    providers._get_local_constants = lambda: providers._local_constants

# The services run on it, and it saves an eighth of the CPU time.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


_EXTERNAL = ("POSTGRES_URL", "REDIS_URL", "NATS_URL")
_FAULTS = Path(__file__).parent / "faults"
_ALONE = _FAULTS / "alone"
_MOST_WORKERS = 4
"""Each worker starts three servers and the whole system."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--containers", action="store_true", help="start PostgreSQL, Redis and NATS in containers")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers for ``-n auto``: one per core, and ``MORE_WORKERS``; none if servers are shared."""
    are_shared = config.getoption("--containers") or not os.environ.keys().isdisjoint(_EXTERNAL)
    return 0 if are_shared else min(os.cpu_count() or 1, _MOST_WORKERS) + int(os.environ.get("MORE_WORKERS", "0"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take longest, and mostly wait; end with those whose processes stay to the end."""
    items.sort(key=lambda item: 0 if _ALONE in item.path.parents else 2 if _FAULTS in item.path.parents else 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect no garbage among the modules and tests, which stay: it took 6 % of the CPU time."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests with the markers ``slow``, ``heavy`` and ``clients`` more time than pyproject.toml gives the others.

    A limit of a test, or of its module, stays.
    """
    if item.get_closest_marker("timeout"):
        return
    if item.get_closest_marker("slow"):
        item.add_marker(pytest.mark.timeout(length(short=600, long=3600)))
    elif item.get_closest_marker("heavy") or item.get_closest_marker("clients"):  # one of which installs the clients
        item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of this test run: data, logs, credentials."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="session", autouse=True)
def logs(run_directory: Path) -> Iterator[Path]:
    """Collect the log of all services in one file, from the first start to the last stop."""
    path = run_directory / "services.log"
    with path.open("a") as stream:
        configure_logs(service="tests", stream=stream)
        yield path
        configure_logs(service="tests")


@pytest.fixture(scope="session", autouse=True)
def hashing_cost() -> Iterator[None]:
    """Hash passwords at next to no cost, except where a module says otherwise."""
    with cheap_hashing_cost():
        yield


@pytest.fixture(scope="session", autouse=True)
def groups_wait() -> Iterator[None]:
    """Let sign-ins at a provider wait for their memberships, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "GROUPS_WAIT_S", WAIT_S)
        yield


@pytest.fixture(scope="session")
def servers(run_directory: Path, request: pytest.FixtureRequest) -> Iterator[ServerAddresses]:
    """PostgreSQL, Redis and NATS: containers if asked for, else ``*_URL`` in the environment, else embedded."""
    with ExitStack() as started:
        environment: Mapping[str, str] = os.environ
        if request.config.getoption("--containers"):
            environment = started.enter_context(containers(run_directory))
        servers = external_or_embedded(environment, run_directory / "servers")
        if isinstance(servers, EmbeddedServers):
            servers = EmbeddedServers(run_directory / "servers", sync=False)
        started.callback(servers.delete if isinstance(servers, EmbeddedServers) else servers.stop)
        yield servers.start()


@pytest.fixture(scope="session")
def stack(servers: ServerAddresses, run_directory: Path) -> Iterator[RunningStack]:
    """The whole system on one address, in this process, seeded.

    At the end no secret of the run may be found in logs, answers or stores (CVE-2023-46255).
    """
    stack = RunningStack(servers, run_directory)
    try:
        stack.start()
        yield stack
        assert Written(stack, run_directory).secrets_found() == []
    finally:
        stack.stop()


@pytest.fixture(scope="session")
def world(stack: RunningStack) -> Iterator[World]:
    """A client of every kind, a resource and users, on the running stack."""
    world = World(stack)
    try:
        yield world
    finally:
        world.close()
