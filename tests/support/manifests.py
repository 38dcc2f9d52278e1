"""deploy/k8s as kubectl renders it, and which connections its network policies allow."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
KUBECTL = Path(sys.executable).with_name("kubectl")
APP = "app.kubernetes.io/name"
VERIFIER = "deploy/k8s/verifier"

Manifest = dict[str, Any]


class Pod(NamedTuple):
    """A pod as its owner describes it; the owner is ``Kind/name``."""

    owner: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def app(self) -> str:
        return self.labels[APP]

    @property
    def containers(self) -> list[Any]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def kustomizations(kind: str) -> list[str]:
    """Return the directories of ``overlays`` or ``edges`` that can be applied."""
    return sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob(f"deploy/k8s/{kind}/*/kustomization.yaml"))


def examples_in_the_documents() -> list[Manifest]:
    """Return the manifests that docs/operations shows."""
    return [each for each in _yaml_in_the_documents() if "kind" in each]


def values_in_the_documents() -> Manifest:
    """Return the values of the Helm chart that docs/operations shows."""
    (values,) = (each for each in _yaml_in_the_documents() if "kind" not in each)
    return values


def _yaml_in_the_documents() -> list[Manifest]:
    text = "".join((ROOT / f"docs/operations/{name}.md").read_text() for name in ("kubernetes", "backup-and-restore"))
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [each for block in blocks for each in yaml.safe_load_all(block)]


def documented_hosts() -> list[str]:
    """Return the options that name the servers of the overlay ``highly-available``, as docs/operations shows them."""
    text = (ROOT / "docs/operations/kubernetes.md").read_text()
    (options,) = re.findall(
        r"^python -m provision secrets --secrets secrets \\\n(.*?) \|", text, re.MULTILINE | re.DOTALL
    )
    return shlex.split(options.replace("\\\n", " "))


@cache
def rendered(directory: str) -> str:
    """Return what ``kubectl apply -k`` would send, as YAML."""
    finished = subprocess.run(
        [KUBECTL, "kustomize", directory], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


@cache
def manifests(directory: str) -> list[Manifest]:
    return list(yaml.safe_load_all(rendered(directory)))


def of_kind(directory: str, *kinds: str) -> list[Manifest]:
    return [each for each in manifests(directory) if each["kind"] in kinds]


def pods(directory: str) -> list[Pod]:
    templates = (
        (f"{each['kind']}/{each['metadata']['name']}", (each["spec"].get("jobTemplate") or each)["spec"]["template"])
        for each in of_kind(directory, "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
    )
    return [Pod(owner, template["metadata"]["labels"], template["spec"]) for owner, template in templates]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector of Kubernetes, with equality and ``In`` only, selects these labels."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    expressions = selector.get("matchExpressions", [])
    assert {each["operator"] for each in expressions} <= {"In"}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )


def connections(directory: str) -> dict[str, set[str]]:
    """Return who may connect to what: ``app:port`` of every pod and place outside, and the apps and places that may.

    A connection between two pods needs both policies, of the one that connects and of the other.
    """
    every = pods(directory)
    policies = [each["spec"] for each in of_kind(directory, "NetworkPolicy")]
    for pod in every:
        applied = {
            direction
            for policy in policies
            if selects(policy["podSelector"], pod.labels)
            for direction in policy["policyTypes"]
        }
        assert applied == {"Ingress", "Egress"}, f"{pod.owner} is open"
    found: dict[str, set[str]] = {}
    for pod in every:
        for place, port in _outside(policies, pod, "egress"):
            found.setdefault(f"{place}:{port}", set()).add(pod.app)
        for port in _served(directory, pod):
            target = f"{pod.app}:{port}"
            found[target] = {place for place, allowed in _outside(policies, pod, "ingress") if allowed == port}
            found[target] |= {
                other.app
                for other in every
                if _allowed(policies, pod, "ingress", other, port) and _allowed(policies, other, "egress", pod, port)
            }
    return found


def _served(directory: str, pod: Pod) -> list[int]:
    """Return the ports of the pod that have a Service."""
    services = [each["spec"] for each in of_kind(directory, "Service")]
    return [
        port["port"]
        for service in services
        if selects({"matchLabels": service["selector"]}, pod.labels)
        for port in service["ports"]
    ]


def _rules(policies: list[Any], pod: Pod, direction: str) -> Iterator[tuple[list[Any] | None, list[int]]]:
    """Yield the peers, None for everything, and the ports of each rule that applies to the pod."""
    for policy in policies:
        if direction.capitalize() in policy["policyTypes"] and selects(policy["podSelector"], pod.labels):
            for rule in policy.get(direction, []):
                yield rule.get("from" if direction == "ingress" else "to"), [each["port"] for each in rule["ports"]]


def _allowed(policies: list[Any], pod: Pod, direction: str, other: Pod, port: int) -> bool:
    return any(
        port in ports
        and (
            peers is None
            or any(peer.keys() == {"podSelector"} and selects(peer["podSelector"], other.labels) for peer in peers)
        )
        for peers, ports in _rules(policies, pod, direction)
    )


def _outside(policies: list[Any], pod: Pod, direction: str) -> Iterator[tuple[str, int]]:
    """Yield the places outside the namespace, and the port, that the rules of the pod name."""
    for peers, ports in _rules(policies, pod, direction):
        for peer in [None] if peers is None else peers:
            if peer is None:
                place = "anywhere"
            elif "ipBlock" in peer:
                place = peer["ipBlock"]["cidr"]
            elif "namespaceSelector" in peer:
                place = ",".join(f"{key}={value}" for key, value in peer["namespaceSelector"]["matchLabels"].items())
            else:
                continue
            yield from ((place, port) for port in ports)
