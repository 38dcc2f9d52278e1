"""What the chart installs works: its pods serve tokens beside stores, through an upgrade and a rollback."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import helm_python
import pytest

from tests.support.cluster import OVERLAY, ROOT, SERVICES, Edge, first_client, kubectl, temporary_namespace
from tests.support.impersonation import exchange, set_up
from tests.support.manifests import APP, manifests
from tests.support.processes import free_port

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

CHART = ROOT / "deploy/helm/stead"
NAMESPACE = "stead-helm-pods"
STORES = ("postgres", "redis", "nats")
BESIDE = (*STORES, "edge", "provision")


def values(url: str, *, console: str) -> dict[str, Any]:
    """Return the values for the images of this tree and the stores beside them, with a name of the console."""
    peers = {each: {"peers": [{"podSelector": {"matchLabels": {APP: each}}}]} for each in STORES}
    services: dict[str, dict[str, Any]] = {each: {"resources": {"requests": {"cpu": "50m"}}} for each in SERVICES}
    services["console"]["settings"] = {"CONSOLE_NAME": console}
    return {
        "baseUrl": url,
        "settings": {"ENVIRONMENT": "development"},
        "services": services,
        "networkPolicies": {"stores": peers},
    }


def beside() -> list[dict[str, Any]]:
    """Return the stores and the edge of the overlay ``local``."""
    found = [each for each in manifests(OVERLAY) if each["metadata"]["name"].startswith(BESIDE)]
    return [{**each, "metadata": {**each["metadata"], "namespace": NAMESPACE}} for each in found]


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """The edge, with provisioned stores and no services yet."""
    secrets = str(tmp_path_factory.mktemp("secrets"))
    provision = [sys.executable, "-m", "provision", "secrets", "--secrets", secrets, "--namespace", NAMESPACE]
    printed = subprocess.run(provision, capture_output=True, text=True, check=True).stdout
    stores = json.dumps({"apiVersion": "v1", "kind": "List", "items": beside()})
    with temporary_namespace(NAMESPACE), ExitStack() as running:
        for given in (printed, stores):
            kubectl("apply", "--server-side", "--filename", "-", given=given, namespace=NAMESPACE)
        kubectl("wait", "--for=condition=complete", "job", "--all", "--timeout=300s", namespace=NAMESPACE)
        yield Edge(free_port(), running)


def await_pods() -> None:
    """Wait until every Job is done and every Deployment has rolled out."""
    kubectl("wait", "--for=condition=complete", "job", "--all", "--timeout=300s", namespace=NAMESPACE)
    for service in SERVICES:
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s", namespace=NAMESPACE)


def consoles() -> set[str]:
    """Return the names of the console in the pods that serve it."""
    shown = kubectl("exec", "deployment/console", "--", "printenv", "CONSOLE_NAME", namespace=NAMESPACE)
    return set(shown.split())


def test_its_pods_serve_a_token_and_follow_an_upgrade_and_a_rollback(edge: Edge) -> None:
    first, second = (values(edge.url, console=name) for name in ("First", "Second"))
    with helm_python.Config(namespace=NAMESPACE) as helm:
        helm.install(CHART, "stead", first)
        await_pods()
        edge.lead_to(namespace=NAMESPACE)
        with first_client(edge.url, namespace=NAMESPACE) as management:
            impersonation = set_up(management)
            steps: list[Callable[[], object]] = [
                lambda: None,
                lambda: helm.upgrade(CHART, "stead", second),
                lambda: helm.rollback("stead", version=1),
            ]
            for step, name in zip(steps, ("First", "Second", "First"), strict=True):
                step()
                await_pods()
                assert consoles() == {name}
                subject_token = management.subject_tokens.create(impersonation.user_id).token
                assert exchange(edge.url, impersonation, subject_token).status_code == 200
