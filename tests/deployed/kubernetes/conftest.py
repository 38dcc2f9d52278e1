"""The overlay ``local``, installed once for all modules of this folder."""

from collections.abc import Iterator

import pytest

from stead import ManagementClient
from tests.support.cluster import first_client, installed
from tests.support.impersonation import Impersonation, set_up


@pytest.fixture(scope="package")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the edge."""
    with installed(tmp_path_factory.mktemp("secrets")) as edge:
        yield edge.url


@pytest.fixture(scope="package")
def management(system: str) -> Iterator[ManagementClient]:
    with first_client(system) as client:
        yield client


@pytest.fixture(scope="package")
def impersonation(management: ManagementClient) -> Impersonation:
    return set_up(management)
