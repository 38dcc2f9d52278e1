"""The fixtures of the fault tests: servers that a test may kill, and the services as processes on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.impersonation import Impersonation, set_up
from tests.support.processes import Deployment


def deployment_fixtures(scope: Literal["session", "module"]) -> dict[str, Any]:
    """Return the fixtures by name, for the namespace of a conftest module."""

    @pytest.fixture(scope=scope)
    def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the data directory of the servers."""
        return tmp_path_factory.mktemp("servers")

    @pytest.fixture(scope=scope)
    def own_servers(own_directory: Path) -> Iterator[EmbeddedServers]:
        servers = EmbeddedServers(own_directory, sync=False)
        try:
            yield servers
        finally:
            servers.delete()

    @pytest.fixture(scope=scope)
    def own_addresses(own_servers: EmbeddedServers) -> ServerAddresses:
        return own_servers.start()

    @pytest.fixture(scope=scope)
    def token_settings() -> dict[str, str]:
        """Return settings of token-service besides its addresses; a module may override them."""
        return {}

    @pytest.fixture(scope=scope)
    def deployment(
        own_addresses: ServerAddresses, token_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Deployment]:
        """The services as processes: three replicas of token-service."""
        with Deployment(
            own_addresses,
            tmp_path_factory.mktemp("logs"),
            token_replicas=3,
            token_settings=token_settings,
            management_settings={"OUTGOING_NETWORKS": "127.0.0.0/8"},  # of providers in tests
        ) as deployment:
            yield deployment

    @pytest.fixture(scope=scope)
    def management(deployment: Deployment) -> Iterator[ManagementClient]:
        with deployment.management_client() as client:
            yield client

    @pytest.fixture(scope=scope)
    def impersonation(management: ManagementClient) -> Impersonation:
        return set_up(management)

    fixtures = (own_directory, own_servers, own_addresses, token_settings, deployment, management, impersonation)
    return {fixture.__name__: fixture for fixture in fixtures}
