"""PostgreSQL has connections for as many replicas as the autoscalers of deploy/k8s may start."""

import re

import msgspec
import pytest

from identity_common.stores import lookups
from identity_common.stores.reader import CONDITION_CONNECTIONS
from management_service.parts import connections as management_connections
from management_service.settings import Settings as ManagementSettings
from template_service.settings import Settings as TemplateSettings
from tests.support.database_connections import documented_connections, spare_connections
from tests.support.manifests import ROOT, examples_in_the_documents, of_kind, pods
from token_service.settings import Settings as TokenSettings

pytestmark = pytest.mark.manifests

LOCAL, PRODUCTION = "deploy/k8s/overlays/local", "deploy/k8s/overlays/production"
HIGHLY_AVAILABLE = "deploy/k8s/overlays/highly-available"
SETTINGS = {
    "token-service": TokenSettings,
    "management-service": ManagementSettings,
    "template-service": TemplateSettings,
}
DEFAULT_POOLS = {
    service: field.default
    for service, settings in SETTINGS.items()
    for field in msgspec.structs.fields(settings)
    if field.name == "database_connections"
}


def needed(overlay: str) -> int:
    """Return how many connections all replicas have at most, with one more of each service while it rolls out."""
    of_each = documented_connections()
    scalers = [each["spec"] for each in of_kind(overlay, "HorizontalPodAutoscaler")]
    most = {each["scaleTargetRef"]["name"]: each["maxReplicas"] + 1 for each in scalers}
    assert most.keys() == {*of_each, "console"}  # which has no database
    return sum(row.total * most[service] for service, row in of_each.items()) + spare_connections()


def test_the_page_on_sizing_has_the_pools_that_the_code_has() -> None:
    rows = documented_connections()
    assert {service: row.pool for service, row in rows.items()} == DEFAULT_POOLS
    assert {service: row.lookups for service, row in rows.items()} == {
        "token-service": 0,
        "management-service": lookups._CONNECTIONS,
        "template-service": lookups._CONNECTIONS,
    }
    assert {service: row.searches for service, row in rows.items()} == {
        "token-service": 0,
        "management-service": management_connections._SEARCH_CONNECTIONS,
        "template-service": 0,
    }
    assert {service: row.conditions for service, row in rows.items()} == {
        "token-service": 0,
        "management-service": CONDITION_CONNECTIONS,
        "template-service": CONDITION_CONNECTIONS,
    }
    assert [row.total for row in rows.values()] == [sum(row[:-1]) for row in rows.values()]


@pytest.mark.parametrize("overlay", [LOCAL, HIGHLY_AVAILABLE, PRODUCTION])
def test_no_overlay_has_a_pool_of_another_size(overlay: str) -> None:
    configured = [each["data"] for each in of_kind(overlay, "ConfigMap")]
    assert [data for data in configured if "DATABASE_CONNECTIONS" in data] == []


def test_the_postgresql_of_the_overlay_local_has_connections_for_all_replicas() -> None:
    (postgres,) = (pod for pod in pods(LOCAL) if pod.app == "postgres")
    (allowed,) = re.findall(r"max_connections=(\d+)", " ".join(postgres.containers[0]["command"]))
    assert needed(LOCAL) <= int(allowed)


def test_the_postgresql_of_the_overlay_highly_available_has_as_many() -> None:
    (allowed,) = re.findall(
        r"^max_connections = (\d+)$", (ROOT / HIGHLY_AVAILABLE / "postgresql.conf").read_text(), re.MULTILINE
    )
    assert needed(HIGHLY_AVAILABLE) <= int(allowed)


def test_the_example_of_cloudnativepg_has_connections_for_all_replicas_of_the_overlay_production() -> None:
    (cluster,) = (each for each in examples_in_the_documents() if each["kind"] == "Cluster")
    assert needed(PRODUCTION) <= int(cluster["spec"]["postgresql"]["parameters"]["max_connections"])
