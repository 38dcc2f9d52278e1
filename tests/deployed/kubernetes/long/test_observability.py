"""The component ``observability``: a Prometheus scrapes every pod, and a collector gets traces, past the policies."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tests.support import trace_receiver
from tests.support.cluster import (
    ROOT,
    SERVICES,
    forwarded,
    kubectl,
    printed_by,
    secret,
    start_program,
    temporary_namespace,
)
from tests.support.processes import free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900), pytest.mark.usefixtures("system")]

COMPONENT = ROOT / "deploy/k8s/components/observability"
OBSERVE = ROOT / "deploy/observe"
NAMESPACE = "monitoring"
"""Of the ServiceAccount that the component names."""
PROMETHEUS: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]
COLLECTOR = """
with TraceReceiver("0.0.0.0", 4318) as receiver:
    printed = 0
    while True:
        time.sleep(0.1)
        for span in receiver.spans[printed:]:
            printed += 1
            print(span.trace_id, span.kind, span.service, flush=True)
"""


@pytest.fixture(scope="module")
def monitoring() -> Iterator[str]:
    """The namespace of what observes, which the component lets in."""
    resources = [str(each) for each in sorted(COMPONENT.glob("*.yaml")) if each.name != "kustomization.yaml"]
    files = [argument for each in resources for argument in ("--filename", each)]
    kubectl("apply", "--server-side", *files)
    try:
        with temporary_namespace(NAMESPACE, monitoring="true") as namespace:
            yield namespace
    finally:
        kubectl("delete", *files)


@pytest.fixture
def prometheus(monitoring: str) -> Iterator[httpx.Client]:
    """The API of a Prometheus with the configuration of deploy/observe, as the documents install it."""
    configuration = f"--from-file=prometheus.yml={OBSERVE / 'prometheus.kubernetes.yml'}"
    rules = f"--from-file={OBSERVE / 'rules.yml'}"
    kubectl("create", "configmap", "prometheus", configuration, rules, namespace=monitoring)
    kubectl("create", "serviceaccount", "prometheus", namespace=monitoring)
    kubectl("apply", "--filename", "-", given=json.dumps(pod()), namespace=monitoring)
    kubectl("wait", "--for=condition=Ready", "pod/prometheus", "--timeout=120s", namespace=monitoring)
    port = free_port()
    with (
        forwarded("pod/prometheus", port, to=9090, namespace=monitoring),
        httpx.Client(base_url=f"http://localhost:{port}/api/v1/", timeout=30) as client,
    ):
        yield client


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


@pytest.fixture
def collector(monitoring: str) -> Iterator[str]:
    """The name of a pod that prints the spans it gets: the services export to it, as the documents have it."""
    program = f"{Path(trace_receiver.__file__).read_text()}\nimport time\n{COLLECTOR}"
    start_program("otel-collector", program, namespace=monitoring)
    kubectl("wait", "--for=condition=Ready", "pod/otel-collector", "--timeout=120s", namespace=monitoring)
    kubectl("expose", "pod", "otel-collector", "--port=4318", namespace=monitoring)
    endpoint = f"http://otel-collector.{monitoring}:4318"
    set_in_every_service("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    try:
        yield "otel-collector"
    finally:
        set_in_every_service("OTEL_EXPORTER_OTLP_ENDPOINT", None)


def set_in_every_service(variable: str, value: str | None) -> None:
    """Set a variable in the ConfigMap of each service, or remove it; return when all their pods have it."""
    for service in SERVICES:
        change = json.dumps({"data": {variable: value}})
        kubectl("patch", "configmap", service, "--type=merge", f"--patch={change}")
        kubectl("rollout", "restart", f"deployment/{service}")
    for service in SERVICES:
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")


def test_a_collector_gets_one_trace_of_a_change_from_every_service(
    system: str, monitoring: str, collector: str
) -> None:
    trace_id, first = secrets.token_hex(16), secret("stead-first-client")
    form = {"grant_type": "client_credentials", "resource": first["resource"], "scope": "all"}
    answer = httpx.post(f"{system}/oidc/token", data=form, auth=(first["client_id"], first["client_secret"]))
    token = answer.json()["access_token"]
    # The edge passes on what a caller says of its trace.
    headers = {"Authorization": f"Bearer {token}", "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    assert httpx.post(f"{system}/api/users", json={"name": "Ada"}, headers=headers).status_code == 200
    told = {"SERVER management-service", "PRODUCER management-service"} | {
        f"CONSUMER {service}" for service in ("token-service", "template-service")
    }

    def received() -> set[str]:
        lines = (line.split(" ", 1) for line in printed_by(collector, monitoring))
        return {span for trace, span in lines if trace == trace_id}

    eventually(lambda: received() == told, within_s=120)
