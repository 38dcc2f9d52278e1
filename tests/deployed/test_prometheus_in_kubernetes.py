"""deploy/observe finds the pods of deploy/k8s: Prometheus' own discovery and relabelling, of the rendered manifests.

In a container, because Debian 12's Prometheus has no discovery in Kubernetes.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.support.manifests import pods

pytestmark = pytest.mark.deployed

OBSERVE = Path(__file__).parents[2] / "deploy" / "observe"
CONFIG = OBSERVE / "prometheus.kubernetes.yml"
SERVICES = ["console", "management-service", "template-service", "token-service"]
OVERLAY = "deploy/k8s/overlays/local"


def running_pods() -> list[dict[str, Any]]:
    """Return the pods of an overlay as an API server lists them: one of each, with an address."""
    return [
        {
            "metadata": {"name": f"{pod.app}-0", "namespace": "stead", "uid": str(number), "labels": dict(pod.labels)},
            "spec": dict(pod.spec),
            "status": {"phase": "Running", "podIP": f"192.0.2.{number}"},
        }
        for number, pod in enumerate(pods(OVERLAY), 1)
    ]


@contextmanager
def api_server() -> Iterator[str]:
    """Serve the list of pods, with selectors of one label."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            assert asked.path == "/api/v1/namespaces/stead/pods"
            query = parse_qs(asked.query)
            label, _, value = query["labelSelector"][0].partition("=")
            found = [pod for pod in running_pods() if pod["metadata"]["labels"].get(label) == value]
            listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": found}
            body = b"" if "watch" in query else json.dumps(listed).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def promtool(image: str, directory: Path, *words: str) -> str:
    """Run promtool in a directory, on the network of this machine."""
    container = ["docker", "run", "--rm", "--network", "host", "--entrypoint", "promtool"]
    mounted = ["--volume", f"{directory}:/observe:ro", "--workdir", "/observe"]
    finished = subprocess.run([*container, *mounted, image, *words], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_the_configuration_for_kubernetes_is_valid(prometheus_image: str) -> None:
    promtool(prometheus_image, OBSERVE, "check", "config", CONFIG.name)


def test_the_pods_of_the_three_services_are_scraped_under_their_names_and_no_others(
    prometheus_image: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(CONFIG.read_text())
    (job,) = config["scrape_configs"]
    config["rule_files"] = []
    tmp_path.chmod(0o755)  # the container runs as another user
    check = ("check", "service-discovery", "--timeout=5s", "prometheus.yml", str(job["job_name"]))
    with api_server() as url:
        job["kubernetes_sd_configs"][0]["api_server"] = url
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        found = promtool(prometheus_image, tmp_path, *check)
    labels = [each["labels"] for each in json.loads(found) if each["labels"]]
    scraped = [(each["job"], each["instance"], each["__address__"].rpartition(":")[2]) for each in labels]
    assert sorted(scraped) == [(service, f"{service}-0", "8000") for service in SERVICES]
