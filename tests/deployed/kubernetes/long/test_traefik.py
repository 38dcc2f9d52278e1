"""deploy/k8s/edges/ingress-traefik, as a real Traefik reads it from the API server."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tests.support.cluster import (
    NAMESPACE,
    SERVICES,
    first_client,
    forwarded,
    kubectl,
    start_program,
    temporary_namespace,
)
from tests.support.impersonation import set_up
from tests.support.patience import eventually
from tests.support.processes import free_port
from tests.support.routed_paths import NOT_SERVED, SERVED, expected_service

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

CONTROLLER = "stead-traefik"
"""Name of the controller's namespace and of all that is made for it."""
HOST = "names.example.com"
"""Of the Ingress whose Services answer with their names."""

NAMES_ITSELF = """
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["NAME"].encode())

ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def traefik(system: str) -> Iterator[str]:
    """The address of a Traefik in a namespace of its own, which the services accept as an edge."""
    port = free_port()
    with temporary_namespace(CONTROLLER, edge="true") as namespace:
        apply(*controller(), namespace=namespace)
        try:
            kubectl("wait", "--for=condition=Ready", f"pod/{CONTROLLER}", "--timeout=120s", namespace=namespace)
            with forwarded(f"pod/{CONTROLLER}", port, to=8000, namespace=namespace):
                yield f"http://localhost:{port}"
        finally:
            kubectl("delete", "clusterrole,clusterrolebinding,ingressclass", "--selector", f"for={CONTROLLER}")


def controller() -> list[dict[str, Any]]:
    """Return Traefik with the rights that it needs to read Ingresses, and its class."""
    metadata = {"name": CONTROLLER, "labels": {"for": CONTROLLER}}
    read = {"verbs": ["get", "list", "watch"]}
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["services", "secrets", "nodes"], **read},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], **read},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], **read},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CONTROLLER}
    account = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": CONTROLLER}
    container = {
        "name": "traefik",
        "image": "stead/traefik:test",
        "args": ["--entrypoints.web.address=:8000", "--providers.kubernetesingress", "--ping", "--ping.entrypoint=web"],
        "readinessProbe": {"httpGet": {"path": "/ping", "port": 8000}},
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [account],
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {**metadata, "name": "traefik"},
            "spec": {"controller": "traefik.io/ingress-controller"},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "serviceAccountName": CONTROLLER,
                "containers": [container],
                "terminationGracePeriodSeconds": 1,
            },
        },
    ]


def apply(*items: dict[str, Any], namespace: str) -> None:
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("apply", "--server-side", "--filename", "-", given=manifests, namespace=namespace)


def ingress(host: str | None = None) -> dict[str, Any]:
    """Return the Ingress as kustomize renders it, in no namespace; for one host only, if one is given."""
    rendered: dict[str, Any] = yaml.safe_load(kubectl("kustomize", "deploy/k8s/edges/ingress-traefik"))
    del rendered["metadata"]["namespace"]
    if host:
        rendered["spec"]["rules"][0]["host"] = host
    return rendered


def test_every_path_reaches_the_service_that_serves_it(traefik: str) -> None:
    with (
        temporary_namespace("stead-names") as namespace,
        httpx.Client(base_url=traefik, headers={"Host": HOST}, timeout=30) as client,
    ):
        for service in SERVICES:
            start_program(service, NAMES_ITSELF, namespace=namespace, settings={"NAME": service})
            spec = {"selector": {"program": service}, "ports": [{"port": 8000}]}
            apply(
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": spec},
                namespace=namespace,
            )
        apply(ingress(HOST), namespace=namespace)
        kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s", namespace=namespace)

        def reached(path: str) -> str | None:
            answer = client.get(path)
            return answer.text if answer.status_code == 200 else None

        def reached_by_one_each() -> set[str | None]:
            return {reached(path) for path in ("/oidc", "/api", "/api/organizations")}

        eventually(lambda: reached_by_one_each() == set(SERVICES))
        assert {path: reached(path) for path in SERVED} == {path: expected_service(path) for path in SERVED}
        assert {path: reached(path) for path in NOT_SERVED} == dict.fromkeys(NOT_SERVED)


def test_an_impersonation_and_an_organization_through_traefik(traefik: str) -> None:
    resource = "https://orders.example.com/api"
    apply(ingress(), namespace=NAMESPACE)
    try:
        eventually(lambda: httpx.get(f"{traefik}/oidc/jwks").status_code == 200)
        with first_client(traefik) as management:
            impersonation = set_up(management, resource=resource)
            subject_token = management.subject_tokens.create(impersonation.user_id).token
            form = {**impersonation.form(subject_token), "resource": resource}
            first, second = (httpx.post(f"{traefik}/oidc/token", data=form, auth=impersonation.auth) for _ in range(2))
            assert (first.status_code, first.json().get("scope")) == (200, "read:orders write:orders")
            assert (second.status_code, second.json()["error"]) == (400, "invalid_request")
            made = management.organizations.create("Through Traefik")
            assert management.organizations.get(made.id).name == "Through Traefik"
    finally:
        kubectl("delete", "ingress", "stead")
