"""Fixtures of the modules about embedded servers."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from all_in_one.embedded import EmbeddedServers
from tests.support.embedded_servers import Cluster, make_home


@pytest.fixture
def home() -> Iterator[Path]:
    path = make_home()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Shared servers, for tests that leave them unchanged."""
    home = make_home()
    started = Cluster(home)
    yield started
    started.servers.delete()
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """An initialized data directory, for tests that start on it, or fail to, and leave it intact."""
    home = make_home()
    servers = EmbeddedServers(home / "servers", sync=False)
    servers.start()
    servers.stop()
    yield home / "servers"
    servers.delete()
    shutil.rmtree(home)
