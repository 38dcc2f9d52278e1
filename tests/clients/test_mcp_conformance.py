"""The Model Context Protocol's own suite for authorization servers, unmodified."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import Person
from tests.support.conversation import NODE
from tests.support.processes import free_port
from tests.support.world import World

pytestmark = pytest.mark.clients

CLIENT_ID_METADATA_DOCUMENTS = "authorization-server-metadata-cimd"
"""A recommendation since 2025-11-25. Not followed: no request makes a service fetch a URL."""


def test_the_authorization_suite_passes(world: World, npm_packages: Path, person: Person, tmp_path: Path) -> None:
    port = free_port()
    native = world.management.applications.create(
        name="An MCP client",
        type="Native",
        oidc_client_metadata={"redirectUris": [f"http://127.0.0.1:{port}/callback"]},
    )
    suite = npm_packages / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    options = {"url": world.stack.issuer, "client-id": native.id, "resource": world.resource, "port": str(port)}
    command = [NODE, suite, "authorization", "--output-dir", tmp_path]
    for name, value in options.items():
        command += [f"--{name}", value]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        printed = []
        for line in running.stdout:
            printed.append(line)
            if line.startswith(f"{world.stack.issuer}/auth?"):
                httpx.get(person.go(line.strip())).raise_for_status()
    assert running.returncode == 0, "".join(printed)
    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    assert {check["id"]: check["status"] for check in checks} == {
        "authorization-server-metadata": "SUCCESS",
        CLIENT_ID_METADATA_DOCUMENTS: "WARNING",
        "authorization-code-grant": "SUCCESS",
    }
