"""The Ingress and the HTTPRoute of deploy/k8s/edges, as a real Traefik reads them from the API server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tests.support.cluster import (
    NAMESPACE,
    SERVICES,
    Edge,
    first_client,
    forwarded,
    kubectl,
    start_program,
    temporary_namespace,
)
from tests.support.cluster_journeys import hear_a_permission_and_use_it, impersonate, sign_in
from tests.support.impersonation import set_up
from tests.support.processes import free_port
from tests.support.routed_paths import NOT_SERVED, SERVED, expected_service
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("edge", ["ingress-traefik", "gateway"]),
]

CONTROLLER = "stead-traefik"
"""Name of the controller's namespace and of all that is made for it."""
MADE_FOR_IT = {"stead/made-for": CONTROLLER}
HOST = "names.example.com"
"""Of the edge whose Services answer with their names."""
ENTRY_PORT = 8000

GATEWAY_API = "gateway.networking.k8s.io"
GATEWAY_KINDS = {
    "GatewayClass": "gatewayclasses",
    "Gateway": "gateways",
    "HTTPRoute": "httproutes",
    "GRPCRoute": "grpcroutes",
    "ReferenceGrant": "referencegrants",
    "BackendTLSPolicy": "backendtlspolicies",
    "TLSRoute": "tlsroutes",
    "ListenerSet": "listenersets",
}

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
    with gateway_api(), temporary_namespace(CONTROLLER, edge="true") as namespace:
        try:
            apply(*controller(), namespace=namespace)
            kubectl("wait", "--for=condition=Ready", f"pod/{CONTROLLER}", "--timeout=120s", namespace=namespace)
            with forwarded(f"pod/{CONTROLLER}", port, to=ENTRY_PORT, namespace=namespace):
                yield f"http://localhost:{port}"
        finally:
            delete_what_was_made("clusterrole,clusterrolebinding,ingressclass,gatewayclass")


@contextmanager
def gateway_api() -> Iterator[None]:
    """Define the kinds of the Gateway API for a while, unless the cluster has them.

    These definitions accept any object: what they show is how Traefik routes, not that an object is valid.
    """
    if kubectl("get", "crd", f"gateways.{GATEWAY_API}", "--ignore-not-found"):
        yield
        return
    apply(*(definition(kind, plural) for kind, plural in GATEWAY_KINDS.items()), namespace="default")
    try:
        established = [f"crd/{plural}.{GATEWAY_API}" for plural in GATEWAY_KINDS.values()]
        kubectl("wait", "--for=condition=Established", *established, "--timeout=60s")
        yield
    finally:
        delete_what_was_made("crd")


def definition(kind: str, plural: str) -> dict[str, Any]:
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = ["v1", "v1beta1"] if kind == "ReferenceGrant" else ["v1"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GATEWAY_API}",
            "labels": MADE_FOR_IT,
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": GATEWAY_API,
            "names": names,
            "scope": "Cluster" if kind == "GatewayClass" else "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == "v1",
                    "schema": schema,
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


def controller() -> list[dict[str, Any]]:
    """Return Traefik with the rights that it needs, and its classes."""
    metadata = {"name": CONTROLLER, "labels": MADE_FOR_IT}
    of_class = {**metadata, "name": "traefik"}
    rbac = "rbac.authorization.k8s.io"
    read = ["get", "list", "watch"]
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["services", "secrets", "nodes", "namespaces", "configmaps"], "verbs": read},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], "verbs": read},
        {"apiGroups": [GATEWAY_API], "resources": ["*"], "verbs": [*read, "update"]},
    ]
    container = {
        "name": "traefik",
        "image": "stead/traefik:test",
        "args": [
            *("--providers.kubernetesingress", "--providers.kubernetesgateway"),
            *(f"--entrypoints.web.address=:{ENTRY_PORT}", "--ping", "--ping.entrypoint=web"),
            "--global.checknewversion=false",
        ],
        "readinessProbe": {"httpGet": {"path": "/ping", "port": ENTRY_PORT}},
    }
    pod = {"serviceAccountName": CONTROLLER, "containers": [container], "terminationGracePeriodSeconds": 1}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": CONTROLLER},
            "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": CONTROLLER}],
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": of_class,
            "spec": {"controller": "traefik.io/ingress-controller"},
        },
        {
            "apiVersion": f"{GATEWAY_API}/v1",
            "kind": "GatewayClass",
            "metadata": of_class,
            "spec": {"controllerName": "traefik.io/gateway-controller"},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
    ]


@contextmanager
def applied(edge: str, namespace: str, host: str | None = None) -> Iterator[None]:
    """Apply an edge as kustomize renders it, with the Gateway that it expects, for all hosts or one."""
    route: dict[str, Any] = yaml.safe_load(kubectl("kustomize", f"deploy/k8s/edges/{edge}"))
    del route["metadata"]["namespace"]
    items = [route]
    if edge == "gateway":
        listener = {"name": "web", "protocol": "HTTP", "port": ENTRY_PORT}
        spec: dict[str, Any] = {"gatewayClassName": "traefik", "listeners": [listener]}
        items.append(
            {"apiVersion": f"{GATEWAY_API}/v1", "kind": "Gateway", "metadata": {"name": "stead"}, "spec": spec}
        )
    if host and edge == "gateway":
        route["spec"]["hostnames"] = [host]
    elif host:
        route["spec"]["rules"][0]["host"] = host
    apply(*items, namespace=namespace)
    try:
        yield
    finally:
        kubectl("delete", *(f"{item['kind']}/stead" for item in items), namespace=namespace)


def apply(*items: dict[str, Any], namespace: str) -> None:
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("apply", "--server-side", "--filename", "-", given=manifests, namespace=namespace)


def delete_what_was_made(kinds: str) -> None:
    kubectl("delete", kinds, "--selector", f"stead/made-for={CONTROLLER}")


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    """A namespace with Services of the names of ours, which answer with their names."""
    with temporary_namespace("stead-names") as namespace:
        for service in SERVICES:
            start_program(service, NAMES_ITSELF, namespace=namespace, settings={"NAME": service})
            spec = {"selector": {"program": service}, "ports": [{"port": 8000}]}
            made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": spec}
            apply(made, namespace=namespace)
        kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s", namespace=namespace)
        yield namespace


def test_every_path_reaches_the_service_that_serves_it(traefik: str, names: str, edge: str) -> None:
    with applied(edge, names, HOST), httpx.Client(base_url=traefik, headers={"Host": HOST}, timeout=30) as client:

        def reached(path: str) -> str | None:
            answer = client.get(path)
            return answer.text if answer.status_code == 200 else None

        def are_all_reached() -> bool:
            return {reached(path) for path in ("/oidc", "/api", "/api/organizations")} == set(SERVICES)

        eventually(are_all_reached)
        assert {path: reached(path) for path in SERVED} == {path: expected_service(path) for path in SERVED}
        assert {path: reached(path) for path in NOT_SERVED} == dict.fromkeys(NOT_SERVED)


@pytest.mark.usefixtures("traefik")
def test_the_system_behind_traefik_at_its_address(edge_of_the_system: Edge, edge: str) -> None:
    url, resource = edge_of_the_system.url, f"https://{edge}.example.com/api"
    with applied(edge, NAMESPACE):
        edge_of_the_system.lead_to(f"pod/{CONTROLLER}", to=ENTRY_PORT, namespace=CONTROLLER)
        try:
            with first_client(url) as management:
                impersonation = set_up(management, resource=resource)
                impersonate(url, management, impersonation, resource)
                sign_in(url, management)
                hear_a_permission_and_use_it(url, management, impersonation)
        finally:
            edge_of_the_system.lead_to()
