"""Rules of deploy/k8s: restricted pods, secrets as files only, tags, and what keeps a service available."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import console.settings
import management_service.settings
import template_service.settings
import token_service.settings
from identity_common.settings import ApiSettings, ServiceSettings
from provision.__main__ import main
from provision.passwords import Passwords
from provision.render import Hosts, Keys, secret_manifests
from tests.support.manifests import (
    APP,
    ROOT,
    VERIFIER,
    Manifest,
    Pod,
    documented_hosts,
    examples_in_the_documents,
    kustomizations,
    of_kind,
    pods,
    rendered,
    selects,
)
from verifier.settings import read_settings

pytestmark = pytest.mark.manifests

OVERLAYS = kustomizations("overlays")
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
every_overlay_and_the_verifier = pytest.mark.parametrize("overlay", [*OVERLAYS, VERIFIER])

SETTINGS: dict[str, type[ServiceSettings]] = {
    "management-service": management_service.settings.Settings,
    "template-service": template_service.settings.Settings,
    "token-service": token_service.settings.Settings,
    "console": console.settings.Settings,
}
WITH_DATABASE = [service for service, settings in SETTINGS.items() if issubclass(settings, ApiSettings)]
OF_LIBRARIES = {"PGSSLMODE", "PGSSLROOTCERT", "SSL_CERT_FILE"}
"""Variables that asyncpg and OpenSSL read."""

SECRET_SETTINGS = {
    "DATABASE_URL",
    "REDIS_URL",
    "NATS_URL",
    "KEY_ENCRYPTION_KEYS",
    "ENVIRONMENT_VARIABLE_KEYS",
    "AUDIT_HEAD_KEYS",
    "MAIL_KEYS",
    "COOKIE_KEYS",
    "SMTP_URL",
}
CREDENTIALS = re.compile(r"://[^\s/]*:[^\s/]*@|-----BEGIN [A-Z ]*PRIVATE KEY")
KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
HEAD_KEY = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA="
MAIL_KEY = "CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA="
KEYS = Keys(KEY, KEY, HEAD_KEY, MAIL_KEY, KEY)
HIGHLY_AVAILABLE = "deploy/k8s/overlays/highly-available"


def printed_secrets(hosts: Hosts) -> dict[str, dict[str, str]]:
    """Return what `python -m provision secrets` prints, by the names of the Secrets."""
    items = json.loads(secret_manifests(Passwords().completed(), hosts, KEYS, namespace="stead"))["items"]
    return {each["metadata"]["name"]: each["stringData"] for each in items}


SECRETS = printed_secrets(Hosts())
NAMED = documented_hosts()
HOSTS = Hosts(**{name.removeprefix("--"): servers for name, servers in zip(NAMED[::2], NAMED[1::2], strict=True)})
SECRETS_OF_ALL_SERVERS = printed_secrets(HOSTS)


def named(overlay: str, kind: str, name: str) -> Manifest:
    (found,) = (each for each in of_kind(overlay, kind) if each["metadata"]["name"] == name)
    return found


def service_pod(overlay: str, service: str) -> Pod:
    (found,) = (pod for pod in pods(overlay) if pod.owner == f"Deployment/{service}")
    return found


def environment(overlay: str, container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container, from its ConfigMaps and its own."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= named(overlay, "ConfigMap", source["configMapRef"]["name"])["data"]
    return found | {each["name"]: each.get("value", "") for each in container.get("env", [])}


def image(container: dict[str, Any]) -> re.Match[str]:
    found = re.fullmatch(r"(?P<name>[^:@]+):(?P<tag>[^:@]+)(?:@(?P<digest>.+))?", container["image"])
    assert found, container["image"]
    return found


@every_overlay_and_the_verifier
def test_every_pod_is_restricted(overlay: str) -> None:
    for pod in pods(overlay):
        context = pod.spec["securityContext"]
        assert context["runAsNonRoot"] is True, pod.owner
        assert min(context["runAsUser"], context["runAsGroup"]) > 0, pod.owner
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, pod.owner
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys(), pod.owner
        kinds = {kind for volume in pod.spec["volumes"] for kind in volume.keys() - {"name"}}
        assert kinds <= {"secret", "configMap", "emptyDir"}, pod.owner
        assert pod.spec["enableServiceLinks"] is False, pod.owner
        for container in pod.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, pod.owner


@every_overlay
def test_the_namespace_refuses_pods_that_are_not_restricted(overlay: str) -> None:
    (namespace,) = of_kind(overlay, "Namespace")
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    inside = {each["metadata"].get("namespace") for each in yaml.safe_load_all(rendered(overlay)) if each != namespace}
    assert inside == {namespace["metadata"]["name"]}


@every_overlay
def test_secrets_are_referred_to_as_files_and_appear_nowhere(overlay: str) -> None:
    assert of_kind(overlay, "Secret") == []
    assert CREDENTIALS.findall(rendered(overlay)) == []
    for pod in pods(overlay):
        for container in pod.containers:
            assert {kind for source in container.get("envFrom", []) for kind in source} <= {"configMapRef"}, pod.owner
            assert not SECRET_SETTINGS & environment(overlay, container).keys(), pod.owner
        for secret in (volume["secret"] for volume in pod.spec["volumes"] if "secret" in volume):
            expected = {"secretName": secret["secretName"], "defaultMode": 0o440}
            if secret["secretName"] == "stead-console":  # written by the Job bootstrap, which needs a running cluster
                expected["optional"] = True
            else:
                assert secret["secretName"] in SECRETS, pod.owner
            assert secret == expected, pod.owner


@every_overlay
@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_starts_with_these_settings_and_secrets(overlay: str, service: str, tmp_path: Path) -> None:
    pod = service_pod(overlay, service)
    (container,) = pod.containers
    (mount,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "secrets")
    secrets = SECRETS_OF_ALL_SERVERS if overlay == HIGHLY_AVAILABLE else SECRETS
    for name, value in secrets[service].items():
        (tmp_path / name).write_text(value)
    given = environment(overlay, container)
    known = {field.name.upper() for field in msgspec.structs.fields(SETTINGS[service])}
    assert {name for name in given if name.removesuffix("_FILE") not in known} <= OF_LIBRARIES
    settings = SETTINGS[service].from_environment(
        {name: value.replace(mount, str(tmp_path)) for name, value in given.items()}
    )
    assert settings.environment == ("production" if overlay.endswith("production") else "development")
    read = {Path(value).name for value in given.values() if value.startswith(f"{mount}/")}
    assert read == SECRETS[service].keys()


def test_the_verifier_starts_with_these_settings_and_its_secret_file(tmp_path: Path) -> None:
    pod = service_pod(VERIFIER, "verifier")
    (container,) = pod.containers
    (mount,) = container["volumeMounts"]
    (tmp_path / "client-secret").write_text("s3cret")
    given = environment(VERIFIER, container)
    settings = read_settings(
        [], {name: value.replace(mount["mountPath"], str(tmp_path)) for name, value in given.items()}
    )
    assert settings.client_secret == "s3cret"
    assert {name.removesuffix("_FILE").lower() for name in given} <= set(settings.__struct_fields__)
    assert pod.spec["automountServiceAccountToken"] is False
    assert of_kind(VERIFIER, "Secret") == []


@every_overlay
def test_only_the_bootstrap_has_a_token_of_the_api_server(overlay: str) -> None:
    assert {each["automountServiceAccountToken"] for each in of_kind(overlay, "ServiceAccount")} == {False}
    assert [pod.app for pod in pods(overlay) if pod.spec["automountServiceAccountToken"]] == ["bootstrap"]
    (role,), (binding,) = of_kind(overlay, "Role"), of_kind(overlay, "RoleBinding")
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["stead-first-client", "stead-console", "stead-administrator"],
            "verbs": ["get", "patch", "create"],
        }
    ]
    assert [(each["kind"], each["name"]) for each in binding["subjects"]] == [("ServiceAccount", "bootstrap")]
    assert of_kind(overlay, "ClusterRole", "ClusterRoleBinding") == []


@every_overlay
def test_images_have_a_tag_and_jobs_carry_it(overlay: str) -> None:
    ours = set()
    for pod in pods(overlay):
        for found in map(image, pod.containers):
            assert found["tag"] != "latest", pod.owner
            if pod.owner.startswith("Job/"):
                assert pod.owner == f"Job/{pod.app}-{found['tag'].replace('.', '-')}"
            if found["name"].endswith(("-service", "/console", "/provision")):
                digest = r"sha256:[0-9a-f]{64}" if overlay.endswith("production") else ""
                assert re.fullmatch(digest, found["digest"] or ""), pod.owner
                ours.add(found["tag"])
    assert len(ours) == 1


@pytest.mark.parametrize("server", ["nats", "redis"])
def test_permissions_are_rendered_by_the_image_from_passwords_that_the_server_cannot_read(
    server: str, tmp_path: Path
) -> None:
    """So that another tag brings other permissions."""
    (pod,) = (each for each in pods("deploy/k8s/overlays/local") if each.owner == f"StatefulSet/{server}")
    (render,), (container,) = pod.spec["initContainers"], pod.spec["containers"]
    assert image(render)["name"] == "stead/provision"
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in render["volumeMounts"]}
    assert volumes[mounts["/secrets"]]["secret"]["secretName"] == server
    assert volumes[mounts[f"/rendered/{server}"]]["emptyDir"]["medium"] == "Memory"
    assert mounts["/secrets"] not in {mount["name"] for mount in container["volumeMounts"]}
    (read,) = (
        mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == mounts[f"/rendered/{server}"]
    )

    (tmp_path / "secrets.json").write_text(SECRETS[server]["secrets.json"])
    words = [
        word.replace("/secrets", str(tmp_path)).replace("/rendered", str(tmp_path / "out")) for word in render["args"]
    ]
    assert main(words) == 0
    (file,) = (tmp_path / "out" / server).iterdir()
    assert f"{read}/{file.name}" in [*container.get("command", []), *container.get("args", [])]


@every_overlay
def test_jobs_retry_and_are_forgotten(overlay: str) -> None:
    jobs = of_kind(overlay, "Job")
    assert {each["spec"]["ttlSecondsAfterFinished"] for each in jobs} == {86400}
    assert {each["spec"]["backoffLimit"] for each in jobs} == {10}
    expected = {"bootstrap", *(f"migrate-{service}" for service in WITH_DATABASE)}
    assert expected <= {each["spec"]["template"]["metadata"]["labels"][APP] for each in jobs}


@every_overlay
def test_the_commands_after_a_restoration_wait_to_be_asked_for(overlay: str) -> None:
    jobs = {each["metadata"]["name"]: each["spec"] for each in of_kind(overlay, "CronJob")}
    assert jobs.keys() == {f"restored-{service}" for service in WITH_DATABASE}
    assert {each["suspend"] for each in jobs.values()} == {True}
    for service in WITH_DATABASE:
        (pod,) = (each for each in pods(overlay) if each.owner == f"CronJob/restored-{service}")
        (restored,), (served,) = pod.containers, service_pod(overlay, service).containers
        assert restored["args"] == ["restored"]
        assert {name: restored[name] for name in ("image", "envFrom")} == {
            name: served[name] for name in ("image", "envFrom")
        }
        assert {mount["name"] for mount in served["volumeMounts"]} == {
            mount["name"] for mount in restored["volumeMounts"]
        }


@every_overlay_and_the_verifier
def test_every_container_says_what_it_needs_and_may_use(overlay: str) -> None:
    for pod in pods(overlay):
        for container in pod.containers:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, pod.owner
            assert container["resources"]["limits"].keys() == {"memory"}, pod.owner
        for container in pod.spec["containers"]:
            assert ("readinessProbe" in container) is not pod.owner.startswith(("Job/", "CronJob/")), pod.owner


@every_overlay
@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_survives_the_loss_of_a_node_and_an_upgrade(overlay: str, service: str) -> None:
    pod, deployment = service_pod(overlay, service), named(overlay, "Deployment", service)["spec"]
    (container,) = pod.containers
    assert "replicas" not in deployment  # or every `kubectl apply` would undo what the autoscaler did
    assert deployment["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")} == {
        "startupProbe": "/health/live",
        "readinessProbe": "/health/ready",
        "livenessProbe": "/health/live",
    }
    drained = container["lifecycle"]["preStop"]["sleep"]["seconds"] + 10  # requests in flight have 10 s
    assert drained < pod.spec["terminationGracePeriodSeconds"]
    budget = named(overlay, "PodDisruptionBudget", service)["spec"]
    assert budget["maxUnavailable"] == 1
    scaler = named(overlay, "HorizontalPodAutoscaler", service)["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": service}
    assert scaler["minReplicas"] >= 2
    (spread,) = pod.spec["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["matchLabelKeys"]) == ("kubernetes.io/hostname", ["pod-template-hash"])
    for selector in (deployment["selector"], budget["selector"], spread["labelSelector"]):
        assert [each.owner for each in pods(overlay) if selects(selector, each.labels)] == [pod.owner]


@pytest.mark.parametrize("store", ["postgres", "redis", "nats"])
def test_every_server_of_the_overlay_highly_available_is_named_and_may_be_drained(store: str) -> None:
    stateful_set = named(HIGHLY_AVAILABLE, "StatefulSet", store)["spec"]
    names = {f"{store}-{number}.{store}" for number in range(stateful_set["replicas"])}
    assert len(names) == 3
    authority = getattr(HOSTS, store).removeprefix("redis+sentinel://").partition("?")[0]
    assert {each.partition(":")[0] for each in authority.split(",")} == names
    selector = {"matchLabels": {APP: store}}
    assert named(HIGHLY_AVAILABLE, "PodDisruptionBudget", store)["spec"] == {"maxUnavailable": 1, "selector": selector}
    affinity = stateful_set["template"]["spec"]["affinity"]["podAntiAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}


def test_all_that_connects_to_the_servers_names_each_of_them() -> None:
    data = named_by_prefix(HIGHLY_AVAILABLE, "stores-")["data"]
    hosts = re.findall(r"^primary_conninfo = 'host=(\S+) ", data["postgresql.conf"], re.MULTILINE)
    assert hosts == [HOSTS.postgres.replace(":5432", "")]
    (job,) = (pod for pod in pods(HIGHLY_AVAILABLE) if pod.app == "provision")
    assert f"--postgres={HOSTS.postgres}" in job.containers[0]["args"]
    given = environment(HIGHLY_AVAILABLE, service_pod(HIGHLY_AVAILABLE, "token-service").containers[0])
    assert (given["NATS_REPLICAS"], given["REDIS_REPLICAS"]) == ("3", "1")


@pytest.mark.parametrize("overlay", ["deploy/k8s/overlays/local", HIGHLY_AVAILABLE])
def test_nats_is_restarted_where_it_has_switched_jetstream_off(overlay: str) -> None:
    (container,) = named(overlay, "StatefulSet", "nats")["spec"]["template"]["spec"]["containers"]
    port = int(container["args"][container["args"].index("--http_port") + 1])
    for probe in (container["startupProbe"], container["livenessProbe"]):
        assert probe["httpGet"] == {"path": "/healthz", "port": port}


def named_by_prefix(overlay: str, prefix: str) -> Manifest:
    (found,) = (each for each in of_kind(overlay, "ConfigMap") if each["metadata"]["name"].startswith(prefix))
    return found


@every_overlay
def test_the_workers_of_the_claims_function_fit_into_the_memory_of_their_pod(overlay: str) -> None:
    (container,) = service_pod(overlay, "token-service").containers
    given = environment(overlay, container)
    default = {field.name: field.default for field in msgspec.structs.fields(token_service.settings.Settings)}
    workers = int(given["CLAIMS_WORKERS"]) + default["claims_test_workers"]
    assert "CLAIMS_TEST_WORKERS" not in given
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert 0 < workers * (20 + default["claims_memory_mib"]) < limit / 2  # the rest is for the service itself


def test_the_number_of_proxies_is_set_for_all_services_at_once() -> None:
    kustomization = yaml.safe_load((ROOT / "deploy/k8s/overlays/production/kustomization.yaml").read_text())
    (target,) = (each["target"] for each in kustomization["patches"] if "TRUSTED_PROXIES" in each["patch"])
    assert target["kind"] == "ConfigMap"
    assert [service for service in SETTINGS if not re.fullmatch(target["name"], service)] == []


@every_overlay
def test_every_service_leads_to_a_port_of_one_kind_of_pod(overlay: str) -> None:
    for service in of_kind(overlay, "Service"):
        selected = [pod for pod in pods(overlay) if selects({"matchLabels": service["spec"]["selector"]}, pod.labels)]
        assert [pod.app for pod in selected] == [service["metadata"]["name"]]
        served = {port.get("name"): port["containerPort"] for port in selected[0].containers[0].get("ports", [])}
        for port in service["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            assert served.get(target, target) == port["port"]


def test_the_example_of_external_secrets_makes_what_the_pods_mount() -> None:
    (example,) = (each for each in examples_in_the_documents() if each["kind"] == "ExternalSecret")
    template, reader = example["spec"]["target"]["template"]["data"], example["metadata"]["name"]
    assert template.keys() == SECRETS[reader].keys()
    used = set(re.findall(r"\{\{ \.(\w+) \}\}", "".join(template.values())))
    assert used == {each["secretKey"] for each in example["spec"]["data"]}


def test_the_example_of_cloudnativepg_has_a_database_and_a_role_for_each_service() -> None:
    examples = examples_in_the_documents()
    (cluster,) = (each for each in examples if each["kind"] == "Cluster")
    databases = [each["spec"] for each in examples if each["kind"] == "Database"]
    names = {service.removesuffix("-service") for service in WITH_DATABASE}
    assert {role["name"] for role in cluster["spec"]["managed"]["roles"]} == names
    assert {(each["name"], each["owner"]) for each in databases} == {(name, name) for name in names}
    assert {each["cluster"]["name"] for each in databases} == {cluster["metadata"]["name"]}
