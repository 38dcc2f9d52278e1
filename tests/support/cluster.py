"""An overlay on the cluster of kubectl's current context: installed, reached, and watched from pods."""

import base64
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import yaml

from stead import ManagementClient
from tests.support.fingerprint import IN_AN_IMAGE, fingerprint
from tests.support.processes import free_port
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
OVERLAY = "deploy/k8s/overlays/local"
NAMESPACE = "stead"
SERVICES = ("token-service", "management-service", "template-service", "console")
IMAGES = (*SERVICES, "provision")
_TIMEOUT_S = 600
_PRINT_FINGERPRINT = f"print(open('{IN_AN_IMAGE}').read(), end='')"


def kubectl(*words: str, given: str | None = None, namespace: str = NAMESPACE) -> str:
    """Run kubectl in the namespace; return what it prints."""
    finished = subprocess.run(
        ["kubectl", "--namespace", namespace, *words],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    return finished.stdout


def secret(name: str, *, namespace: str = NAMESPACE) -> dict[str, str]:
    """Return the values of a Secret."""
    stored = json.loads(kubectl("get", "secret", name, "--output", "json", namespace=namespace))["data"]
    return {key: base64.b64decode(value).decode() for key, value in stored.items()}


def apply_overlay(tag: str, *, base_url: str, overlay: str = OVERLAY) -> None:
    """Apply the overlay with services of this tag and this address; return when its Jobs are done and its pods ready.

    A change of the permissions of a store replaces its servers: these are always of this tree.
    """
    manifests = kubectl("kustomize", overlay).replace("http://localhost:3000", base_url)
    manifests = re.sub(r"(image: stead/(?:[a-z-]+-service|console):)dev", rf"\g<1>{tag}", manifests)
    manifests = re.sub(r"(name: (?:migrate-[a-z-]+|bootstrap|provision)-)dev\b", rf"\g<1>{tag}", manifests)
    kubectl("apply", "--filename", "-", given=manifests)
    kubectl("wait", "--for=condition=complete", "job", "--all", "--timeout=300s")
    for service in SERVICES:
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")


def run_again(job: str) -> None:
    """Replace a Job of the overlay; return when it is complete."""
    rendered = yaml.safe_load_all(kubectl("kustomize", OVERLAY))
    manifest = next(each for each in rendered if (each["kind"], each["metadata"]["name"]) == ("Job", job))
    kubectl("delete", "job", job, "--ignore-not-found")
    kubectl("apply", "--filename", "-", given=json.dumps(manifest))
    kubectl("wait", "--for=condition=complete", f"job/{job}", "--timeout=300s")


def require_images_of_this_tree() -> None:
    """Fail unless the images with the tag ``dev`` on the node were built from what is in this tree now."""
    with temporary_namespace("stead-images") as namespace:
        for image in IMAGES:
            start_program(image, _PRINT_FINGERPRINT, namespace=namespace, image=f"stead/{image}:dev")
        eventually(lambda: all(map(_has_ended, _pods(namespace))))
        ran = {pod["metadata"]["name"] for pod in _pods(namespace) if pod["status"]["phase"] == "Succeeded"}
        current = {image for image in ran if printed_by(image, namespace) == [fingerprint()]}
    others = [f"stead/{image}:dev" for image in IMAGES if image not in current]
    assert not others, f"not built from this tree, or missing on the node: {others}; run: make images && .ci/cluster up"


def _pods(namespace: str) -> list[Any]:
    return list(json.loads(kubectl("get", "pods", "--output", "json", namespace=namespace))["items"])


def _has_ended(pod: Any) -> bool:
    """Whether its program has ended, or cannot begin because its image is missing."""
    return pod["status"]["phase"] in {"Succeeded", "Failed"} or "ImagePull" in json.dumps(pod["status"])


class Edge:
    """The address of the system, which is its issuer's as well, and the edge that answers there.

    Args:
        port: Of this machine.
        running: Ends what forwards the port.
    """

    def __init__(self, port: int, running: ExitStack) -> None:
        self.url = f"http://localhost:{port}"
        self._port = port
        self._running = running

    def lead_to(self, target: str = "service/edge", *, to: int = 3000, namespace: str = NAMESPACE) -> None:
        """Forward the address to this Service or pod from now on, by default to the overlay's nginx."""
        self._running.close()
        self._running.enter_context(forwarded(target, self._port, to=to, namespace=namespace))
        eventually(lambda: _answers(self.url))


@contextmanager
def installed(secrets: Path, *, tag: str = "dev", overlay: str = OVERLAY, hosts: Sequence[str] = ()) -> Iterator[Edge]:
    """Install the overlay in a namespace of its own; yield its edge.

    Args:
        secrets: The directory for passwords and keys.
        tag: Of our images.
        overlay: Its directory.
        hosts: Options that name the servers of the stores.
    """
    provision = [sys.executable, "-m", "provision", "secrets", "--secrets", str(secrets), "--namespace", NAMESPACE]
    provision += hosts
    manifests = subprocess.run(provision, capture_output=True, text=True, check=True).stdout
    require_images_of_this_tree()
    with temporary_namespace(NAMESPACE), ExitStack() as running:
        edge = Edge(free_port(), running)
        kubectl("apply", "--server-side", "--filename", "-", given=manifests)
        apply_overlay(tag, base_url=edge.url, overlay=overlay)
        kubectl("wait", "--for=condition=available", "deployment", "--all", "--timeout=300s")
        edge.lead_to()
        yield edge


def first_client(base_url: str, *, namespace: str = NAMESPACE) -> ManagementClient:
    """Return a client with the credentials that the Job ``bootstrap`` left in its Secret."""
    first = secret("stead-first-client", namespace=namespace)
    return ManagementClient(
        base_url, client_id=first["client_id"], client_secret=first["client_secret"], resource=first["resource"]
    )


@contextmanager
def temporary_namespace(name: str, **labels: str) -> Iterator[str]:
    """Create a namespace with labels ``stead/<name>``, and delete it at the end; fail if it exists."""
    metadata = {"name": name, "labels": {f"stead/{label}": value for label, value in labels.items()}}
    kubectl(
        "create", "--filename", "-", given=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    )
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--timeout=120s")


def start_program(
    name: str,
    program: str,
    *,
    namespace: str,
    image: str = "stead/token-service:dev",
    settings: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    serves: bool = True,
) -> None:
    """Start a pod that runs a Python program.

    Args:
        name: Of the pod, and of the Secret with its settings.
        program: Its source.
        namespace: Where it runs.
        image: With Python, and the packages that the program needs.
        settings: Variables of its environment.
        labels: Of the pod, in addition.
        serves: False keeps it out of the Services that its labels select.
    """
    metadata = {"name": name, "namespace": namespace, "labels": {"program": name, **(labels or {})}}
    container: dict[str, Any] = {
        "name": "program",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", program],
        "envFrom": [{"secretRef": {"name": name}}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "readinessGates": [] if serves else [{"conditionType": "stead/never"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    items = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": dict(settings or {})},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    ]
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("apply", "--server-side", "--filename", "-", given=manifests, namespace=namespace)


def printed_by(name: str, namespace: str) -> list[str]:
    """Return the lines that a program has printed so far."""
    return kubectl("logs", name, namespace=namespace).splitlines()


@contextmanager
def forwarded(target: str, port: int, *, to: int, namespace: str = NAMESPACE) -> Iterator[None]:
    """Forward a port of this machine to a port of a Service or a pod.

    kubectl ends when it loses its connection, such as at a restart of the kubelet; it is started again.
    """
    command = ["kubectl", "--namespace", namespace, "port-forward", target, f"{port}:{to}"]
    ended = threading.Event()

    def forward() -> None:
        while not ended.is_set():
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not ended.wait(0.1):
                pass
            process.terminate()
            process.wait()

    forwarding = threading.Thread(target=forward)
    forwarding.start()
    try:
        yield
    finally:
        ended.set()
        forwarding.join()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/oidc/jwks").status_code == 200
    except httpx.TransportError:
        return False
