"""Helm installs, upgrades, rolls back and removes the chart, in a namespace of its own; its pods are not waited for."""

import json
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from tests.support.cluster import ROOT, kubectl, temporary_namespace

pytestmark = pytest.mark.kubernetes

CHART = ROOT / "deploy/helm/stead"
VALUES = yaml.safe_load((ROOT / "deploy/helm/production.yaml").read_text())
NEXT = {**VALUES, "images": {**VALUES["images"], "tag": "v0.2.0"}}
NAMESPACE = "stead-helm"


@pytest.fixture(scope="module")
def cluster() -> Iterator[helm_python.Config]:
    with temporary_namespace(NAMESPACE), helm_python.Config(namespace=NAMESPACE) as config:
        config.install(CHART, "stead", VALUES)
        yield config


def found(kind: str) -> list[dict[str, Any]]:
    listed = kubectl("get", kind, "--output", "json", namespace=NAMESPACE)
    return list(json.loads(listed)["items"])


def tags() -> set[str]:
    """Return the tags of the Jobs' and Deployments' images."""
    pods = [each["spec"]["template"]["spec"] for each in (*found("jobs"), *found("deployments"))]
    return {pod["containers"][0]["image"].partition("@")[0].rpartition(":")[2] for pod in pods}


def test_an_upgrade_replaces_jobs_and_a_rollback_brings_them_back(cluster: helm_python.Config) -> None:
    before = {each["metadata"]["name"] for each in found("jobs")}
    assert (len(before), tags()) == (4, {"v0.1.0"})
    cluster.upgrade(CHART, "stead", NEXT)
    assert not before & {each["metadata"]["name"] for each in found("jobs")}
    assert tags() == {"v0.2.0"}
    cluster.rollback("stead", version=1)
    assert {each["metadata"]["name"] for each in found("jobs")} == before
    assert tags() == {"v0.1.0"}


def test_an_upgrade_does_not_undo_what_the_autoscaler_did(cluster: helm_python.Config) -> None:
    kubectl("scale", "deployment/console", "--replicas=3", namespace=NAMESPACE)
    cluster.upgrade(CHART, "stead", {**NEXT, "services": {"console": {"settings": {"CONSOLE_NAME": "A"}}}})
    (console,) = (each for each in found("deployments") if each["metadata"]["name"] == "console")
    assert console["spec"]["replicas"] == 3


def test_a_refused_value_changes_nothing(cluster: helm_python.Config) -> None:
    before = cluster.history("stead")
    with pytest.raises(helm_python.HelmError, match="additional properties 'replicas' not allowed"):
        cluster.upgrade(CHART, "stead", {**NEXT, "replicas": 3})
    assert cluster.history("stead") == before


def test_it_is_removed_without_remains(cluster: helm_python.Config) -> None:
    cluster.uninstall("stead", wait="watcher", timeout=60)
    kinds = "deployments,jobs,cronjobs,services,networkpolicies,roles,rolebindings,hpa,pdb"
    assert {each["kind"] for each in found(kinds) if "deletionTimestamp" not in each["metadata"]} == set()
