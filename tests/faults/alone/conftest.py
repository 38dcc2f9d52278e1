"""Servers that these tests may kill, and the services as processes on them, new for every module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.impersonation import Impersonation, set_up
from tests.support.processes import Deployment


@pytest.fixture(scope="module")
def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of the servers."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def own_servers(own_directory: Path) -> Iterator[EmbeddedServers]:
    servers = EmbeddedServers(own_directory, sync=False)
    try:
        yield servers
    finally:
        servers.delete()


@pytest.fixture(scope="module")
def own_addresses(own_servers: EmbeddedServers) -> ServerAddresses:
    return own_servers.start()


@pytest.fixture(scope="module")
def token_settings() -> dict[str, str]:
    """Return settings of token-service besides its addresses; a module may override them."""
    return {}


@pytest.fixture(scope="module")
def deployment(
    own_addresses: ServerAddresses, token_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The services as processes: three replicas of token-service."""
    logs = tmp_path_factory.mktemp("logs")
    with Deployment(own_addresses, logs, token_replicas=3, token_settings=token_settings) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def management(deployment: Deployment) -> Iterator[ManagementClient]:
    with deployment.management_client() as client:
        yield client


@pytest.fixture(scope="module")
def impersonation(management: ManagementClient) -> Impersonation:
    return set_up(management)
