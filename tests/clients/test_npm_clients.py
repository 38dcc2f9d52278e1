"""Unmodified clients from npm: each runs every flow once (javascript/*.mjs), with a user at a browser."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World

pytestmark = pytest.mark.clients


def walk(program: Path, person: Person, **environment: str) -> dict[str, Any]:
    """Run a program, visit every URL it asks for, and return its results."""
    with subprocess.Popen(
        ["node", program], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for line in running.stdout:
            message = json.loads(line)
            if "seen" in message:
                return dict(message["seen"])
            print(person.go(message["visit"]), file=running.stdin, flush=True)
    pytest.fail(f"{program.name} ended with {running.returncode} before it was done")


@pytest.mark.parametrize("program", ["openid_client.mjs", "oauth4webapi.mjs"])
def test_a_client_completes_every_flow(
    world: World, npm_packages: Path, application: Client, person: Person, goodbye: str, program: str
) -> None:
    seen = walk(
        npm_packages / program,
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=application.basic[0],
        CLIENT_SECRET=application.basic[1],
        MACHINE_ID=world.machine.basic[0],
        MACHINE_SECRET=world.machine.basic[1],
        REDIRECT_URI=REDIRECT_URI,
        GOODBYE=goodbye,
        RESOURCE=world.resource,
        SUBJECT_TOKEN=world.subject_token(),
    )
    assert seen == {
        "sub": person.user_id,
        "name": "Ada Lovelace",
        "refreshed": "read:things write:things",
        "introspected": [True, person.user_id],
        "impersonated": [world.customer, {"sub": person.user_id}],
        "afterRevocation": {"active": False},
        "refused": "invalid_grant",
        "machine": [world.machine.id, "read:things"],
        "goodbye": True,
    }
