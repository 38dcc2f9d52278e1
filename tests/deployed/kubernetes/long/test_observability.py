"""The component ``observability``: a real Prometheus in the cluster finds and scrapes every pod, past the policies."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tests.support.cluster import ROOT, SERVICES, forwarded, kubectl, temporary_namespace
from tests.support.processes import free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900), pytest.mark.usefixtures("system")]

COMPONENT = ROOT / "deploy/k8s/components/observability"
OBSERVE = ROOT / "deploy/observe"
NAMESPACE = "monitoring"
"""Of the ServiceAccount that the component names."""
PROMETHEUS: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]


@pytest.fixture
def prometheus() -> Iterator[httpx.Client]:
    """The API of a Prometheus with the configuration of deploy/observe, as the documents install it."""
    resources = [str(each) for each in sorted(COMPONENT.glob("*.yaml")) if each.name != "kustomization.yaml"]
    files = [argument for each in resources for argument in ("--filename", each)]
    kubectl("apply", "--server-side", *files)
    try:
        with temporary_namespace(NAMESPACE, monitoring="true") as namespace:
            configuration = f"--from-file=prometheus.yml={OBSERVE / 'prometheus.kubernetes.yml'}"
            rules = f"--from-file={OBSERVE / 'rules.yml'}"
            kubectl("create", "configmap", "prometheus", configuration, rules, namespace=namespace)
            kubectl("create", "serviceaccount", "prometheus", namespace=namespace)
            kubectl("apply", "--filename", "-", given=json.dumps(pod()), namespace=namespace)
            kubectl("wait", "--for=condition=Ready", "pod/prometheus", "--timeout=120s", namespace=namespace)
            port = free_port()
            with (
                forwarded("pod/prometheus", port, to=9090, namespace=namespace),
                httpx.Client(base_url=f"http://localhost:{port}/api/v1/", timeout=30) as client,
            ):
                yield client
    finally:
        kubectl("delete", *files)


def pod() -> dict[str, Any]:
    container = {
        "name": "prometheus",
        "image": PROMETHEUS["image"],
        "imagePullPolicy": "IfNotPresent",
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": 9090}},
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc/prometheus"},
            {"name": "data", "mountPath": "/prometheus"},
        ],
    }
    spec = {
        "serviceAccountName": "prometheus",
        "securityContext": {"runAsUser": 65534, "fsGroup": 65534},
        "containers": [container],
        "volumes": [{"name": "configuration", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prometheus"}, "spec": spec}


def test_every_pod_is_scraped_and_every_rule_is_evaluated(prometheus: httpx.Client) -> None:
    def read(path: str, **parameters: str) -> Any:
        try:
            return prometheus.get(path, params=parameters).json()["data"]
        except httpx.TransportError:
            return {"activeTargets": [], "groups": []}  # the port is not forwarded yet

    def scraped() -> list[tuple[str, str, str]]:
        found = read("targets", state="active")["activeTargets"]
        return sorted((each["labels"]["job"], each["labels"]["instance"], each["health"]) for each in found)

    def running() -> list[tuple[str, str, str]]:
        label = "app.kubernetes.io/name"
        selector = f"{label} in ({','.join(SERVICES)})"
        pods = json.loads(kubectl("get", "pods", "--selector", selector, "--output", "json"))["items"]
        return sorted((pod["metadata"]["labels"][label], pod["metadata"]["name"], "up") for pod in pods)

    eventually(lambda: {job for job, _, _ in scraped()} == set(SERVICES) and scraped() == running(), within_s=120)
    written = yaml.safe_load((OBSERVE / "rules.yml").read_text())["groups"]
    names = sorted(rule.get("record") or rule["alert"] for group in written for rule in group["rules"])

    def evaluated() -> list[tuple[str, str]]:
        return sorted((rule["name"], rule["health"]) for group in read("rules")["groups"] for rule in group["rules"])

    eventually(lambda: evaluated() == [(name, "ok") for name in names], within_s=120)
