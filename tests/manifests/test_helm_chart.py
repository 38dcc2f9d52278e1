"""deploy/helm/stead installs what kustomize renders of deploy/k8s, and each of its values changes what it says."""

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from tests.support.manifests import ROOT, Manifest, manifests, values_in_the_documents

pytestmark = pytest.mark.manifests

CHART = ROOT / "deploy/helm/stead"
PRODUCTION = yaml.safe_load((ROOT / "deploy/helm/production.yaml").read_text())
NAMESPACE = "stead"
SERVICES = ("token-service", "management-service", "template-service", "console")
STORES = {store: {"peers": [f"192.0.2.{last}/32"]} for last, store in enumerate(("postgres", "redis", "nats"))}
ADDRESS = {"baseUrl": "https://id.example.com"}
EVERYTHING = {
    **ADDRESS,
    "storesCa": "stores-ca",
    "networkPolicies": {"stores": STORES},
    "images": {"pullSecrets": ["registry"]},
    "edge": {"form": "ingress-nginx", "host": "id.example.com", "tlsSecret": "id"},
    "observability": {"enabled": True, "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
}
WITH_A_VALUE = ("BASE_URL", "TRUSTED_PROXIES")
OF_THE_OPERATOR = "monitoring.coreos.com/v1"
CHECKSUM = "checksum/settings"
DIGEST = "sha256:" + 64 * "0"


@cache
def chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def rendered(values: Mapping[str, Any], *, of: helm_python.Chart | None = None) -> list[Manifest]:
    """Return what Helm would install."""
    return objects((of or chart()).render(dict(values), name="stead", namespace=NAMESPACE))


def objects(files: dict[str, str]) -> list[Manifest]:
    documents = yaml.load_all(files["stead/templates/objects.yaml"], yaml.CSafeLoader)
    return [each for each in documents if each]


def kustomized(directory: Path, *, components: list[str] | None = None) -> list[Manifest]:
    """Return base, jobs and components as kustomize renders them, but for the namespace, with a base URL."""
    root = os.path.relpath(ROOT, directory)
    kustomization = {
        "namespace": NAMESPACE,
        "resources": [f"{root}/deploy/k8s/{each}" for each in ("base", "jobs")],
        "components": [f"{root}/deploy/k8s/components/{each}" for each in components or []],
        "patches": [
            {
                "target": {"kind": "ConfigMap"},
                "patch": '- {op: add, path: /data/BASE_URL, value: "https://id.example.com"}',
            }
        ],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return without_namespace(manifests(str(directory)))


def without_namespace(found: list[Manifest]) -> list[Manifest]:
    return [each for each in found if each["kind"] != "Namespace"]


def jobs(found: list[Manifest]) -> dict[str, str]:
    """Return the name of each Job, by the name of its pods."""
    return {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]: each["metadata"]["name"]
        for each in found
        if each["kind"] == "Job"
    }


def checksums(found: list[Manifest]) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["annotations"][CHECKSUM]
        for each in found
        if each["kind"] == "Deployment"
    }


def facts(given: list[Manifest]) -> dict[str, Any]:
    """Return each value under its path, such as ``Service/console/spec/ports/http/port``; the order does not matter.

    Without what only the chart has: the end of a Job's name, and the checksum of a Deployment's settings.
    """
    renamed = {name: app for app, name in jobs(given).items()}
    found: dict[str, Any] = {}
    for each in given:
        name = renamed.get(each["metadata"]["name"], each["metadata"]["name"])
        place = f"{each['kind']}/{name}"
        assert not any(path.startswith(f"{place}/") for path in found), f"{place} is there twice"
        found |= dict(flat({**each, "metadata": {**each["metadata"], "name": name}}, place))
    return {path: value for path, value in found.items() if not path.endswith(f"/annotations/{CHECKSUM}")}


def flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            named = isinstance(inner, dict) and "name" in inner
            yield from flat(inner, f"{path}/{inner['name'] if named else place}")
    else:
        yield path, value


def changes(values: Mapping[str, Any], since: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is new or another with these values, and None for what is gone."""
    before, after = facts(rendered(since)), facts(rendered(values))
    return {path: after.get(path) for path in {*before, *after} if before.get(path) != after.get(path)}


def test_without_values_but_the_address_it_installs_base_and_jobs(tmp_path: Path) -> None:
    assert facts(rendered(ADDRESS)) == facts(kustomized(tmp_path))


def test_its_values_for_production_install_the_overlay_production() -> None:
    overlay = without_namespace(manifests("deploy/k8s/overlays/production"))
    assert facts(rendered(PRODUCTION)) == facts(overlay)
    assert {app: name.rpartition("-")[0] for app, name in jobs(rendered(PRODUCTION)).items()} == jobs(overlay)


def test_it_installs_the_components_for_observability(tmp_path: Path) -> None:
    both = ["observability", "prometheus-operator"]
    values = {**ADDRESS, "observability": EVERYTHING["observability"]}
    assert facts(rendered(values)) == facts(kustomized(tmp_path, components=both))


def test_the_rules_of_the_operator_are_those_of_prometheus(tmp_path: Path) -> None:
    found = kustomized(tmp_path, components=["prometheus-operator"])
    (rule,) = (each for each in found if each["kind"] == "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/observe/rules.yml").read_text()), "run `make rules`"


def test_the_pod_monitor_names_job_and_instance_as_the_discovery_of_prometheus_does(tmp_path: Path) -> None:
    found = kustomized(tmp_path, components=["prometheus-operator"])
    (monitor,) = (each["spec"] for each in found if each["kind"] == "PodMonitor")
    (scraped,) = yaml.safe_load((ROOT / "deploy/observe/prometheus.kubernetes.yml").read_text())["scrape_configs"]
    _, job, instance = scraped["relabel_configs"]
    assert job["source_labels"] == ["__meta_kubernetes_pod_label_app_kubernetes_io_name"]
    assert monitor["jobLabel"] == "app.kubernetes.io/name"
    ((selected,),) = monitor["selector"].values()
    assert set(selected["values"]) == set(SERVICES)
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [
        {"sourceLabels": instance["source_labels"], "targetLabel": instance["target_label"]}
    ]


def test_helm_has_no_complaint() -> None:
    report = helm_python.lint(CHART, EVERYTHING, strict=True, kube_version="v1.30.0")
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]
    assert report["errors"] == []


def test_a_package_contains_what_the_links_lead_to(tmp_path: Path) -> None:
    package = helm_python.Chart.load(helm_python.package(CHART, destination=tmp_path))
    assert rendered(EVERYTHING, of=package) == rendered(EVERYTHING)


@pytest.mark.parametrize(
    ("values", "version"),
    [(EVERYTHING, "1.30"), ({**ADDRESS, **values_in_the_documents()}, kubernetes_validate.latest_version())],
    ids=["all", "documented"],
)
def test_everything_that_it_installs_matches_its_strict_schema(values: dict[str, Any], version: str) -> None:
    found = rendered(values)
    assert {"Ingress", "PodMonitor", "PrometheusRule"} <= {each["kind"] for each in found}
    for each in found:
        if each["apiVersion"] != OF_THE_OPERATOR:
            kubernetes_validate.validate(each, version, strict=True)


NAMESPACES = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
SELECTED = "namespaceSelector/matchLabels/kubernetes.io/metadata.name"
POD = "spec/template/spec"
SOME = -1
OBSERVED = {**ADDRESS, "observability": {"enabled": True}}
GATEWAY = {**ADDRESS, "edge": {"form": "gateway"}}
INGRESS = {**ADDRESS, "edge": {"form": "ingress-nginx"}}
OPERATED = {**ADDRESS, "observability": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule")}}


@pytest.mark.parametrize(
    ("since", "values", "changed"),
    [
        (ADDRESS, {"baseUrl": "https://a.test"}, {"ConfigMap/*/data/BASE_URL": ("https://a.test", 4)}),
        (ADDRESS, {"trustedProxies": 2}, {"ConfigMap/*/data/TRUSTED_PROXIES": ("2", 4)}),
        (ADDRESS, {"images": {"registry": "r.test/a"}}, {"*/containers/*/image": ("r.test/a/stead/*:dev", 11)}),
        (ADDRESS, {"images": {"tag": "v1"}}, {"*/containers/*/image": ("stead/*:v1", 11)}),
        (
            ADDRESS,
            {"images": {"digests": {"console": DIGEST}}},
            {f"Deployment/console/{POD}/containers/console/image": (f"stead/console:dev@{DIGEST}", 1)},
        ),
        (ADDRESS, {"images": {"pullSecrets": ["a"]}}, {"*/spec/imagePullSecrets/a/name": ("a", 11)}),
        (ADDRESS, {"settings": {"TENANT_ID": "a"}}, {"ConfigMap/*/data/TENANT_ID": ("a", 4)}),
        (
            {**ADDRESS, "settings": {"TENANT_ID": "a"}},
            {"services": {"console": {"settings": {"TENANT_ID": "b"}}}},
            {"ConfigMap/console/data/TENANT_ID": ("b", 1)},
        ),
        (
            ADDRESS,
            {"services": {"management-service": {"existingSecret": "a"}}},
            {
                f"Deployment/management-service/{POD}/volumes/secrets/secret/secretName": ("a", 1),
                f"Job/migrate-management-service/{POD}/volumes/secrets/secret/secretName": ("a", 1),
                f"Job/bootstrap/{POD}/volumes/secrets/secret/secretName": ("a", 1),
                "CronJob/restored-management-service/*/volumes/secrets/secret/secretName": ("a", 1),
            },
        ),
        (
            ADDRESS,
            {"services": {"console": {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "2"}}}}},
            {
                f"Deployment/console/{POD}/containers/console/resources/requests/cpu": ("1", 1),
                f"Deployment/console/{POD}/containers/console/resources/limits/cpu": ("2", 1),
            },
        ),
        (
            ADDRESS,
            {"services": {"console": {"autoscaling": {"minReplicas": 3, "maxReplicas": 4}}}},
            {
                "HorizontalPodAutoscaler/console/spec/minReplicas": ("3", 1),
                "HorizontalPodAutoscaler/console/spec/maxReplicas": ("4", 1),
            },
        ),
        (
            ADDRESS,
            {"bootstrap": {"settings": {"BOOTSTRAP_REQUIRE_ACTOR": "true"}}},
            {
                f"Job/bootstrap/{POD}/containers/bootstrap/env/BOOTSTRAP_REQUIRE_ACTOR/name": ("BOOT*", 1),
                f"Job/bootstrap/{POD}/containers/bootstrap/env/BOOTSTRAP_REQUIRE_ACTOR/value": ("true", 1),
            },
        ),
        (ADDRESS, {"bootstrap": {"enabled": False}}, {"*/bootstrap*/*": (None, SOME)}),
        (ADDRESS, {"networkPolicies": {"enabled": False}}, {"NetworkPolicy/*": (None, SOME)}),
        (
            ADDRESS,
            {"networkPolicies": {"stores": {"redis": {"peers": ["192.0.2.0/28", NAMESPACES], "ports": [1, 2]}}}},
            {
                "NetworkPolicy/clients-to-redis/spec/egress/0/to/0/ipBlock/cidr": ("192.0.2.0/28", 1),
                f"NetworkPolicy/clients-to-redis/spec/egress/0/to/1/{SELECTED}": ("ingress", 1),
                "NetworkPolicy/clients-to-redis/spec/egress/0/ports/*/port": ("[12]", 2),
                "NetworkPolicy/clients-to-redis/*": ("*", SOME),
            },
        ),
        (
            ADDRESS,
            {"networkPolicies": {"mail": {"peers": ["192.0.2.0/28"], "ports": [25]}}},
            {
                "NetworkPolicy/clients-to-mail/spec/podSelector/*": ("management-service", 1),
                "NetworkPolicy/clients-to-mail/spec/egress/0/to/0/ipBlock/cidr": ("192.0.2.0/28", 1),
                "NetworkPolicy/clients-to-mail/spec/egress/0/ports/*/port": ("25", 1),
                "NetworkPolicy/clients-to-mail/*": ("*", SOME),
            },
        ),
        (
            ADDRESS,
            {"networkPolicies": {"providers": {"peers": ["192.0.2.0/28"], "ports": [8443]}}},
            {
                "NetworkPolicy/clients-to-providers/spec/podSelector/*": ("management-service", 1),
                "NetworkPolicy/clients-to-providers/spec/egress/0/to/0/ipBlock/cidr": ("192.0.2.0/28", 1),
                "NetworkPolicy/clients-to-providers/spec/egress/0/ports/*/port": ("8443", 1),
                "NetworkPolicy/clients-to-providers/*": ("*", SOME),
            },
        ),
        (
            ADDRESS,
            {"networkPolicies": {"dns": ["192.0.2.0/28"]}},
            {
                "NetworkPolicy/dns/spec/egress/0/to/0/ipBlock/cidr": ("192.0.2.0/28", 1),
                "NetworkPolicy/dns/spec/egress/0/to/*/namespaceSelector/*": (None, 2),
            },
        ),
        (
            ADDRESS,
            {"networkPolicies": {"edge": [NAMESPACES]}},
            {
                f"NetworkPolicy/services-from-the-edge/spec/ingress/0/from/0/{SELECTED}": ("ingress", 1),
                "NetworkPolicy/services-from-the-edge/spec/ingress/0/from/*Selector/*": (None, 2),
            },
        ),
        (
            OBSERVED,
            {"networkPolicies": {"monitoring": [NAMESPACES]}},
            {
                f"NetworkPolicy/services-from-monitoring/spec/ingress/0/from/0/{SELECTED}": ("ingress", 1),
                f"NetworkPolicy/services-to-the-collector/spec/egress/0/to/0/{SELECTED}": ("ingress", 1),
                "NetworkPolicy/services-*/spec/*/stead/monitoring": (None, 2),
            },
        ),
        (
            OBSERVED,
            {"observability": {"enabled": True, "prometheus": {"namespace": "a", "serviceAccount": "b"}}},
            {
                "RoleBinding/prometheus/subjects/b/namespace": ("a", 1),
                "RoleBinding/prometheus/subjects/b/name": ("b", 1),
                "RoleBinding/prometheus/subjects/b/kind": ("ServiceAccount", 1),
                "RoleBinding/prometheus/subjects/prometheus/*": (None, 3),
            },
        ),
        (
            OPERATED,
            {"observability": {name: {"enabled": True, "labels": {"a": "b"}} for name in OPERATED["observability"]}},
            {"PodMonitor/stead/metadata/labels/a": ("b", 1), "PrometheusRule/stead/metadata/labels/a": ("b", 1)},
        ),
        (
            GATEWAY,
            {"edge": {"form": "gateway", "host": "a.test", "gateway": {"name": "b", "namespace": "c"}}},
            {
                "HTTPRoute/stead/spec/hostnames/0": ("a.test", 1),
                "HTTPRoute/stead/spec/parentRefs/b/name": ("b", 1),
                "HTTPRoute/stead/spec/parentRefs/b/namespace": ("c", 1),
                "HTTPRoute/stead/spec/parentRefs/stead/name": (None, 1),
            },
        ),
        (
            INGRESS,
            {
                "edge": {
                    "form": "ingress-nginx",
                    "host": "a.test",
                    "tlsSecret": "b",
                    "className": "c",
                    "annotations": {"cert-manager.io/cluster-issuer": "d"},
                }
            },
            {
                "Ingress/stead/spec/rules/0/host": ("a.test", 1),
                "Ingress/stead/spec/tls/0/hosts/0": ("a.test", 1),
                "Ingress/stead/spec/tls/0/secretName": ("b", 1),
                "Ingress/stead/spec/ingressClassName": ("c", 1),
                "Ingress/stead/metadata/annotations/cert-manager.io/cluster-issuer": ("d", 1),
            },
        ),
    ],
)
def test_a_value_changes_what_it_says_and_nothing_else(
    since: dict[str, Any], values: dict[str, Any], changed: dict[str, tuple[str | None, int]]
) -> None:
    """``changed`` has a pattern for the value, or None if it is gone, and how many, for each pattern of paths."""
    left = changes({**since, **values}, since)
    for paths, (value, count) in changed.items():
        found = {path: left.pop(path) for path in list(left) if fnmatch(path, paths)}
        assert len(found) == count or (found and count == SOME), (paths, found)
        for each in found.values():
            assert each is None if value is None else fnmatch(str(each), value), (paths, found)
    assert left == {}


@pytest.mark.parametrize("form", ["gateway", "ingress-nginx", "ingress-traefik"])
def test_the_edge_is_that_of_the_directory(form: str) -> None:
    route = manifests(f"deploy/k8s/edges/{form}")
    new = changes({**ADDRESS, "edge": {"form": form}}, ADDRESS)
    assert new == facts(route)


def test_its_objects_go_to_the_namespace_of_the_release() -> None:
    found = objects(chart().render(EVERYTHING, name="stead", namespace="elsewhere"))
    assert {each["metadata"]["namespace"] for each in found} == {"elsewhere"}
    (binding,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == ("RoleBinding", "bootstrap"))
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bootstrap", "namespace": "elsewhere"}]


OF_THE_SERVICES, _, _ = (ROOT / "docs/operations/settings.md").read_text().partition("\n## Traces\n")
SECRET = dict(re.findall(r"^\| `([A-Z0-9_]+)` \|.*\| (yes|no) \|$", OF_THE_SERVICES, re.MULTILINE))
"""Whether a setting is secret: ``yes`` or ``no``."""


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_can_be_given_to_a_service(service: str) -> None:
    settings = {name: "x" for name, secret in SECRET.items() if secret == "no" and name not in WITH_A_VALUE}
    assert len(settings) > 20
    found = changes({**ADDRESS, "services": {service: {"settings": settings}}}, ADDRESS)
    assert found == {f"ConfigMap/{service}/data/{name}": "x" for name in settings}


@pytest.mark.parametrize("name", [*WITH_A_VALUE, *(name for name, secret in SECRET.items() if secret == "yes")])
def test_a_setting_that_is_secret_or_a_value_is_refused(name: str) -> None:
    told = f"settings: give {name} as" if name in WITH_A_VALUE else f"settings: {name} is a secret"
    given = {"settings": {name: "x"}}
    for values in (given, {"services": {"console": given}}, {"bootstrap": given}):
        with pytest.raises(helm_python.HelmRenderError, match=told):
            rendered({**ADDRESS, **values})


def test_a_service_is_restarted_when_its_settings_change() -> None:
    before = checksums(rendered(ADDRESS))
    assert before.keys() == set(SERVICES)
    of_one = checksums(rendered({**ADDRESS, "services": {"console": {"settings": {"CONSOLE_NAME": "A"}}}}))
    assert {service for service in SERVICES if of_one[service] != before[service]} == {"console"}
    of_all = checksums(rendered({**ADDRESS, "settings": {"TENANT_ID": "a"}}))
    assert {service for service in SERVICES if of_all[service] != before[service]} == set(SERVICES)


def test_an_upgrade_makes_new_jobs_and_a_setting_does_not() -> None:
    """A Job cannot be changed."""
    before = jobs(rendered(ADDRESS))
    assert before == jobs(rendered({**ADDRESS, "settings": {"TENANT_ID": "a"}, "trustedProxies": 2}))
    assert all(re.fullmatch(rf"{app}-dev-[0-9a-f]{{8}}", name) for app, name in before.items())
    others: list[dict[str, Any]] = [
        {"images": {"tag": "v1"}},
        {"images": {"registry": "registry.example.com"}},
        {"images": {"pullSecrets": ["registry"]}},
        {"storesCa": "stores-ca"},
    ]
    for values in others:
        assert not set(before.values()) & set(jobs(rendered({**ADDRESS, **values})).values()), values
    for tag in ("V1.0_" + 123 * "a", "20_-." * 25):
        for name in jobs(rendered({**ADDRESS, "images": {"tag": tag}})).values():
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), name


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "at '': missing property 'baseUrl'"),
        ({"baseUrl": ""}, "at '/baseUrl': '' does not match pattern"),
        ({"baseUrl": "id.example.com"}, "at '/baseUrl': 'id.example.com' does not match pattern"),
        ({"baseUrl": "https://id.example.com/"}, "at '/baseUrl': 'https://id.example.com/' does not match pattern"),
        ({"baseUrl": ["https://id.example.com"]}, "at '/baseUrl': got array, want string"),
        ({"baseURL": "https://id.example.com"}, "additional properties 'baseURL' not allowed"),
        ({"images": None}, "at '': missing property 'images'"),
        ({"services": {"console": None}}, "at '/services': missing property 'console'"),
        ({"edge": {"gateway": None}}, "at '/edge': missing property 'gateway'"),
        ({"trustedProxies": "1"}, "at '/trustedProxies': got string, want integer"),
        ({"trustedProxies": -1}, "at '/trustedProxies': minimum: got -1, want 0"),
        ({"images": {"repository": "a"}}, "at '/images': additional properties 'repository' not allowed"),
        ({"images": {"tag": "v1:a"}}, "at '/images/tag': 'v1:a' does not match pattern"),
        ({"images": {"tag": 1}}, "at '/images/tag': got number, want string"),
        ({"images": {"tag": "a" * 129}}, "at '/images/tag':"),
        ({"images": {"digests": {"console": "abc"}}}, "at '/images/digests/console': 'abc' does not match pattern"),
        ({"images": {"pullSecrets": [{"name": "a"}]}}, "at '/images/pullSecrets/0': got object, want string"),
        ({"settings": {"tenantId": "a"}}, "at '/settings': additional properties 'tenantId' not allowed"),
        ({"settings": {"REDIS_REPLICAS": 1}}, "at '/settings/REDIS_REPLICAS': got number, want string"),
        ({"services": {"tokens": {}}}, "at '/services': additional properties 'tokens' not allowed"),
        ({"services": {"console": {"existingSecret": ""}}}, "at '/services/console/existingSecret'"),
        ({"services": {"console": {"replicas": 3}}}, "additional properties 'replicas' not allowed"),
        (
            {"services": {"console": {"resources": {"requests": {"cpu": "many"}}}}},
            "/requests/cpu': 'many' does not match",
        ),
        ({"services": {"console": {"autoscaling": {"minReplicas": 0}}}}, "/minReplicas': minimum: got 0, want 1"),
        ({"networkPolicies": {"stores": {"kafka": {}}}}, "additional properties 'kafka' not allowed"),
        ({"networkPolicies": {"stores": {"redis": {"ports": []}}}}, "/redis/ports': minItems: got 0, want 1"),
        ({"networkPolicies": {"stores": {"redis": {"ports": [65536]}}}}, "/ports/0': maximum: got 65,536, want 65,535"),
        (
            {"networkPolicies": {"edge": ["example.com"]}},
            "/networkPolicies/edge/0': 'example.com' does not match pattern",
        ),
        ({"networkPolicies": {"edge": [{}]}}, "/networkPolicies/edge/0': minProperties: got 0, want 1"),
        ({"edge": {"form": "nginx"}}, "at '/edge/form': value must be one of '', 'gateway'"),
        ({"edge": {"form": "ingress-nginx", "tlsSecret": "a"}}, "at '/edge/host': minLength: got 0, want 1"),
        ({"observability": {"enabled": "yes"}}, "at '/observability/enabled': got string, want boolean"),
        ({"observability": {"podMonitor": True}}, "at '/observability/podMonitor': got boolean, want object"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], told: str) -> None:
    given = values if not values or "baseUrl" in values or "baseURL" in values else {**ADDRESS, **values}
    with pytest.raises(helm_python.HelmValuesError) as refused:
        chart().render(given, name="stead", namespace=NAMESPACE)
    assert told in str(refused.value)
