"""deploy/k8s is valid: by the schemas of the oldest and newest Kubernetes, and by an API server if there is one.

``make k8s-check``. The API server is that of ``KUBECONFIG``; nothing is changed there.
``make test-k8s`` asks it, too.
"""

import json
import os
import subprocess

import kubernetes_validate
import pytest

from tests.support.manifests import KUBECTL, VERIFIER, Manifest, examples_in_the_documents, kustomizations, manifests

pytestmark = pytest.mark.manifests

OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
"""``preStop.sleep`` is in every cluster from 1.30."""

WITHOUT_SCHEMA = {"gateway.networking.k8s.io/v1"}
"""Not part of Kubernetes; test_edges.py compares it with the routing table."""

KUSTOMIZATIONS = [*kustomizations("overlays"), *kustomizations("edges"), VERIFIER]


def problem(manifest: Manifest, version: str) -> str | None:
    """Return what the strict schema refuses, or None."""
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{manifest['kind']}/{manifest['metadata']['name']}: {error.message}"
    return None


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("directory", KUSTOMIZATIONS)
def test_every_manifest_matches_its_strict_schema(directory: str, version: str) -> None:
    found = [problem(each, version) for each in manifests(directory) if each["apiVersion"] not in WITHOUT_SCHEMA]
    assert [each for each in found if each] == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_example_of_a_backup_matches_its_strict_schema(version: str) -> None:
    kinds = ("PersistentVolumeClaim", "CronJob")
    examples = [each for each in examples_in_the_documents() if each["kind"] in kinds]
    assert [problem(each, version) for each in examples] == [None, None]


def test_a_misspelled_field_does_not_match() -> None:
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"port": []}}
    assert problem(manifest, NEWEST) == "Service/s: Additional properties are not allowed ('port' was unexpected)"


def elsewhere(manifest: Manifest) -> Manifest:
    """Return the manifest where there is neither its namespace nor an object of its name."""
    if manifest["kind"] == "Namespace":
        return {**manifest, "metadata": {**manifest["metadata"], "name": "dry-run"}}
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}


@pytest.mark.kubernetes
@pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="KUBECONFIG does not name a cluster")
@pytest.mark.parametrize("directory", KUSTOMIZATIONS)
def test_the_api_server_accepts_every_manifest(directory: str) -> None:
    served = kubectl("api-versions").split()
    items = [
        elsewhere(each)
        for each in manifests(directory)
        if each["apiVersion"] in served or each["apiVersion"] not in WITHOUT_SCHEMA
    ]
    if not items:
        pytest.skip(f"{WITHOUT_SCHEMA} is not served")
    shown = kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename", "-"),
        given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
    )
    assert len(shown.splitlines()) == len(items)
    assert all(line.endswith(" serverside-applied (server dry run)") for line in shown.splitlines())


def kubectl(*words: str, given: str | None = None) -> str:
    finished = subprocess.run(
        [KUBECTL, "--request-timeout=30s", *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout
