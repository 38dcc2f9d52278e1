"""Every edge sends every path to the service that serves it: the committed files, judged as their controllers do."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.edges import FORMS
from tests.support.routed_paths import DOCUMENT, NOT_SERVED, SERVED, expected_service

ROOT = Path(__file__).parents[2]
FILES = {
    "nginx": "deploy/compose/nginx.conf",
    "nginx-in-kubernetes": "deploy/k8s/overlays/local/edge/stead.conf",
    "gateway": "deploy/k8s/edges/gateway/route.yaml",
    "ingress-nginx": "deploy/k8s/edges/ingress-nginx/route.yaml",
    "ingress-traefik": "deploy/k8s/edges/ingress-traefik/route.yaml",
}
PORTS = {"management-service": 8000, "token-service": 8000, "template-service": 8000, "console": 8000}


@cache
def document(form: str) -> dict[str, Any]:
    """Return the one document of a committed file."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / FILES[form]).read_text())
    return loaded


def by_gateway(path: str) -> str | None:
    """Return the backend by the Gateway API: an expression comes before a prefix, then the longest decides."""
    found: list[tuple[bool, int, str]] = []
    for rule in document("gateway")["spec"]["rules"]:
        (backend,) = rule["backendRefs"]
        assert PORTS[backend["name"]] == backend["port"]
        for match in rule["matches"]:
            kind, value = match["path"]["type"], match["path"]["value"]
            if kind == "RegularExpression":
                assert value.startswith("^")
                assert value.endswith("$")
                matches = re.search(value, path) is not None
            else:
                assert kind == "PathPrefix"
                matches = path == value or path.startswith(f"{value}/")
            if matches:
                found.append((kind == "RegularExpression", len(value), backend["name"]))
    return max(found)[2] if found else None


def by_ingress(form: str, path: str) -> str | None:
    """Return the backend by an Ingress of expressions, the longest of which is tried first."""
    (rule,) = document(form)["spec"]["rules"]
    for each in sorted(rule["http"]["paths"], key=lambda each: -len(each["path"])):
        assert each["pathType"] == "ImplementationSpecific"
        assert each["path"].startswith("/")
        service = each["backend"]["service"]
        assert PORTS[service["name"]] == service["port"]["number"]
        # ingress-nginx: location ~* "^…"; Traefik: a search.
        match = (
            re.match(each["path"], path, re.IGNORECASE) if form == "ingress-nginx" else re.search(each["path"], path)
        )
        if match:
            return str(service["name"])
    return None


def chosen(form: str, path: str) -> str | None:
    """Return the name of the Service that an edge in Kubernetes chooses."""
    return by_gateway(path) if form == "gateway" else by_ingress(form, path)


def test_every_edge_is_rendered_from_the_routing_table() -> None:
    assert {form: (ROOT / name).read_text() for form, name in FILES.items()} == {
        form: f"{render()}\n" for form, render in FORMS.items()
    }


@pytest.mark.parametrize("form", ["gateway", "ingress-nginx", "ingress-traefik"])
def test_an_edge_in_kubernetes_sends_every_path_to_the_service_that_serves_it(form: str) -> None:
    assert {path: chosen(form, path) for path in SERVED} == {path: expected_service(path) for path in SERVED}
    assert {path: chosen(form, path) for path in NOT_SERVED} == dict.fromkeys(NOT_SERVED)


def test_the_merged_document_has_no_path_that_the_edges_in_kubernetes_leave_out() -> None:
    paths = json.loads(DOCUMENT.read_text())["paths"]
    assert [path for path in paths if chosen("gateway", path) is None] == []


def test_no_access_log_of_an_ingress_contains_query_strings() -> None:
    assert (
        document("ingress-nginx")["metadata"]["annotations"]["nginx.ingress.kubernetes.io/enable-access-log"] == "false"
    )
    traefik = document("ingress-traefik")["metadata"]["annotations"]
    assert traefik["traefik.ingress.kubernetes.io/router.observability.accesslogs"] == "false"


def test_no_route_of_the_gateway_ends_an_answer_that_takes_long() -> None:
    rules = document("gateway")["spec"]["rules"]
    assert [rule["timeouts"] for rule in rules] == [{"request": "0s"}] * len(rules)
